"""The table of `status`: one line an HPA. The same values as a document for programs."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rich.text import Text

from autoscaler.core.config import Config, Mode
from autoscaler.core.model import HPA, Condition
from autoscaler.core.status import ABLE_TO_SCALE, rfc3339
from autoscaler.ui.rows import Level, MetricBar, Row
from autoscaler.ui.rows import row as row_of
from kube.values.printable import printable

_BARS: Final = "▁▂▃▄▅▆▇█"
_NO_COUNT: Final = "·"
_STYLES: Final[dict[Level, str]] = {"bad": "bold red", "warn": "yellow", "ok": "green", "": ""}
_WORST_FIRST: Final[tuple[Level, ...]] = ("bad", "warn", "ok", "")
_GAP: Final = 2
_LEFT_OUT_FIRST: Final = ("REFERENCE", "LAST SCALE")
_METRICS: Final = "METRICS"
_LEAST_METRICS: Final = 22
_LEFT_OUT_NEXT: Final = ("MIN", "MAX", _METRICS, "DECISIONS")
"""Columns that a narrow terminal does not show; METRICS is cut off between the first ones and the next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusRow:
    """One HPA, with the desired replicas of its last decisions, oldest first."""

    hpa: HPA
    decisions: Sequence[int | None] = ()

    @property
    def row(self) -> Row:
        """The texts that the autoscaler's page shows, too."""
        mode = self.hpa.overrides.mode or Mode.ACT
        return row_of(self.hpa, mode, Config(), is_foreign=False, is_owned=True)


def document(rows: Sequence[StatusRow]) -> dict[str, Any]:
    """Return the document of `-o json` and `-o yaml`, with an entry for each HPA."""
    return {"version": 1, "hpas": [_entry(each) for each in rows]}


class _Column:
    """A column, and its width in characters."""

    def __init__(self, heading: str, cells: Sequence[Text]) -> None:
        for cell in cells:
            cell.plain = _printable(cell.plain)
        self.heading = heading
        self.cells = cells
        self.width = max([len(heading), *(cell.cell_len for cell in cells)])


def table(
    rows: Sequence[StatusRow], *, all_namespaces: bool, wide: bool, width: int | None = None, now: float | None = None
) -> Iterator[Text]:
    """Yield the lines of the table: the headings, and one for each HPA. Ten thousand take two seconds.

    Args:
        rows: the HPAs.
        all_namespaces: whether the namespace is shown.
        wide: whether the mode and the condition's message are shown. Then lines may be longer than the terminal's.
        width: of the terminal, on a narrow one METRICS is cut off, and columns are left out; None: as long as they are.
        now: seconds since the epoch.
    """
    columns = _columns(rows, all_namespaces=all_namespaces, wide=wide, now=now)
    if width is not None and not wide:
        columns = _fitted(columns, width)
    for index in range(-1, len(rows)):
        line = Text()
        for column in columns:
            cell = column.cells[index] if index >= 0 else Text(column.heading, style="bold")
            cell.truncate(column.width, overflow="ellipsis", pad=True)
            line.append_text(cell).append(" " * _GAP)
        line.rstrip()
        yield line


def _columns(rows: Sequence[StatusRow], *, all_namespaces: bool, wide: bool, now: float | None) -> list[_Column]:
    now = time.time() if now is None else now
    texts = [each.row for each in rows]
    states = [status_of(row) for row in texts]
    columns = [
        _Column("NAMESPACE", [Text(each.hpa.namespace) for each in rows]),
        _Column("NAME", [Text(each.hpa.key.qualified_name) for each in rows]),
        _Column("REFERENCE", [Text(row.target) for row in texts]),
        _Column(_METRICS, [_metrics_text(row.metrics) for row in texts]),
        _Column("MIN", [Text("" if row.replicas is None else str(row.replicas.minimum)) for row in texts]),
        _Column("MAX", [Text("" if row.replicas is None else str(row.replicas.maximum)) for row in texts]),
        _Column("REPLICAS", [_replicas_text(row) for row in texts]),
        _Column("DECISIONS", [Text(sparkline(each.decisions)) for each in rows]),
        _Column("LAST SCALE", [Text(_since(each.hpa.status.last_scale_ms, now)) for each in rows]),
        _Column("STATUS", [Text(reason, style=_STYLES[level]) for reason, level, _ in states]),
        _Column("MODE", [Text(", ".join(badge.text for badge in row.modes)) for row in texts]),
        _Column("MESSAGE", [Text(message) for _, _, message in states]),
    ]
    hidden = {*(() if all_namespaces else ("NAMESPACE",)), *(() if wide else ("MODE", "MESSAGE"))}
    return [column for column in columns if column.heading not in hidden]


