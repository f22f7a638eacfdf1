"""`milliscale demo`, which `make demo` calls."""

from __future__ import annotations

import sys
from pathlib import Path

import click
from rich.console import Console

from kube.api.client import KubeError
from kube.api.status import StatusError
from playground.binaries import HOME
from playground.demo import run_demo
from playground.errors import PlaygroundError
from playground.scenario import PERIOD


@click.command()
@click.option(
    "--seconds",
    type=click.FloatRange(min=0, min_open=True),
    help="Stop after this time, with exit status 0 if every HPA scaled up and down, else 1.  [default: until Ctrl-C]",
)
@click.option(
    "--period",
    type=click.FloatRange(min=10),
    default=PERIOD,
    show_default=True,
    help="Period of the load in seconds.",
)
@click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False),
    default=HOME / "demo",
    show_default=True,
    help="Folder for the files of the demo; those of the last demo are removed.",
)
def demo(*, seconds: float | None, period: float, folder: Path) -> None:
    """Run everything with a periodic load, and show what the autoscaler does."""
    try:
        status = run_demo(seconds=seconds, period=period, folder=folder, console=Console())
    except (PlaygroundError, KubeError, StatusError) as error:
        raise click.ClickException(str(error)) from error
    except PermissionError as error:
        raise click.ClickException(
            f"{error.filename}: {error.strerror}; give a --folder that can be written"
        ) from error
    sys.exit(status)
