"""The command `python -m tests.conformance`: a line for each file of recorded cases, exit status 1 if any fails.

Files that are missing are named and left out. A file that nothing judges is a failure, since nobody knows.
"""

import textwrap
from pathlib import Path

import click

from tests.conformance.runner import RECORDED, Failure, NoJudgeError, corpus_names, find_file, load_judge, run_file

_FAILURES_SHOWN = 3
_CASE_SHOWN = 400


@click.command()
@click.option(
    "--corpus-dir",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    envvar="CORPUS_DIR",
    default=RECORDED,
    help="Directory with NAME.jsonl or NAME.jsonl.gz files.  [default: tests/data]",
)
def main(corpus_dir: Path) -> None:
    """Hold milliscale against recorded behaviour of Kubernetes."""
    wrong = judged = 0
    for name in corpus_names(corpus_dir):
        path = find_file(corpus_dir, name)
        if path is None:
            click.echo(f"{name}.jsonl: not in {corpus_dir}, left out")
            continue
        try:
            judge = load_judge(name)
        except NoJudgeError as error:
            click.echo(f"{name}.jsonl: NOT JUDGED, {error}")
            wrong += 1
            continue
        outcome = run_file(path, judge)
        click.echo(f"{name}.jsonl: {outcome}")
        for failure in outcome.failures[:_FAILURES_SHOWN]:
            click.echo(_describe(failure), err=True)
        wrong += len(outcome.failures)
        judged += 1
    if not judged:
        raise click.ClickException(f"no recorded cases in {corpus_dir}")
    raise SystemExit(1 if wrong else 0)


def _describe(failure: Failure) -> str:
    case = textwrap.shorten(failure.case, _CASE_SHOWN, placeholder=" ...", break_long_words=True)
    return f"  line {failure.line}:\n{textwrap.indent(failure.difference, '    ')}\n    case: {case}"


if __name__ == "__main__":
    main(prog_name="python -m tests.conformance")
