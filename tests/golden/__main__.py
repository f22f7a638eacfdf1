"""The command `python -m tests.golden`: sends every case, prints what differs, exit status 1 if anything does."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import click

from playground.errors import PlaygroundError
from tests.golden.bed import golden_bed
from tests.golden.cases import RECORDED, SIMILAR, Case, CaseFileError, read_cases
from tests.golden.runner import Outcome, run_cases


@click.command()
@click.argument("files", nargs=-1, type=click.Path(exists=True, dir_okay=False, path_type=Path))
def main(files: tuple[Path, ...]) -> None:
    """Hold the adapter against recorded answers of prometheus-adapter, those of FILES or else the project's own.

    Cases that only a real API server can answer run where KUBEBUILDER_ASSETS names one.
    """
    try:
        cases = [case for file in files or (RECORDED, SIMILAR) for case in read_cases(file)]
        outcome = asyncio.run(_run(cases))
    except (CaseFileError, PlaygroundError, OSError) as error:
        raise click.ClickException(str(error)) from error
    for failure in outcome.failures:
        click.echo(f"FAILED {failure}")
    for case in outcome.skipped:
        click.echo(f"SKIPPED {case}")
    click.echo(str(outcome))
    raise SystemExit(1 if outcome.failures or not outcome.passed else 0)


async def _run(cases: list[Case]) -> Outcome:
    with tempfile.TemporaryDirectory(prefix="golden-") as folder:
        async with golden_bed(Path(folder)) as bed:
            return await run_cases(bed, cases)


if __name__ == "__main__":
    main(prog_name="python -m tests.golden")
