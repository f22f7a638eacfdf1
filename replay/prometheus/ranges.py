"""Range queries at the times of a replay's reconciliations, in chunks.

A chunk that the server refuses for its size is halved. Chunks begin at multiples of their length since the epoch, so
that a later replay of nearly the same range finds them in the cache. Of each response one value per time is stored.

The cache is an SQLite database, so that a replay that was interrupted, or is repeated, continues from there, and
several processes may share it. It is not synchronized with the disk, so its index may be wrong after a power loss.
Hence an entry begins with its key, and is compressed, with zlib's checksum. A damaged one counts as missing.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import sqlite3
import sys
import zlib
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from adapter.content.values import to_milli
from adapter.forecasts.options import ForecastOptions
from adapter.prometheus import DEFAULT_DESTINATION, Destination
from adapter.rules import Policy
from kube.values.selectors import LabelSelector
from replay.load import ReplayError
from replay.prometheus.client import RangeClient, RefusedError, Result, TooLargeError, shown

_CHUNK_POINTS: Final = 1_440
"""Six hours of reconciliations; servers allow 11,000 points, but limit the samples that are read, too."""
_LEAST_POINTS: Final = 4
_SETTLED_MS: Final = 10 * 60 * 1000
"""Samples may arrive late, so a chunk is cached only if it ended so long ago."""
_EVERYTHING: Final = LabelSelector()
_ERROR: Final = math.inf  # adding values keeps it infinite
_LIMIT: Final = 256 * 1024 * 1024
_TABLE: Final = "CREATE TABLE IF NOT EXISTS chunks (key BLOB PRIMARY KEY, content BLOB)"
_FIND: Final = "SELECT content FROM chunks WHERE key = ?"
_USE: Final = "REPLACE INTO chunks SELECT * FROM chunks WHERE key = ?"
_STORE: Final = "REPLACE INTO chunks VALUES (?, ?)"
"""As `_USE`, with the highest row id, since the row is new; so row ids are in the order of use."""
_PRUNE: Final = """DELETE FROM chunks WHERE key IN (SELECT key FROM (
    SELECT key, sum(length(content)) OVER (ORDER BY rowid DESC) AS size FROM chunks) WHERE size > ?)"""


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeQuery:
    """A query whose result is one value at each time, and how it is read."""

    name: str
    """The metric, for progress and errors: "pods/packets_per_second"."""
    query: str
    rule_query: str = ""
    """The rule's query inside `query`, for error messages."""
    destination: Destination = DEFAULT_DESTINATION
    labels: tuple[tuple[str, str], ...] = ()
    """A series of the result counts if it has these labels."""
    selector: LabelSelector = _EVERYTHING
    """A series counts if this matches its labels."""
    total: bool = False
    """The value is the sum of the series that count, in milli-units; else the first one's by labels, in its unit."""
    nan: Policy = Policy.ZERO
    """How to treat a value that is not a number; see `adapter.rules.Rule`."""
    inf: Policy = Policy.MISSING
    empty: Policy = Policy.MISSING
    forecast: ForecastOptions | None = None
    """The rule serves the forecast of this value."""


