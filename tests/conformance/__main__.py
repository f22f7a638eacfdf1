"""The command `python -m tests.conformance`: a line for each file of recorded cases, exit status 1 if any fails.

Missing files are named and skipped. A file without a check is a failure.
"""

import textwrap
from pathlib import Path

import click

from tests.conformance.runner import RECORDED, Failure, NoCheckError, corpus_names, find_file, load_check, run_file

_MAX_FAILURES = 3
_MAX_CASE_CHARACTERS = 400


@click.command()
@click.option(
    "--corpus-dir",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    envvar="CORPUS_DIR",
    default=RECORDED,
    help="Directory with NAME.jsonl or NAME.jsonl.gz files.  [default: tests/data]",
)
def main(corpus_dir: Path) -> None:
    """Compare milliscale with recorded behaviour of Kubernetes."""
    failed = checked = 0
    for name in corpus_names(corpus_dir):
        path = find_file(corpus_dir, name)
        if path is None:
            click.echo(f"{name}.jsonl: not in {corpus_dir}, left out")
            continue
        try:
            check = load_check(name)
        except NoCheckError as error:
            click.echo(f"{name}.jsonl: NOT CHECKED, {error}")
            failed += 1
            continue
        outcome = run_file(path, check)
        click.echo(f"{name}.jsonl: {outcome}")
        for failure in outcome.failures[:_MAX_FAILURES]:
            click.echo(_describe(failure), err=True)
        failed += len(outcome.failures)
        checked += 1
    if not checked:
        raise click.ClickException(f"no recorded cases in {corpus_dir}")
    raise SystemExit(1 if failed else 0)


def _describe(failure: Failure) -> str:
    case = textwrap.shorten(failure.case, _MAX_CASE_CHARACTERS, placeholder=" ...", break_long_words=True)
    return f"  line {failure.line}:\n{textwrap.indent(failure.difference, '    ')}\n    case: {case}"


if __name__ == "__main__":
    main(prog_name="python -m tests.conformance")
