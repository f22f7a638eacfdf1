"""What forecasts save on the traces of the tests: `python -m bench.forecast`.

Each trace is scaled to a mean of 20 pods, which are ready 5 minutes after their start. Its first two thirds are
history only, its last third is judged, with the same defaults for all. The first table has the pod-hours saved at
equal overload: both sides have the target whose overload is that of a plain HPA at 70 % of what a pod can serve, or
0.001 % of the load, if that is less. The second one has events in two traces: the HPA with forecasts at its raised
target against a plain one at 70 %.
"""

from __future__ import annotations

import dataclasses
import os
import statistics
from array import array
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import click
import msgspec

from adapter.forecasts.options import ForecastOptions
from autoscaler.core.model import HPA
from autoscaler.objects.hpa import parse_hpa
from bench.figures import show, write_lines
from bench.replay import TRACES
from replay.csv_source import read_csv
from replay.forecast import with_forecasts
from replay.load import Load, Series
from replay.simulation import Settings, replay_hpa
from replay.tune.workers import Pool

_COLUMNS: Final = {
    "ms_db_app": "requests_per_second",
    "ms_db_node": "requests_per_second",
    "ms_ingress": "bytes_per_minute",
    "servegen_mid": "requests_per_second",
    "alibaba_cpu": "cpu_percent",
}
_STARTUP_MS: Final = 300_000
_OPTIONS: Final = ForecastOptions(horizon=300.0)
_PODS: Final = 20
_PLAIN_TARGET: Final = 0.7
_LEAST_OVERLOAD: Final = 1e-5
_STEPS: Final = 7
_DAY: Final = 1440
_MINUTE_MS: Final = 60_000


class SavedRow(msgspec.Struct, kw_only=True):
    """One trace; shares of pod-hours and of the load."""

    trace: str
    days: float
    saved: str
    """At equal overload, with the default gate."""
    saved_without_gate: str
    overload: str
    plain_target: str
    target: str
    overload_at_70: str
    """With forecasts at the plain HPA's target."""
    more_pods_at_70: str
    served_days: str


class EventRow(msgspec.Struct, kw_only=True):
    """One event in a trace."""

    trace: str
    event: str
    target: str
    plain_overload: str
    overload: str
    times: float
    pods: float
    """As a multiple of the plain HPA's."""
    passes: str


def _judged(trace: str, change: Callable[[list[float], int], None] | None = None) -> tuple[Load, float]:
    """Return the load of a trace, of which the last third is judged, and what a pod can serve."""
    path = TRACES / f"{trace}.csv.gz"
    load = read_csv(path, [_hpa(_COLUMNS[trace], 1.0).spec.metrics[0].source])
    series = load.series[_COLUMNS[trace]]
    values = list(series.values)
    first = len(values) * 2 // 3
    capacity = statistics.fmean(values) / _PODS
    if change is not None:
        change(values, first)
    changed = Series(times_ms=series.times_ms, values=array("d", values), hold_ms=_MINUTE_MS)
    start_ms = series.times_ms[first]
    return dataclasses.replace(load, series={_COLUMNS[trace]: changed}, start_ms=start_ms), capacity


def _hpa(metric: str, target: float) -> HPA:
    return parse_hpa(
        {
            "metadata": {"name": "web", "namespace": "shop"},
            "spec": {
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
                "minReplicas": 1,
                "maxReplicas": 10_000,
                "metrics": [
                    {
                        "type": "External",
                        "external": {
                            "metric": {"name": metric},
                            "target": {"type": "AverageValue", "averageValue": f"{round(target * 1000)}m"},
                        },
                    }
                ],
            },
        }
    )


def _figures(trace: str, load: Load, capacity: float, target: float) -> tuple[float, float]:
    """Return (pod-hours, share of the load above the ready pods) of an HPA; `target` as a share of the capacity."""
    metric = _COLUMNS[trace]
    settings = Settings(pod_startup_ms=_STARTUP_MS, capacity={metric: capacity})
    summary = replay_hpa(_hpa(metric, target * capacity), load, settings, sentences=False).summary
    return summary.pod_hours, summary.overload_ratio or 0.0


def _best(trace: str, load: Load, capacity: float, limit: float) -> tuple[float, float]:
    """Return (target, pod-hours) of the highest target with at most this overload, to a half of a percent."""
    low, high, pods = 0.4, 1.0, 0.0
    for _ in range(_STEPS):
        middle = (low + high) / 2
        hours, overload = _figures(trace, load, capacity, middle)
        if overload <= limit:
            low, pods = middle, hours
        else:
            high = middle
    return low, pods or _figures(trace, load, capacity, low)[0]


def saved_row(trace: str) -> SavedRow:
    """Measure one trace."""
    load, capacity = _judged(trace)
    plain_pods, plain_overload = _figures(trace, load, capacity, _PLAIN_TARGET)
    limit = max(plain_overload, _LEAST_OVERLOAD)
    plain_target, plain_best = _best(trace, load, capacity, limit)
    ungated = with_forecasts(load, {_COLUMNS[trace]: dataclasses.replace(_OPTIONS, gate=0.0)})
    gated = with_forecasts(load, {_COLUMNS[trace]: _OPTIONS})
    target, best = _best(trace, ungated, capacity, limit)
    saved = without_gate = 1 - best / plain_best
    if gated.seen[_COLUMNS[trace]].values != ungated.seen[_COLUMNS[trace]].values:
        target, best = _best(trace, gated, capacity, limit)
        saved = 1 - best / plain_best
    same_pods, same_overload = _figures(trace, gated, capacity, _PLAIN_TARGET)
    forecast = gated.forecasts[0]
    return SavedRow(
        trace=trace,
        days=round((load.end_ms - load.start_ms) / _MINUTE_MS / _DAY, 1),
        saved=f"{saved:.1%}",
        saved_without_gate=f"{without_gate:.1%}",
        overload=f"{limit:.4%}",
        plain_target=f"{plain_target:.1%}",
        target=f"{target:.1%}",
        overload_at_70=f"{same_overload:.4%}",
        more_pods_at_70=f"{same_pods / plain_pods - 1:+.1%}",
        served_days=f"{sum(each.holds for each in forecast.judgements)} of {len(forecast.judgements)}",
    )