def chunks(times: range) -> list[range]:
    """Split times in milliseconds at multiples of a chunk's length."""
    length = _CHUNK_POINTS * times.step
    found = []
    while times:
        count = -(-(length - times.start % length) // times.step)
        found.append(times[:count])
        times = times[count:]
    return found


def default_folder() -> Path:
    """Return the folder for cached files, by the XDG base directory specification."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if base.startswith("/") else Path.home() / ".cache") / "milliscale" / "replay"


class ChunkCache:
    """The cached chunks in a folder, which is created when the first one is stored; `limit` is in bytes.

    A folder that cannot be written is no error: nothing is cached then, and `problem` says why.
    """

    def __init__(self, folder: Path, *, limit: int = _LIMIT) -> None:
        self._path = folder / "chunks.sqlite"
        self._limit = limit
        self.problem = ""

    def get(self, key: Iterable[object], count: int) -> array[float] | None:
        """Return the `count` values of a chunk, which is then the most recently used; None: not cached, or damaged."""
        values, hashed = array("d"), _hashed(key)
        for (content,) in self._execute(_USE, _FIND, parameters=(hashed,)):
            with contextlib.suppress(zlib.error, TypeError, ValueError):
                values.frombytes(zlib.decompress(content).removeprefix(hashed))
        return values if len(values) == count else None

    def put(self, key: Iterable[object], values: array[float]) -> None:
        """Store a chunk."""
        hashed = _hashed(key)
        self._execute(_STORE, parameters=(hashed, zlib.compress(hashed + values.tobytes(), 1)))

    def prune(self) -> None:
        """Remove the least recently used chunks beyond the limit."""
        self._execute(_PRUNE, parameters=(self._limit,))

    def _execute(self, *statements: str, parameters: tuple[object, ...]) -> list[tuple[bytes]]:
        """Return the rows of the last statement; none if there is no database, or it is damaged, and then removed."""
        try:
            if _STORE in statements:
                self._path.parent.mkdir(parents=True, exist_ok=True)
            elif not self._path.exists():
                return []
            with contextlib.closing(sqlite3.connect(self._path)) as database, database:
                database.execute("PRAGMA synchronous = OFF")  # damage is noticed, and fetched again
                database.execute(_TABLE)
                return [database.execute(each, parameters).fetchall() for each in statements][-1]
        except (OSError, sqlite3.OperationalError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            self.problem = f"{self._path.parent} cannot be written: {why}"
        except sqlite3.DatabaseError:
            with contextlib.suppress(OSError):
                for path in self._path.parent.glob(f"{self._path.name}*"):  # with its journal
                    path.unlink()
        return []


def _hashed(key: Iterable[object]) -> bytes:
    # Its 28 bytes are not whole values, so another key than that of the chunk is an error.
    return hashlib.sha224("\0".join(map(str, (sys.byteorder, *key))).encode()).digest()


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeReader:
    """Reads the values of queries."""

    client: Callable[[Destination], RangeClient]
    cache: ChunkCache
    cache_key: Callable[[Destination], Sequence[object]]
    """Identifies a destination's server and tenant."""
    now_ms: int
    on_chunk: Callable[[], None] = lambda: None

    def read(self, query: RangeQuery, times: range) -> array[float]:
        """Return the value at each time, NaN where there is none.

        Raises:
            ReplayError: the server does not respond, or refuses the query.
        """
        values: array[float] = array("d")
        for chunk in chunks(times):
            values.extend(self._chunk(query, chunk))
            self.on_chunk()
        return values

    def _chunk(self, query: RangeQuery, times: range) -> array[float]:
        key = (
            *self.cache_key(query.destination),
            *(query.query, query.labels, query.selector, query.total, query.nan, query.inf, query.empty),
            *(times.start, times.step, len(times)),
        )
        cached = self.cache.get(key, len(times))
        if cached is not None:
            return cached
        values = self._fetch(query, times)
        if times[-1] < self.now_ms - _SETTLED_MS and not all(map(math.isnan, values)):
            self.cache.put(key, values)
        return values

    def _fetch(self, query: RangeQuery, times: range) -> array[float]:
        client = self.client(query.destination)
        try:
            result = client.range(query.query, start_ms=times.start, end_ms=times[-1], step_ms=times.step)
        except TooLargeError as error:
            if len(times) <= _LEAST_POINTS:
                raise ReplayError(
                    f"Prometheus refuses even {len(times)} points of {query.name} ({error}); raise its --query.timeout"
                    f" and --query.max-samples, or make the query cheaper: {shown(query.rule_query or query.query)}"
                ) from error
            half = len(times) // 2
            return self._fetch(query, times[:half]) + self._fetch(query, times[half:])
        except RefusedError:
            if query.rule_query:
                client.instant(query.rule_query, time_ms=times[-1])  # raises the error for the user's own query
            raise
        try:
            return _combined(query, times, result)
        except ValueError as error:
            raise ReplayError(
                f"the response to {shown(query.query)} is not that of Prometheus' API; check the server"
            ) from error


def _combined(query: RangeQuery, times: range, result: Result) -> array[float]:
    """Return one value at each time of a result."""
    values = array("d", [math.nan]) * len(times)
    series = sorted((one for one in result if _counts(query, one.metric)), key=lambda one: sorted(one.metric.items()))
    for one in series:
        for seconds, text in one.values:
            index = round((seconds * 1000 - times.start) / times.step)
            if not 0 <= index < len(times):
                continue
            value = _usable(query, float(text))
            if value is None:
                continue
            known = values[index]
            if math.isnan(known):
                values[index] = value
            elif query.total:
                values[index] = known + value
    empty = 0.0 if query.empty is Policy.ZERO else math.nan
    for index, value in enumerate(values):
        if value == _ERROR:
            values[index] = math.nan
        elif math.isnan(value):
            values[index] = empty
        elif query.total:
            values[index] = _from_milli(int(value))
    return values


def _from_milli(milli: int) -> float:
    """Return a number for which `int(1000 * number)` is `milli`: the nearest double may truncate to one less."""
    value = milli / 1000
    return value if int(value * 1000) == milli else math.nextafter(value, math.copysign(math.inf, milli))


def _counts(query: RangeQuery, labels: dict[str, str]) -> bool:
    return all(labels.get(label) == value for label, value in query.labels) and query.selector.matches(labels)


def _usable(query: RangeQuery, value: float) -> float | None:
    """Return a value as the adapter serves it; None if it leaves it out, infinity if it is an error."""
    if to_milli(value) is not None and not math.isnan(value):
        return value
    policy = query.nan if math.isnan(value) else query.inf
    return {Policy.ZERO: 0.0, Policy.ERROR: _ERROR}.get(policy)


@contextlib.contextmanager
def progress(total: int, *, shown_on_terminal: bool, text: str = "reading Prometheus") -> Iterator[Callable[[], None]]:
    """Show a progress bar on stderr, if it is a terminal; yield a function that advances it."""
    if not shown_on_terminal:
        yield lambda: None
        return
    # Rich takes 50 ms to import.
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn(text), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total)
        yield lambda: bar.advance(task)
