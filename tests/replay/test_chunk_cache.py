"""Chunks on disk: only what cannot change is cached, damage is noticed, and an interrupted replay continues."""

from __future__ import annotations

import math
import multiprocessing
import sqlite3
from array import array
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import pytest

from adapter.prometheus import DEFAULT_DESTINATION, Destination
from replay.load import ReplayError
from replay.prometheus.client import RangeClient, Result, ResultSeries, TooLargeError
from replay.prometheus.ranges import ChunkCache, RangeQuery, RangeReader, default_folder, progress

DAY = 86_400_000
NOW = 20_000 * DAY
QUERY = RangeQuery(name="queue", query="queue")
STEP = 15_000


class Server(RangeClient):
    """Serves the number of the step as its value, and records the ranges that are requested."""

    def __init__(self, *, without: range = range(0), most: int = 11_000) -> None:
        self.requested: list[tuple[int, int]] = []
        self._without = without
        self._most = most
        self.interrupt_after = math.inf

    def range(self, query: str, *, start_ms: int, end_ms: int, step_ms: int) -> Result:
        if len(self.requested) >= self.interrupt_after:
            raise KeyboardInterrupt
        count = (end_ms - start_ms) // step_ms + 1
        self.requested.append((start_ms, count))
        if count > self._most:
            raise TooLargeError("exceeded maximum resolution")
        times = [time for time in range(start_ms, end_ms + 1, step_ms) if time not in self._without]
        return [ResultSeries(metric={}, values=[(time / 1000, str(time // step_ms)) for time in times])]


def read(server: Server, folder: Path, times: range, *, tenant: str = "", query: RangeQuery = QUERY) -> array[float]:
    def client(destination: Destination) -> RangeClient:
        assert destination is DEFAULT_DESTINATION
        return server

    cache = ChunkCache(folder)
    reader = RangeReader(client=client, cache=cache, cache_key=lambda _: ("http://p", tenant), now_ms=NOW)
    return reader.read(query, times)


def times_of(start: int, count: int) -> range:
    return range(start, start + count * STEP, STEP)


def day(*, ago: float = 2, count: int = 5_760) -> range:
    return times_of(round(NOW - ago * DAY), count)


def test_cached_chunks_are_not_requested_again(tmp_path: Path) -> None:
    first, second = Server(), Server()
    values = read(first, tmp_path, day())
    assert list(values) == [time // STEP for time in day()]
    assert sum(count for _, count in first.requested) == 5_760
    assert len(first.requested) == 4
    assert read(second, tmp_path, day()) == values
    assert second.requested == []


def test_later_replay_requests_only_what_is_new(tmp_path: Path) -> None:
    read(Server(), tmp_path, day())
    server = Server()
    read(server, tmp_path, times_of(day().start + 60_000, 5_760))
    # The first chunk, which begins later, and the last one.
    assert [count for _, count in server.requested] == [1_436, 4]


def test_interrupted_replay_continues(tmp_path: Path) -> None:
    server = Server()
    server.interrupt_after = 3
    with pytest.raises(KeyboardInterrupt):
        read(server, tmp_path, day())
    rest = Server()
    values = read(rest, tmp_path, day())
    assert len(rest.requested) == 1
    assert list(values) == [time // STEP for time in day()]


@pytest.mark.parametrize("damage", [b"", b"\0" * 20, b"damaged" * 1000], ids=["empty", "short", "long"])
def test_damaged_database_is_empty(tmp_path: Path, damage: bytes) -> None:
    values = read(Server(), tmp_path, day(count=1_000))
    [path] = tmp_path.iterdir()
    path.write_bytes(damage)
    server = Server()
    assert read(server, tmp_path, day(count=1_000)) == values
    assert len(server.requested) == 1
    assert read(Server(), tmp_path, day(count=1_000)) == values
    path.write_bytes(path.read_bytes()[:-5_000])  # a disk was full
    assert read(Server(), tmp_path, day(count=1_000)) == values


def test_damaged_chunk_is_requested_again(tmp_path: Path) -> None:
    values = read(Server(), tmp_path, day(count=1_000))
    [path] = tmp_path.iterdir()
    with sqlite3.connect(path) as database:
        [(content,)] = database.execute("SELECT content FROM chunks")
        changed = bytes([*content[:100], content[100] ^ 1, *content[101:]])
        database.execute("UPDATE chunks SET content = ?", [changed])
    database.close()
    server = Server()
    assert read(server, tmp_path, day(count=1_000)) == values
    assert len(server.requested) == 1


def test_chunk_that_a_wrong_index_finds_under_another_key_is_not_used(tmp_path: Path) -> None:
    cache = ChunkCache(tmp_path)
    cache.put(["other"], array("d", [1.0] * 5))
    cache.put(["own"], array("d", [2.0]))
    with sqlite3.connect(tmp_path / "chunks.sqlite") as database:
        database.execute("UPDATE chunks SET content = (SELECT content FROM chunks WHERE rowid = 1)")
    database.close()
    assert {cache.get(["own"], count) is None for count in range(1, 10)} == {True}


def test_recent_chunk_is_not_cached(tmp_path: Path) -> None:
    times = times_of(NOW - 1_000 * STEP, 1_000)
    read(Server(), tmp_path, times)
    assert list(tmp_path.iterdir()) == []


def test_chunk_without_values_is_not_cached(tmp_path: Path) -> None:
    times = day(count=1_000)
    values = read(Server(without=range(times.start, times[-1] + 1)), tmp_path, times)
    assert all(map(math.isnan, values))
    assert read(Server(), tmp_path, times)[0] == times.start // STEP


def test_tenants_and_queries_have_chunks_of_their_own(tmp_path: Path) -> None:
    times = day(count=10)
    read(Server(), tmp_path, times)
    for options in ({"tenant": "team-a"}, {"query": RangeQuery(name="queue", query="queue", total=True)}):
        server = Server()
        read(server, tmp_path, times, **options)
        assert len(server.requested) == 1


def use(folder: Path, number: int) -> list[bool]:
    """Store chunks, and read those of others."""
    cache = ChunkCache(folder)
    for chunk in range(10):
        cache.put([number, chunk], array("d", [number]) * 100)
    cache.prune()
    assert cache.problem == ""
    return [cache.get([number, chunk], 100) is not None for chunk in range(10)]


def test_threads_and_processes_use_it_at_the_same_time(tmp_path: Path) -> None:
    spawn = multiprocessing.get_context("spawn")
    with ThreadPoolExecutor(2) as threads, ProcessPoolExecutor(1, spawn) as processes:
        pools = (threads, processes, threads)
        futures = [pool.submit(use, tmp_path, number) for number, pool in enumerate(pools)]
        assert all(all(each.result()) for each in futures)


def test_least_recently_used_chunks_are_removed(tmp_path: Path) -> None:
    cache = ChunkCache(tmp_path, limit=120)
    for number in range(4):
        cache.put([number], array("d", [number]) * 100)
    used = cache.get([0], 100)  # which makes it the most recently used
    cache.prune()
    assert used is not None
    assert [cache.get([number], 100) is not None for number in range(4)] == [True, False, False, True]


def test_folder_is_that_of_xdg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_folder() == tmp_path / "milliscale" / "replay"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")  # is to be ignored by the specification
    assert default_folder() == Path.home() / ".cache" / "milliscale" / "replay"


def test_chunk_is_halved_until_the_server_takes_it(tmp_path: Path) -> None:
    server = Server(most=400)
    assert list(read(server, tmp_path, day(count=1_000))) == [time // STEP for time in day(count=1_000)]
    assert [count for _, count in server.requested] == [1_000, 500, 250, 250, 500, 250, 250]


def test_server_that_takes_no_chunk(tmp_path: Path) -> None:
    with pytest.raises(ReplayError, match="refuses even 3 points of queue"):
        read(Server(most=2), tmp_path, day(count=100))


def test_milli_units_stay_exact(tmp_path: Path) -> None:
    start = 1_001 * STEP  # the server's first value; 1001 / 1000 * 1000 is less than 1001 in floating point
    query = RangeQuery(name="queue", query="queue", total=True)
    values = read(Server(), tmp_path, times_of(start, 5_000), query=query)
    assert [int(value * 1000) for value in values] == list(range(1_001, 6_001))


def test_progress_is_shown_on_a_terminal_only(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich takes stderr for a terminal
    for shown in (False, True):
        with progress(2, shown_on_terminal=shown) as advance:
            advance()
            advance()
        assert ("2/2" in capsys.readouterr().err) == shown


def test_reader_reports_each_chunk(tmp_path: Path) -> None:
    chunks: list[None] = []
    reader = RangeReader(
        client=lambda _: Server(),
        cache=ChunkCache(tmp_path),
        cache_key=lambda _: (),
        now_ms=NOW,
        on_chunk=lambda: chunks.append(None),
    )
    reader.read(QUERY, day())
    assert len(chunks) == 4
