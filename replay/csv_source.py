"""Recorded load from CSV files, gzipped or not: a column `timestamp`, and one for each metric.

Times are seconds since the Unix epoch, or RFC 3339. A row counts until the next one, but at most one and a half times
the median distance of rows, or 30 s if that is longer; an empty cell is a gap.
"""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import math
import statistics
import zlib
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, TextIO

from autoscaler.core.model import MetricSource, PodsMetric, ResourceMetric
from autoscaler.core.status import rfc3339
from autoscaler.objects.decoding import time_ms
from kube.api.objects import ParseError
from replay.load import Load, ReplayError, Series, check_not_counter, hold_ms, metric_key, metric_name

TIMESTAMP: Final = "timestamp"
REPLICAS_COLUMNS: Final = ("kube_deployment_status_replicas", "kube_statefulset_status_replicas", "replicas")
READY_COLUMNS: Final = (
    "kube_deployment_status_replicas_ready",
    "kube_deployment_status_replicas_available",
    "kube_statefulset_status_replicas_ready",
    "ready",
)
_MAX_SECONDS: Final = 10**11
"""A larger time is in milliseconds: this is the year 5138."""
_ONE_ROW_MS: Final = 60_000
"""How long the row of a file with only one counts."""
_GZIP: Final = b"\x1f\x8b"
_MAX_VALUE: Final = 9.2e15
"""The metrics APIs have thousandths in 64 bits."""
_TOTALS: Final = (PodsMetric, ResourceMetric)
"""Metrics of pods; the value of an object or an external system may be negative."""
_MAX_LINE: Final = 1 << 20
_MAX_SHOWN: Final = 40


def read_csv(
    path: Path,
    metrics: Iterable[MetricSource],
    *,
    start: Callable[[int], int] | None = None,
    to_ms: int | None = None,
) -> Load:
    """Read the load of metrics, whose columns have the names `metric_key` or `metric_name`.

    `start` returns the beginning, given the end; without it and the end, all rows count.

    Raises:
        ReplayError: the file cannot be read; the message names it and the line.
    """
    try:
        with path.open("rb") as raw:
            zipped = raw.read(len(_GZIP)) == _GZIP
            raw.seek(0)
            with gzip.open(raw) if zipped else raw as data:
                text = io.TextIOWrapper(data, "utf-8-sig", newline="")
                table = _Table(path, text, list(metrics))
                table.read()
    except UnicodeDecodeError as error:
        raise ReplayError(f"{path}: this is not a CSV file in UTF-8, but binary data") from error
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ReplayError(f"{path}: the gzip file is damaged or cut off: {error}") from error
    except OSError as error:
        raise ReplayError(f"{path}: {error.strerror or error}") from error
    return table.load(start, to_ms)


