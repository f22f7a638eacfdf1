"""`kubectl milliscale status`: the HPAs of a namespace or of all, with their last decisions."""

from __future__ import annotations

import contextlib
import functools
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any, Final

import click
import msgspec
import yaml
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from autoscaler.core.config import Config, Mode
from autoscaler.core.model import HPA, Condition
from autoscaler.core.status import ABLE_TO_SCALE, rfc3339
from autoscaler.ui.rows import Level, MetricBar, Row
from autoscaler.ui.rows import row as page_row
from kube.values.printable import printable
from kubectl_milliscale.cluster import Decisions, DesiredReplicas, list_hpas, not_found, split_names
from kubectl_milliscale.flags import TEXT, hpa_options
from kubectl_milliscale.kubectl import Kubectl, KubectlError

_REFRESH_SECONDS: Final = 2.0
_OUTPUTS: Final = ("wide", "json", "yaml", "name")
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


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@hpa_options
@click.option("-A", "--all-namespaces", is_flag=True, help="Show the HPAs of all namespaces.")
@click.option("-l", "--selector", type=TEXT, default="", show_default=False, help="Label selector of the HPAs.")
@click.option(
    "-o",
    "--output",
    type=TEXT,
    default="",
    show_default="a table",
    help=f"Output format: {', '.join(_OUTPUTS)}. json, yaml and name are printed once.",
)
@click.option(
    "-w/ ",
    "--watch/--no-watch",
    default=False,
    help="Keep the table current until Ctrl-C; needs a terminal.",
)
def status(
    *, names: tuple[str, ...], kubectl: Kubectl, all_namespaces: bool, selector: str, output: str, watch: bool
) -> None:
    """Show HPAs: metrics, replicas, the last decisions and what limits them.

    A bar in the column DECISIONS is a decision: its desired replicas between the lowest and the highest of the bars; a
    dot is one without a replica count. Without a pod of the autoscaler the column is empty.

    \b
    Examples:
      kubectl milliscale status -n shop --watch
      kubectl milliscale status -A -o wide
      kubectl milliscale status web -o json
    """  # noqa: D301  # click's mark for a paragraph that is not wrapped
    if output not in ("", *_OUTPUTS):
        raise click.UsageError(f"--output: {output!r} is not one of {', '.join(_OUTPUTS)}")
    console = Console()
    live = watch and output in ("", "wide")
    if live and not console.is_terminal:
        raise click.UsageError("--watch needs a terminal; `kubectl get hpa --watch` prints changes as lines")
    # Invalid HPAs are shown as such.
    logging.getLogger("autoscaler").addHandler(logging.NullHandler())
    kubectl, wanted = split_names(kubectl, names)
    namespace = "" if all_namespaces else kubectl.namespace()
    list_now = functools.partial(list_hpas, kubectl, namespace, selector=selector, names=wanted)
    show = functools.partial(table, all_namespaces=all_namespaces, wide=output == "wide")
    with contextlib.closing(Decisions(kubectl, namespace)) as decisions:
        hpas = list_now()
        missing = {*wanted} - {hpa.name for hpa in hpas}
        if missing and namespace:
            raise not_found(namespace, min(missing))
        if not hpas:
            click.echo(f"No resources found{f' in {namespace} namespace.' * bool(namespace)}", err=True)
        if output == "name":
            for hpa in hpas:
                click.echo(f"horizontalpodautoscaler.{hpa.key.group}/{hpa.name}")
            return
        if live:
            _show_live(console, hpas, list_now, decisions, show)
            return
        found = decisions.fetch()
        if output == "json":
            click.echo(msgspec.json.format(msgspec.json.encode(document(hpas, found)), indent=2).decode())
        elif output == "yaml":
            click.echo(yaml.safe_dump(document(hpas, found), sort_keys=False, allow_unicode=True), nl=False)
        elif hpas:
            lines = show(hpas, found, width=console.width if console.is_terminal else None)
            console.print(Text("\n").join(lines), soft_wrap=True)
        if decisions.problem:
            click.echo(f"Note: no decisions: {decisions.problem}", err=True)


def _show_live(
    console: Console,
    hpas: list[HPA],
    list_now: Callable[[], list[HPA]],
    decisions: Decisions,
    show: Callable[..., Iterable[Text]],
) -> None:
    """Show the table until Ctrl-C, at first of `hpas`; if a list fails, with the HPAs of the last one and a note.

    It is on the terminal's other screen, as that of `watch`: a terminal that is resized wraps lines again, and lines
    that were above the cursor could not be overwritten. The last table is printed at the end.
    """
    shown: RenderableType = Text()
    begun, notes = time.monotonic(), list[str]()
    with contextlib.suppress(KeyboardInterrupt), Live(console=console, auto_refresh=False, screen=True) as live:
        while True:
            found = decisions.fetch()
            if decisions.problem:
                notes.append(f"no decisions: {decisions.problem}")
            shown = _screen(hpas, functools.partial(show, decisions=found), console, notes)
            live.update(shown, refresh=True)
            # Of ten thousand HPAs a list takes seconds: the API server has as much time without one.
            time.sleep(max(_REFRESH_SECONDS, time.monotonic() - begun))
            begun, notes = time.monotonic(), []
            try:
                hpas = list_now()
            except KubectlError as error:
                notes.append(error.message)
    console.print(shown)


