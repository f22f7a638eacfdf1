"""The demo's screen: load, metric against target, replicas and the last events, live or as plain lines.

Drawing is pure: a `Picture` goes in, something that rich can print comes out. The live screen redraws in place; where
the output is no terminal (a pipe, CI) a line per HPA is printed every few seconds, and each event once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rich import box
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

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
    unit: str
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
    hint: str
    """A command that a second terminal can run."""


def draw(picture: Picture) -> RenderableType:
    """The live screen."""
    until = "Ctrl-C ends it" if picture.limit is None else f"ends after {picture.limit:.0f} s"
    table = Table(box=box.SIMPLE_HEAD, expand=True)
    for heading in ("HPA", "load", "", "metric", "now / target", "replicas", "up / down"):
        table.add_column(heading, justify="left" if heading in _TEXT_COLUMNS else "right", no_wrap=True)
    for one in picture.hpas:
        table.add_row(
            Text(one.hpa.name, "bold"),
            f"{one.load:.0f} {one.unit}",
            Text(_spark(one.history), "cyan"),
            one.hpa.metric,
            f"{one.hpa.value or '-'} / {one.hpa.goal}",
            _replicas(one),
            f"{one.tally.ups} / {one.tally.downs}",
        )
    problems = [Text(f"{one.hpa.name}: {one.hpa.problem}", "red") for one in picture.hpas if one.hpa.problem]
    events = [Text(event_line(event), no_wrap=True, overflow="ellipsis") for event in picture.events[-_EVENTS_SHOWN:]]
    return Group(
        Panel(Group(table, *problems), title=f"milliscale · {picture.elapsed:.0f} s · {until}", title_align="left"),
        Panel(Group(*(events or [Text("none yet", "dim")])), title="last events", title_align="left"),
        Text("In another terminal:", "dim"),
        Text(picture.hint, overflow="fold"),
    )


def plain_lines(picture: Picture) -> list[str]:
    """The same in lines, without the events and the hint."""
    return [
        f"{picture.elapsed:4.0f} s  {one.hpa.name:8} load {one.load:4.0f} {one.unit:10}  "
        f"{one.hpa.metric} {one.hpa.value or '-'} / {one.hpa.goal}  replicas {one.replicas} ({one.ready} ready)"
        + (f"  {one.hpa.problem}" if one.hpa.problem else "")
        for one in picture.hpas
    ]


def event_line(event: Event) -> str:
    """An event in one line."""
    return f"{event.about}: {event.reason}: {event.message}"


def summary(hpas: Sequence[tuple[Hpa, Tally, str]]) -> RenderableType:
    """What happened, at the end: per HPA the tally, and the largest value that its metric had."""
    table = Table(box=box.SIMPLE_HEAD, title="What the autoscaler did", title_justify="left")
    for heading in ("HPA", "metric", "target", "largest", "scaled up", "scaled down", "replicas held"):
        table.add_column(heading, justify="left" if heading in _TEXT_COLUMNS else "right", no_wrap=True)
    for hpa, tally, largest in hpas:
        table.add_row(
            Text(hpa.name, "bold" if tally.swung else "bold red"),
            hpa.metric,
            hpa.goal,
            largest or "-",
            f"{tally.ups} times",
            f"{tally.downs} times",
            f"{tally.lowest} to {tally.highest}",
        )
    return table


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
