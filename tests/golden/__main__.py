"""The command `python -m tests.golden`: sends every case and prints the differences; exit status 1 if there are any."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import click

from playground.errors import PlaygroundError
from tests.golden.cases import RECORDED, SIMILAR, Case, CaseFileError, read_cases
from tests.golden.environment import golden_environment
from tests.golden.runner import Outcome, run_cases, run_with_default_flags


@click.command()
@click.argument("files", nargs=-1, type=click.Path(exists=True, dir_okay=False, path_type=Path))
def main(files: tuple[Path, ...]) -> None:
    """Compare the adapter with recorded responses of prometheus-adapter, those of FILES or else the project's own.

    Cases that need a real API server run only if KUBEBUILDER_ASSETS names one. Then the adapter is started
    with its default flags, and must give the same responses.
    """
    try:
        cases = [case for file in files or (RECORDED, SIMILAR) for case in read_cases(file)]
        outcome, by_default = asyncio.run(_run(cases))
    except (CaseFileError, PlaygroundError, OSError) as error:
        raise click.ClickException(str(error)) from error
    for failure in outcome.failures:
        click.echo(f"FAILED {failure}")
    for case in outcome.skipped:
        click.echo(f"SKIPPED {case}")
    if isinstance(by_default, Outcome):
        for failure in by_default.failures:
            click.echo(f"DIFFERS with default flags: {failure}")
        compared = by_default.passed + len(by_default.failures)
        click.echo(f"with default flags: {by_default.passed} of {compared} responses are the same")
    else:
        click.echo(f"with default flags: {by_default}")
    click.echo(str(outcome))
    is_well = outcome.passed and isinstance(by_default, Outcome) and not (outcome.failures or by_default.failures)
    raise SystemExit(0 if is_well else 1)


async def _run(cases: list[Case]) -> tuple[Outcome, Outcome | PlaygroundError]:
    """The recorded suite, and the same responses with default flags; an adapter that does not start with them."""
    with tempfile.TemporaryDirectory(prefix="golden-") as folder:
        async with golden_environment(Path(folder)) as environment:
            outcome = await run_cases(environment, cases)
            try:
                return outcome, await run_with_default_flags(environment, cases)
            except PlaygroundError as error:
                return outcome, error


if __name__ == "__main__":
    main(prog_name="python -m tests.golden")
