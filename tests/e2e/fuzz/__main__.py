"""`python -m tests.e2e.fuzz`: rounds of the differential fuzz; a difference that is not allowed is a failure."""

import asyncio
import sys
import tempfile
from pathlib import Path

import click

from tests.e2e.fuzz.environment import run


@click.command()
@click.option("--hpas", default=200, show_default=True, help="HPAs of a round.")
@click.option("--phases", default=6, show_default=True, help="Phases of each HPA.")
@click.option("--seed", default=1, show_default=True, help="The first round's; each further round has the next.")
@click.option("--rounds", default=1, show_default=True)
@click.option("--eager", is_flag=True, help="Run the autoscaler with --eager.")
@click.option("--folder", type=click.Path(path_type=Path), help="Where logs are kept.  [default: nowhere]")
def main(hpas: int, phases: int, seed: int, rounds: int, eager: bool, folder: Path | None) -> None:
    """Compare the autoscaler with kube-controller-manager on random HPAs."""
    failed = 0
    for number in range(seed, seed + rounds):
        with tempfile.TemporaryDirectory() as temporary:
            place = Path(temporary) if folder is None else folder / str(number)
            place.mkdir(parents=True, exist_ok=True)
            report = asyncio.run(run(place, hpas=hpas, phases=phases, seed=number, eager=eager, say=click.echo))
        click.echo(f"seed {number}: {report}")
        failed += bool(report.differences)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
