"""Run scenarios one after another in one environment, and print a table: fault, promise, seconds to recover."""

from __future__ import annotations

import random
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from kube.process.runtime import run
from tests.chaos.environment import Environment, run_environment
from tests.chaos.promises import Before, broken_promises
from tests.chaos.scenario import Run, Scenario
from tests.chaos.scenarios import SCENARIOS

SECONDS = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """A scenario's result; `recovered` is the time in seconds from the end of the fault, None if it did not recover."""

    scenario: Scenario
    recovered: float | None
    broken: Sequence[str]


async def run_scenarios(
    environment: Environment, scenarios: Sequence[Scenario], *, seconds: float, seed: int
) -> list[Result]:
    """Run them in order, and log each to standard error; stop at one that does not recover."""
    results = []
    for scenario in scenarios:
        result = await run_scenario(environment, scenario, seconds=seconds, seed=seed)
        print(_line(result), file=sys.stderr, flush=True)  # noqa: T201
        results.append(result)
        if result.recovered is None:
            break
    return results


async def run_scenario(environment: Environment, scenario: Scenario, *, seconds: float, seed: int) -> Result:
    """Inject a fault for `seconds`, wait until everything has recovered, and check the promises."""
    before = await Before.of(environment)
    broken = []
    try:
        await scenario.inject(
            Run(environment=environment, seconds=seconds, random=random.Random(f"{seed}/{scenario.name}"))
        )
    except AssertionError as error:
        broken.append(f"during the fault: {error}")
    ended = time.monotonic()
    try:
        await environment.wait_recovered()
    except AssertionError as error:
        return Result(scenario=scenario, recovered=None, broken=[*broken, f"not recovered: {error}"])
    recovered = time.monotonic() - ended
    return Result(scenario=scenario, recovered=recovered, broken=[*broken, *await broken_promises(environment, before)])


def _line(result: Result) -> str:
    what = f"recovered in {result.recovered:.1f} s" if result.recovered is not None else "not recovered"
    return "; ".join([f"{result.scenario.name}: {what}", *result.broken])


def _table(results: Sequence[Result]) -> Table:
    table = Table(title="Chaos", title_justify="left")
    for name in ("fault", "promise", "kept", "recovered, s"):
        table.add_column(name)
    for result in results:
        recovered = f"{result.recovered:.1f}" if result.recovered is not None else "no"
        kept = "no: " + "; ".join(result.broken) if result.broken else "yes"
        table.add_row(result.scenario.fault, result.scenario.promise, kept, recovered)
    return table


async def _run(scenarios: Sequence[Scenario], *, seconds: float, seed: int, folder: Path) -> list[Result]:
    async with run_environment(folder) as environment:
        return await run_scenarios(environment, scenarios, seconds=seconds, seed=seed)


@click.command(help=__doc__)
@click.option("--seconds", type=click.FloatRange(min=0), default=SECONDS, show_default=True, help="For each fault.")
@click.option("--only", multiple=True, metavar="NAME", help="Run this scenario; may be repeated.")
@click.option("--seed", type=int, default=1, show_default=True, help="For random moments.")
@click.option("--folder", type=click.Path(path_type=Path), help="For logs, which are kept there.")
def main(*, seconds: float, only: Sequence[str], seed: int, folder: Path | None) -> None:
    """Run scenarios; exit with 1 if a promise is broken."""
    known = {scenario.name: scenario for scenario in SCENARIOS}
    unknown = [name for name in only if name not in known]
    if unknown:
        raise click.UsageError(f"no scenario {', '.join(unknown)}; there are {', '.join(known)}")
    chosen = [known[name] for name in only] or list(SCENARIOS)
    with tempfile.TemporaryDirectory() as scratch:
        results = run(_run(chosen, seconds=seconds, seed=seed, folder=folder or Path(scratch)))
    Console(width=160).print(_table(results))
    if len(results) < len(chosen) or any(result.broken for result in results):
        raise SystemExit(1)