def _times(factor: float, hours: float | None = None) -> Callable[[list[float], int], None]:
    """Return a change of the load from 13:00 of the second judged day on, for some hours or to the end."""

    def change(values: list[float], first: int) -> None:
        begin = (first // _DAY + 2) * _DAY + 13 * 60
        end = len(values) if hours is None else begin + round(hours * 60)
        values[begin:end] = [each * factor for each in values[begin:end]]

    return change


def _lost_day(values: list[float], first: int) -> None:
    values[first - 2 * _DAY : first - _DAY] = [float("nan")] * _DAY


def _bad_sample(values: list[float], first: int) -> None:
    values[(first // _DAY - 1) * _DAY + 13 * 60] *= 100


_EVENTS: Final = {
    "none": _times(1.0),
    "level x2, stays": _times(2.0),
    "level x0.5, stays": _times(0.5),
    "outage of 4 h": _times(0.0, 4),
    "spike x5, 10 min": _times(5.0, 1 / 6),
    "a day of x0.4": _times(0.4, 24),
    "a day of history lost": _lost_day,
    "a bad sample x100": _bad_sample,
}


def _clock_change(trace: str) -> tuple[Load, float]:
    """Return a trace whose load follows Berlin's clock, with the change to summer time on the second judged day."""
    load, capacity = _judged(trace)
    key = _COLUMNS[trace]
    values = list(load.series[key].values)
    change = (len(values) * 2 // 3 // _DAY + 2) * _DAY + 60
    values = values[:change] + values[change + 60 :]
    start_ms = round(datetime(2018, 3, 25, 1, tzinfo=UTC).timestamp() * 1000) - change * _MINUTE_MS
    times = array("q", range(start_ms, start_ms + len(values) * _MINUTE_MS, _MINUTE_MS))
    series = Series(times_ms=times, values=array("d", values), hold_ms=_MINUTE_MS)
    first = load.start_ms - load.series[key].times_ms[0]
    return dataclasses.replace(load, series={key: series}, start_ms=start_ms + first, end_ms=times[-1]), capacity


def event_row(trace: str, event: str, target: float) -> EventRow:
    """Measure one event; `target` is what `saved_row` has found without it."""
    options = _OPTIONS
    if event in _EVENTS:
        load, capacity = _judged(trace, _EVENTS[event])
    else:
        load, capacity = _clock_change(trace)
        options = dataclasses.replace(options, timezone="UTC" if "UTC" in event else "Europe/Berlin")
    plain_pods, plain_overload = _figures(trace, load, capacity, _PLAIN_TARGET)
    pods, overload = _figures(trace, with_forecasts(load, {_COLUMNS[trace]: options}), capacity, target)
    times = overload / max(plain_overload, _LEAST_OVERLOAD)
    return EventRow(
        trace=trace,
        event=event,
        target=f"{target:.1%}",
        plain_overload=f"{plain_overload:.4%}",
        overload=f"{overload:.4%}",
        times=round(times, 2),
        pods=round(pods / plain_pods, 3),
        passes="yes" if times <= 1.5 and pods <= 1.2 * plain_pods else "no",
    )


def _rows(pool: Pool, targets: dict[str, float]) -> Iterator[EventRow]:
    events = [*_EVENTS, "clock change", "clock change, timezone left at UTC"]
    futures = [
        pool.submit(event_row, trace, event, targets[trace])
        for trace in ("ms_db_app", "ms_db_node")
        for event in events
    ]
    for future in futures:
        yield future.result()


@click.command()
@click.option("--trace", "traces", multiple=True, type=click.Choice(list(_COLUMNS)), show_default="all")
@click.option("--jobs", default=os.cpu_count() or 1, show_default="one per core")
@click.option("--output", type=click.Path(path_type=Path), default="bench-forecast.jsonl", show_default=True)
def main(*, traces: tuple[str, ...], jobs: int, output: Path) -> None:
    """Measure what forecasts save on the traces of the tests, and what events cost; some ten minutes of CPU."""
    with Pool(jobs=jobs) as pool:
        futures = [pool.submit(saved_row, trace) for trace in traces or _COLUMNS]
        rows = [future.result() for future in futures]
        show("saved at equal overload", rows)
        saved = [float(row.saved.rstrip("%")) for row in rows]
        click.echo(f"mean saved: {statistics.fmean(saved):.1f} %")
        write_lines(output, rows)
        targets = {row.trace: float(row.target.rstrip("%")) / 100 for row in rows}
        if {"ms_db_app", "ms_db_node"} <= targets.keys():
            events = list(_rows(pool, targets))
            show("events, at the raised target", events)
            write_lines(output, events)


if __name__ == "__main__":
    main()
