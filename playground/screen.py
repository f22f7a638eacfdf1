"""The demo's output: load, metric and target, replicas and the last events, as a live screen or as lines.

Rendering is pure: from a `Picture` to something that rich can print.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rich.console import Group, RenderableType
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from kube.values.quantity import Quantity, QuantityError
from playground.scoreboard import Standing
from playground.views import Event

_BLOCKS: Final = "▁▂▃▄▅▆▇█"
_EVENTS_SHOWN: Final = 8
_TEXT_COLUMNS: Final = {"HPA", "", "metric", "replicas"}


@dataclass(frozen=True, slots=True)
class Row:
    """An HPA's standing, and its load in units per second now (None: it has none) and before, oldest first."""

    standing: Standing
    load: float | None
    history: Sequence[float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """The content of the screen. `limit` is the duration of the demo in seconds, or None."""

    elapsed: float
    limit: float | None
    rows: Sequence[Row]
    events: Sequence[Event]


def draw(picture: Picture) -> RenderableType:
    """Return the live screen, which needs 80 columns."""
    until = "Ctrl-C ends it" if picture.limit is None else f"ends after {picture.limit:.0f} s"
    table = _table("HPA", "load", "", "metric", "now / target", "replicas", "up/down")
    for row in picture.rows:
        hpa, tally = row.standing.hpa, row.standing.tally
        table.add_row(
            Text(hpa.name, "bold"),
            _rate(row),
            Text(_spark(row.history), "cyan"),
            hpa.metric,
            f"{_decimal(hpa.value)} / {_decimal(hpa.goal)}",
            _replicas(row.standing),
            f"{tally.ups}/{tally.downs}",
        )
    hpas = [row.standing.hpa for row in picture.rows]
    problems = [Text(f"{hpa.name}: {hpa.problem}", "red") for hpa in hpas if hpa.problem]
    events = [Text(event_line(event), no_wrap=True, overflow="ellipsis") for event in picture.events[-_EVENTS_SHOWN:]]
    return Group(
        Rule(f"milliscale · {picture.elapsed:.0f} s · {until}", align="left"),
        table,
        *problems,
        Rule("last events", align="left", style="dim"),
        *(events or [Text("none yet", "dim")]),
    )


def plain_lines(picture: Picture) -> list[str]:
    """Return a line per HPA. Of a problem it has the reason; its event has the rest."""
    lines = []
    for row in picture.rows:
        hpa, deployment = row.standing.hpa, row.standing.deployment
        lines.append(
            f"{picture.elapsed:4.0f} s  {hpa.name:8} load {_rate(row)}, "
            f"{hpa.metric} {_decimal(hpa.value)} of {_decimal(hpa.goal)}, "
            f"{deployment.spec.replicas} replicas, {deployment.status.ready_replicas} ready"
            + (f"; {hpa.problem.partition(':')[0]}" if hpa.problem else "")
        )
    return lines


def event_line(event: Event) -> str:
    """Return an event as a line."""
    again = f" ({event.count} times)" if event.count > 1 else ""
    return f"{event.about}: {event.reason}{again}: {event.message}"


def summary(standings: Sequence[Standing]) -> RenderableType:
    """Return the summary at the end."""
    table = _table("HPA", "metric", "target", "largest", "scaled up", "scaled down", "pods")
    for standing in standings:
        hpa, tally = standing.hpa, standing.tally
        table.add_row(
            Text(hpa.name, "bold" if tally.swung else "bold red"),
            hpa.metric,
            _decimal(hpa.goal),
            _decimal(tally.largest),
            f"{tally.ups} x",
            f"{tally.downs} x",
            f"{tally.lowest} to {tally.highest}",
        )
    return table


def _table(*headings: str) -> Table:
    table = Table(box=None, expand=True, padding=(0, 1, 0, 0))
    for heading in headings:
        table.add_column(heading, justify="left" if heading in _TEXT_COLUMNS else "right", no_wrap=True)
    return table


def _rate(row: Row) -> str:
    return "-" if row.load is None else f"{row.load:.0f}/s"


def _decimal(quantity: str) -> str:
    """Return a quantity as a decimal number: 87.5 for 87500m."""
    try:
        return f"{Quantity.parse(quantity).as_float():.4g}"
    except QuantityError:
        return quantity or "-"


def _spark(history: Sequence[float]) -> str:
    top = max(history, default=0.0)
    if top <= 0:
        return ""
    return "".join(_BLOCKS[round(value / top * (len(_BLOCKS) - 1))] for value in history)


def _replicas(standing: Standing) -> Text:
    wanted, ready = standing.deployment.spec.replicas, standing.deployment.status.ready_replicas
    bar = Text()
    bar.append("■" * min(ready, wanted), "green")
    bar.append("■" * max(0, wanted - ready), "yellow")
    bar.append("·" * max(0, standing.hpa.spec.max_replicas - wanted), "dim")
    bar.append(f" {wanted}")
    return bar
