"""The command `tune`."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from kube.process.flags import GoCommand, Parsed
from replay.commands import errors_of_users, read_inputs, write_page
from replay.flags import HPAReference, InputFlags, hpa_option, input_flags
from replay.load import ReplayError
from replay.tune import report
from replay.tune.candidates import FIELDS
from replay.tune.evaluation import Problem, TuneOptions
from replay.tune.forecast import compare_forecast
from replay.tune.goal import Goal, Objective
from replay.tune.search import MAX_REPLAYS, Search
from replay.tune.tuning import tune as tune_hpa

_PERCENT: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?|\.[0-9]+)%")
_INTERRUPTED: Final = 130
_LINE_SECONDS: Final = 10


def share_of(low: float, high: float) -> Parsed[float]:
    """Return the type of a flag like `0.1%`, which is passed on as 0.001."""

    def parse(text: str) -> float:
        match = _PERCENT.fullmatch(text.strip())
        if match is None:
            raise ValueError(f"{text!r} is not a percentage such as 0.1%")
        percent = float(match[1])
        if not low <= percent <= high:
            raise ValueError(f"{text} is not between {low:g}% and {high:g}%")
        return percent / 100

    return Parsed("percentage", parse)


def _fields(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(","))
    for name in names:
        if name not in FIELDS:
            raise ValueError(f"{name!r} is none of {', '.join(FIELDS)}")
    return names


@click.command(cls=GoCommand)
@hpa_option
@click.option(
    "--max-overload",
    type=share_of(0, 100),
    show_default="as much as the given HPA has at the same time, or 0.001% if that is more",
    help="Share of the requests that may be above the capacity of the ready pods, such as 0.1%.",
)
@click.option(
    "--objective",
    type=click.Choice(["pod-hours", "overload"]),
    default="pod-hours",
    help="pod-hours: the fewest with at most --max-overload; overload: the least with no more pod-hours than the given "
    "HPA.",
)
@click.option(
    "--max-scale-events",
    type=share_of(0, 100_000),
    default="150%",
    help="Scale events, as a share of the given HPA's.",
)
@click.option("--max-flaps", type=share_of(0, 100_000), default="150%", help="Flaps, as a share of the given HPA's.")
@click.option(
    "--max-target", type=share_of(1, 100), default="90%", help="Highest target, as a share of the capacity of a pod."
)
@click.option(
    "--fields",
    type=Parsed("names", _fields),
    default=",".join(FIELDS),
    help="Fields that may change, separated by commas.",
)
@click.option("--jobs", type=click.IntRange(1, 256), show_default="one per core", help="Number of processes.")
@click.option("-o", "--output", type=click.Choice(["yaml", "json"]), default="yaml", help="Output format.")
@click.option(
    "--html",
    type=click.Path(path_type=Path, dir_okay=False, writable=True),
    help="Write a page with the trade-off to this file.",
)
@input_flags
def tune(
    *,
    hpas: tuple[HPAReference, ...],
    max_overload: float | None,
    objective: str,
    max_scale_events: float,
    max_flaps: float,
    max_target: float,
    fields: tuple[str, ...],
    jobs: int | None,
    output: str,
    html: Path | None,
    inputs: InputFlags,
) -> None:
    """Look for a better HPA on recorded load.

    Each day of the history is left out once: the best HPA by the other days must be better on that day, too. At least
    four days are needed. The output is YAML for kubectl apply: the recommended HPA, with the report as comments.
    Ctrl-C ends the search and reports the best HPA so far.

    \b
    Examples:
      # Fewer pods with the same overload, from four weeks in Prometheus
      python -m autoscaler tune --hpa shop/web --capacity 100 --from 4w --prometheus-url http://localhost:9090 \\
        --config rules.yaml --html tune.html
    \b
      # At most one of a thousand requests above capacity, by recorded load in a file
      python -m autoscaler tune --hpa hpa.yaml --capacity 100 --pod-startup 30s --csv load.csv --max-overload 0.1%
    """  # noqa: D301  # click's mark for a paragraph that is not wrapped
    with errors_of_users():
        options = TuneOptions(
            goal=Goal(
                objective=Objective(objective),
                max_overload=max_overload,
                max_scale_events=max_scale_events,
                max_flaps=max_flaps,
            ),
            fields=fields,
            max_target=max_target * 100,
            jobs=jobs,
        )
        found = read_inputs(hpas, inputs, warm_up=True)
        if len(found.files) != 1:
            names = ", ".join(str(file.hpa.key) for file in found.files)
            raise ReplayError(f"one HPA is tuned at a time, and these are {len(found.files)}: {names}")
        if html is not None:
            _check_html(html)
        try:
            with _progress() as on_progress:
                problem = Problem(file=found.files[0], load=found.load, settings=found.settings, options=options)
                compared = compare_forecast(problem, on_progress=on_progress) if found.load.seen else None
                tuned = compared.best if compared else tune_hpa(problem, on_progress=on_progress)
        except KeyboardInterrupt:
            click.echo("interrupted before there was anything to report", err=True)
            sys.exit(_INTERRUPTED)
        if compared is not None:
            found_text = report.json(tuned, forecast=compared.json()) if output == "json" else compared.text()
        else:
            found_text = report.json(tuned) if output == "json" else report.text(tuned)
        click.echo(found_text, nl=False)
        if html is not None:
            from replay.tune.page import tuning_page

            write_page(tuning_page(tuned), html)


def _check_html(path: Path) -> None:
    """Check what can be known before a search of minutes."""
    if not path.parent.is_dir():
        raise ReplayError(f"{path} cannot be written: {path.parent} is not a directory")
    if not os.access(path.parent, os.W_OK):
        raise ReplayError(f"{path} cannot be written: Permission denied")


@contextlib.contextmanager
def _progress() -> Iterator[Callable[[Search], None]]:
    """Show the search on stderr: a bar on a terminal, else a line every 10 seconds."""
    columns = (
        TextColumn("replays"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    console = Console(stderr=True)
    printed = time.monotonic()
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=MAX_REPLAYS)

        def show(search: Search) -> None:
            nonlocal printed
            before, now = search.goal.value(search.given), search.goal.value(search.best.days)
            text = f"best so far: {now / before - 1:+.1%}" if search.best.candidate and before else "nothing better yet"
            bar.update(task, completed=search.replays, description=text)
            if not console.is_terminal and time.monotonic() - printed >= _LINE_SECONDS:
                printed = time.monotonic()
                click.echo(f"{search.replays} of at most {MAX_REPLAYS} replays, {text}", err=True)

        yield show
