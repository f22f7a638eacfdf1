"""The demo's screen: load, metric against target, replicas and the last events, live or as plain lines.

Drawing is pure: a `Picture` goes in, something that rich can print comes out. The live screen redraws in place; where
the output is no terminal (a pipe, CI) a line per HPA is printed every few seconds, and each event once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rich.console import Group, RenderableType
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from kube.quantity import Quantity, QuantityError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from playground.scoreboard import Tally
    from playground.views import Event, Hpa

__all__ = ["HpaPicture", "Picture", "draw", "event_line", "plain_lines", "summary"]

_BLOCKS: Final = "▁▂▃▄▅▆▇█"
_EVENTS_SHOWN: Final = 8
_TEXT_COLUMNS: Final = {"HPA", "", "metric", "replicas"}


@dataclass(frozen=True, slots=True, kw_only=True)
class HpaPicture:
    """An HPA with what is around it: its Deployment, the load now, and the load of the last seconds (oldest first)."""

    hpa: Hpa
    load: float
    history: Sequence[float]
    replicas: int
    ready: int
    tally: Tally


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """Everything that is on the screen. `limit` is when the demo ends, in seconds; None where it does not."""

    elapsed: float
    limit: float | None
    hpas: Sequence[HpaPicture]
    events: Sequence[Event]


def draw(picture: Picture) -> RenderableType:
    """The live screen; 80 columns are enough for it."""
    until = "Ctrl-C ends it" if picture.limit is None else f"ends after {picture.limit:.0f} s"
    table = _table("HPA", "load", "", "metric", "now / target", "replicas", "up/down")
    for one in picture.hpas:
        table.add_row(
            Text(one.hpa.name, "bold"),
            f"{one.load:.0f}/s",
            Text(_spark(one.history), "cyan"),
            one.hpa.metric,
            f"{_decimal(one.hpa.value)} / {_decimal(one.hpa.goal)}",
            _replicas(one),
            f"{one.tally.ups}/{one.tally.downs}",
        )
    problems = [Text(f"{one.hpa.name}: {one.hpa.problem}", "red") for one in picture.hpas if one.hpa.problem]
    events = [Text(event_line(event), no_wrap=True, overflow="ellipsis") for event in picture.events[-_EVENTS_SHOWN:]]
    return Group(
        Rule(f"milliscale · {picture.elapsed:.0f} s · {until}", align="left"),
        table,
        *problems,
        Rule("last events", align="left", style="dim"),
        *(events or [Text("none yet", "dim")]),
    )


def plain_lines(picture: Picture) -> list[str]:
    """The same in lines, without the events."""
    return [
        f"{picture.elapsed:4.0f} s  {one.hpa.name:8} load {one.load:.0f}/s, "
        f"{one.hpa.metric} {_decimal(one.hpa.value)} of {_decimal(one.hpa.goal)}, "
        f"{one.replicas} replicas, {one.ready} ready" + (f"; {one.hpa.problem}" if one.hpa.problem else "")
        for one in picture.hpas
    ]


def event_line(event: Event) -> str:
    """An event in one line."""
    return f"{event.about}: {event.reason}: {event.message}"


def summary(hpas: Sequence[tuple[Hpa, Tally, str]]) -> RenderableType:
    """What happened, at the end: per HPA the tally, and the largest value that its metric had."""
    table = _table("HPA", "metric", "target", "largest", "scaled up", "scaled down", "pods")
    for hpa, tally, largest in hpas:
        table.add_row(
            Text(hpa.name, "bold" if tally.swung else "bold red"),
            hpa.metric,
            _decimal(hpa.goal),
            _decimal(largest),
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


def _decimal(quantity: str) -> str:
    """A quantity as people write numbers: 87.5 for 87500m."""
    try:
        return f"{Quantity.parse(quantity).as_float():.4g}"
    except QuantityError:
        return quantity or "-"


def _spark(history: Sequence[float]) -> str:
    top = max(history, default=0.0)
    if top <= 0:
        return ""
    return "".join(_BLOCKS[round(value / top * (len(_BLOCKS) - 1))] for value in history)


def _replicas(one: HpaPicture) -> Text:
    starting = max(0, one.replicas - one.ready)
    bar = Text("■" * min(one.ready, one.replicas), "green")
    bar.append("■" * starting, "yellow")
    bar.append("·" * max(0, one.hpa.maximum - one.replicas), "dim")
    bar.append(f" {one.replicas}")
    return bar