def _screen(
    hpas: Sequence[HPA], show: Callable[..., Iterable[Text]], console: Console, notes: Sequence[str]
) -> RenderableType:
    """Return the time, the notes and the table, of which rich leaves out the rows that do not fit."""
    width, height = console.size
    more = " More than fit: name some, or use -l." if len(hpas) > height - len(notes) - 3 else ""
    summary = f"{len(hpas)} {'HPA' if len(hpas) == 1 else 'HPAs'} at {datetime.now().astimezone():%H:%M:%S}."
    problems = (Text(f"Note: {note.splitlines()[0]}", style="yellow") for note in notes)
    lines = Text("\n", no_wrap=True, overflow="ellipsis").join(show(hpas[:height], width=width))
    return Group(Text(f"{summary} Ctrl-C ends.{more}", style="dim"), *problems, Text(), lines)


# --- the table and the document -------------------------------------------------------------------------------------


def document(hpas: Sequence[HPA], decisions: DesiredReplicas) -> dict[str, Any]:
    """Return the document of `-o json` and `-o yaml`, with an entry for each HPA."""
    return {"version": 1, "hpas": [_entry(hpa, decisions.get(hpa.key, ())) for hpa in hpas]}


def table(
    hpas: Sequence[HPA],
    decisions: DesiredReplicas,
    *,
    all_namespaces: bool,
    wide: bool,
    width: int | None = None,
    now: float | None = None,
) -> Iterator[Text]:
    """Yield the lines of the table: the headings, and one for each HPA. Ten thousand take two seconds.

    Args:
        hpas: the rows.
        decisions: the last ones.
        all_namespaces: whether the namespace is shown.
        wide: whether the mode and the condition's message are shown. Then lines may be longer than the terminal's.
        width: of the terminal, on a narrow one METRICS is cut off, and columns are left out; None: as long as they are.
        now: seconds since the epoch.
    """
    now = time.time() if now is None else now
    hidden = {*(() if all_namespaces else ("NAMESPACE",)), *(() if wide else ("MODE", "MESSAGE"))}
    rows = [_cells(hpa, decisions.get(hpa.key, ()), now) for hpa in hpas]
    names = [name for name in (rows[0] if rows else ()) if name not in hidden]
    columns = {name: [Text(name, style="bold"), *(cells[name] for cells in rows)] for name in names}
    widths = {name: max(cell.cell_len for cell in column) for name, column in columns.items()}
    if width is not None and not wide:
        _fit(widths, width)
    for index in range(len(rows) + 1):
        line = Text()
        for name, column_width in widths.items():
            cell = columns[name][index]
            cell.truncate(column_width, overflow="ellipsis", pad=True)
            line.append_text(cell).append(" " * _GAP)
        line.rstrip()
        yield line


def row_of(hpa: HPA) -> Row:
    """Return the texts about an HPA that the autoscaler's page shows, too."""
    return page_row(hpa, hpa.overrides.mode or Mode.ACT, Config(), is_foreign=False, is_owned=True)


def _cells(hpa: HPA, decisions: Sequence[int | None], now: float) -> dict[str, Text]:
    """Return the texts of a row by column."""
    row = row_of(hpa)
    reason, level, message = status_of(row)
    replicas = row.replicas
    cells = {
        "NAMESPACE": Text(hpa.namespace),
        "NAME": Text(hpa.key.qualified_name),
        "REFERENCE": Text(row.target),
        _METRICS: _metrics_text(row.metrics),
        "MIN": Text("" if replicas is None else str(replicas.minimum)),
        "MAX": Text("" if replicas is None else str(replicas.maximum)),
        "REPLICAS": _replicas_text(row),
        "DECISIONS": Text(sparkline(decisions)),
        "LAST SCALE": Text(_since(hpa.status.last_scale_ms, now)),
        "STATUS": Text(reason, style=_STYLES[level]),
        "MODE": Text(", ".join(badge.text for badge in row.modes)),
        "MESSAGE": Text(message),
    }
    for cell in cells.values():
        cell.plain = _printable(cell.plain)
    return cells


def _fit(widths: dict[str, int], width: int) -> None:
    """Cut off METRICS, and leave columns out, until all together have the width of the terminal."""
    for name in (*_LEFT_OUT_FIRST, *_LEFT_OUT_NEXT):
        surplus = sum(widths.values()) + _GAP * (len(widths) - 1) - width
        if name == _LEFT_OUT_NEXT[0] and surplus > 0:
            shorter = max(widths[_METRICS] - surplus, min(widths[_METRICS], _LEAST_METRICS))
            surplus -= widths[_METRICS] - shorter
            widths[_METRICS] = shorter
        if surplus > 0:
            del widths[name]


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


def _entry(hpa: HPA, decisions: Sequence[int | None]) -> dict[str, Any]:
    row = row_of(hpa)
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
        "decisions": list(decisions),
    }