def _fitted(columns: list[_Column], width: int) -> list[_Column]:
    """Cut off METRICS, and leave columns out, until all together have the width."""

    def surplus() -> int:
        return sum(column.width + _GAP for column in columns) - _GAP - width

    for heading in (*_LEFT_OUT_FIRST, *_LEFT_OUT_NEXT):
        if heading == _LEFT_OUT_NEXT[0]:
            metrics = next(column for column in columns if column.heading == _METRICS)
            metrics.width = max(metrics.width - max(surplus(), 0), min(metrics.width, _LEAST_METRICS))
        if surplus() > 0:
            columns = [column for column in columns if column.heading != heading]
    return columns


def sparkline(counts: Sequence[int | None]) -> str:
    """Return a bar for each count, from the lowest to the highest of them, and a dot for None."""
    known = [count for count in counts if count is not None]
    if not known:
        return _NO_COUNT * len(counts)
    low, high = min(known), max(known)
    step = max(high - low, 1) / (len(_BARS) - 1)
    return "".join(_NO_COUNT if count is None else _BARS[round((count - low) / step)] for count in counts)


def status_of(row: Row) -> tuple[str, Level, str]:
    """Return what a reader should know first, its level, and the message: a condition's reason, or a mode."""
    if row.hpa.problem:
        return "Invalid", "bad", row.hpa.problem
    paused = next((badge for badge in row.modes if badge.text.startswith("paused")), None)
    for level in _WORST_FIRST:
        found = [condition for condition, its_level in row.conditions if its_level == level]
        if level == "warn" and paused is not None:
            return paused.text.capitalize(), level, paused.title
        if found:
            condition = _first(found)
            return condition.reason, level, condition.message
    return "", "", "; ".join(row.notes)


def _first(conditions: Sequence[Condition]) -> Condition:
    return next((each for each in conditions if each.type == ABLE_TO_SCALE), conditions[0])


def _printable(text: str) -> str:
    """Return as many characters, without those that control a terminal; texts of the cluster may have any."""
    return printable("".join(" " if one.isspace() else one for one in text))


def _metrics_text(metrics: Sequence[MetricBar]) -> Text:
    """Return values and targets; the names are at the end of each, where a narrow terminal cuts them off."""
    text = Text()
    for metric in metrics:
        text.append(", " if text else "")
        text.append(metric.current, style=_STYLES[metric.level])
        text.append(f" / {metric.target} ({metric.name})")
    return text


def _replicas_text(row: Row) -> Text:
    replicas = row.replicas
    if replicas is None:
        return Text()
    if replicas.desired == replicas.current:
        return Text(str(replicas.current))
    return Text(f"{replicas.current} -> {replicas.desired}", style="bold")


def _since(time_ms: int | None, now: float) -> str:
    """Return how long ago a time was, as kubectl does: `45s`, `5m3s`, `3h`, `2d`."""
    if time_ms is None:
        return "-"
    seconds = max(int(now - time_ms // 1000), 0)
    if seconds < 120:
        return f"{seconds}s"
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if minutes < 10:
        return f"{minutes}m{seconds % 60}s" if seconds % 60 else f"{minutes}m"
    if hours < 3:
        return f"{minutes}m"
    return f"{hours}h" if days < 2 else f"{days}d"


def _entry(each: StatusRow) -> dict[str, Any]:
    hpa, row = each.hpa, each.row
    return {
        "apiVersion": hpa.api_version,
        "namespace": hpa.namespace,
        "name": hpa.name,
        "target": row.target,
        "problem": hpa.problem,
        "minReplicas": hpa.spec.min_replicas,
        "maxReplicas": hpa.spec.max_replicas,
        "currentReplicas": hpa.status.current_replicas,
        "desiredReplicas": hpa.status.desired_replicas,
        "lastScaleTime": "" if hpa.status.last_scale_ms is None else rfc3339(hpa.status.last_scale_ms),
        "metrics": [{"name": one.name, "current": one.current, "target": one.target} for one in row.metrics],
        "conditions": [
            {"type": one.type, "status": one.status, "reason": one.reason, "message": one.message}
            for one in hpa.status.conditions
        ],
        # The desired replicas of the last ones, oldest first; null where no replica count was found.
        "decisions": list(each.decisions),
    }