class _Table:
    """The columns of a file that are used."""

    def __init__(self, path: Path, text: TextIO, metrics: Sequence[MetricSource]) -> None:
        self._path = path
        self._rows = csv.reader(_lines(path, text), strict=True)
        self._metrics = metrics
        self._times_ms: array[int] = array("q")
        self._names: dict[str, str] = {}
        """{`metric_key`: the metric's column}."""
        self._columns: dict[str, array[float]] = {}

    def read(self) -> None:
        """Read all rows."""
        try:
            header = [name.strip() for name in next(self._rows, [])]
            if not any(header):
                raise ReplayError(f"{self._path}: the file is empty: write a line of column names first")
            time_index = self._time_index(header)
            self._names = {metric_key(each): self._column(each, header) for each in self._metrics}
            recorded = [name for name in (*REPLICAS_COLUMNS, *READY_COLUMNS) if name in header]
            totals = {self._names[metric_key(each)] for each in self._metrics if isinstance(each, _TOTALS)}
            self._columns = {name: array("d") for name in (*self._names.values(), *recorded)}
            indexes = [
                (header.index(name), name, name in totals or name in recorded, values)
                for name, values in self._columns.items()
            ]
            width, last_ms = len(header), None
            for row in self._rows:
                if not row:
                    continue
                if len(row) != width:
                    raise self._error(f"{len(row)} cells, but there are {width} columns")
                row_ms = self._time_ms(row[time_index].strip())
                if last_ms is not None and row_ms <= last_ms:
                    problem = "the same time as" if row_ms == last_ms else "an earlier time than"
                    raise self._error(f"{problem} the row before: sort the rows by {TIMESTAMP}, one row a time")
                last_ms = row_ms
                self._times_ms.append(row_ms)
                for index, name, is_total, values in indexes:
                    values.append(self._value(row[index], name, is_total=is_total))
        except csv.Error as error:
            raise self._error(str(error)) from error
        if not self._times_ms:
            raise ReplayError(f"{self._path}: there is no row beside the column names")

    def load(self, start: Callable[[int], int] | None, to_ms: int | None) -> Load:
        """Return the load in a range of times."""
        times = self._times_ms
        distances = [after - before for before, after in itertools.pairwise(times)]
        distance = statistics.median_low(distances) if distances else _ONE_ROW_MS
        held = hold_ms(distance)
        last_ms = times[-1] + distance
        start_ms = times[0] if start is None else max(start(last_ms if to_ms is None else to_ms), times[0])
        end_ms = last_ms if to_ms is None else min(to_ms, last_ms)
        if start_ms >= end_ms:
            span = f"{rfc3339(times[0])} to {rfc3339(times[-1])}"
            raise ReplayError(f"{self._path}: there are no rows between --from and --to: the file has {span}")
        series = {name: Series(times_ms=times, values=values, hold_ms=held) for name, values in self._columns.items()}
        for key, name in self._names.items():
            if not series[name].has_values(start_ms, end_ms):
                raise ReplayError(f"{self._path}: column {key} has no value between --from and --to")
        for name in self._names.values():
            check_not_counter(name, series[name])
        return Load(
            start_ms=start_ms,
            end_ms=end_ms,
            series={key: series[name] for key, name in self._names.items()},
            replicas=next((series[name] for name in REPLICAS_COLUMNS if name in series), None),
            ready_replicas=next((series[name] for name in READY_COLUMNS if name in series), None),
        )

    def _time_index(self, header: list[str]) -> int:
        if TIMESTAMP not in header:
            hint = " (cells must be separated by commas)" if len(header) == 1 else ""
            raise ReplayError(f"{self._path}: there is no column {TIMESTAMP}, only {_list(header)}{hint}")
        duplicates = sorted({name for name in header if name and header.count(name) > 1})
        if duplicates:
            raise ReplayError(f"{self._path}: two columns have the name {duplicates[0]}")
        return header.index(TIMESTAMP)

    def _column(self, source: MetricSource, header: Sequence[str]) -> str:
        key = metric_key(source)
        for name in (key, metric_name(source)):
            if name in header:
                return name
        there = [name for name in header if name != TIMESTAMP]
        raise ReplayError(f"{self._path}: there is no column {key}, only {_list(there)}")

    def _time_ms(self, cell: str) -> int:
        try:
            seconds = float(cell)
        except ValueError:
            return self._rfc3339_ms(cell)
        if not math.isfinite(seconds) or seconds < 0:
            raise self._error(f"{_shown(cell)} is not a time")
        if seconds > _MAX_SECONDS:
            raise self._error(f"{_shown(cell)} is too large: write {TIMESTAMP} in seconds since 1970, not milliseconds")
        return round(seconds * 1000)

    def _rfc3339_ms(self, cell: str) -> int:
        try:
            return time_ms(cell.upper(), TIMESTAMP)  # RFC 3339 allows t and z
        except ParseError:
            expected = "seconds since 1970, or a time with its offset such as 2026-01-31T12:00:00Z"
            raise self._error(f"{TIMESTAMP} is {_shown(cell)}: write {expected}") from None

    def _value(self, cell: str, column: str, *, is_total: bool) -> float:
        try:
            value = float(cell) if cell.strip() else math.nan
        except ValueError:
            raise self._error(f"{column} is {_shown(cell)}, which is not a number") from None
        if math.isinf(value):
            raise self._error(f"{column} is {_shown(cell)}: write a finite number, or nothing for a gap")
        if abs(value) > _MAX_VALUE:
            raise self._error(f"{column} is {_shown(cell)}: write a number of at most {_MAX_VALUE:g}, as metrics have")
        if value < 0 and is_total:
            raise self._error(f"{column} is {_shown(cell)}: write 0 or more, or nothing for a gap")
        return value

    def _error(self, problem: str) -> ReplayError:
        return ReplayError(f"{self._path}: line {self._rows.line_num}: {problem}")


def _lines(path: Path, text: TextIO) -> Iterator[str]:
    while line := text.readline(_MAX_LINE):
        if len(line) == _MAX_LINE:
            raise ReplayError(f"{path}: this is not a CSV file: a line has more than {_MAX_LINE} characters")
        yield line


def _list(names: Sequence[str]) -> str:
    text = ", ".join(map(_shown, names[:10]))
    return f"{text} and {len(names) - 10} more" if len(names) > 10 else text or "none"


def _shown(text: str) -> str:
    return repr(text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}...")
