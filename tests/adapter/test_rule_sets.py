"""One rule set for each version of the rules file: requests keep theirs, and a reload is atomic."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import re
import signal
import weakref
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from adapter.catalog.catalog import Catalog
from adapter.planning.vectors import VectorCache
from adapter.rules import RulesFile
from adapter.serving.rule_sets import RuleSet, Shared
from tests.adapter.front_proxy import Connection, front_proxy
from tests.adapter.metrics_env import RULES
from tests.adapter.test_serve import EXTERNAL, POD, USAGE, Running, running
from tests.eventually import eventually

RELOADS = 5
REQUESTS = 100
CLIENTS = 8


class Log(logging.Handler):
    """What the adapter logs, and an event for each reload."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.reloaded: asyncio.Queue[str] = asyncio.Queue()

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())
        if self.lines[-1].startswith("reloaded the rules file"):
            self.reloaded.put_nowait(self.lines[-1])


@pytest.fixture
def log() -> Iterator[Log]:
    handler, adapter = Log(), logging.getLogger("adapter")
    level = adapter.level
    adapter.addHandler(handler)
    adapter.setLevel(logging.INFO)
    yield handler
    adapter.removeHandler(handler)
    adapter.setLevel(level)


def rules(version: int) -> str:
    """The same metrics in each version: rules in another order, with queries that tell the version."""
    entries = [
        f"""
- seriesQuery: {name}
  resources: {{overrides: {{namespace: {{resource: namespace}}, pod: {{resource: pod}}}}}}
  metricsQuery: sum(<<.Series>>{{<<.LabelMatchers>>,version!="{version}"}}) by (<<.GroupBy>>)"""
        for name in ("packets_total", "bytes_total")
    ]
    ordered = "".join(entries if version % 2 else reversed(entries))
    resource = (
        (RULES / "resource.yaml").read_text().replace("<<.LabelMatchers>>", f'<<.LabelMatchers>>,version!="{version}"')
    )
    return f"rules:{ordered}\nexternalRules:{ordered.replace('by (<<.GroupBy>>)', 'by (namespace)')}\n{resource}"


async def version_of(query: str) -> str:
    found = re.search(r'version!=.?"([0-9]+)', query)
    assert found is not None, query
    return found[1]


async def reload(adapter: Running, folder: Path, text: str, log: Log) -> None:
    (folder / "config.yaml").write_text(text)
    signal.raise_signal(signal.SIGHUP)
    await asyncio.wait_for(log.reloaded.get(), 60)


@contextlib.asynccontextmanager
async def serving(
    folder: Path, text: str, *, freshness: float = 60.0, relist_interval: float = 60.0
) -> AsyncIterator[tuple[Running, Connection]]:
    """An adapter that is ready, and a connection to it."""
    running_one = running(folder, text, freshness=freshness, relist_interval=relist_interval)
    async with running_one as adapter, adapter.connection() as connection:
        yield adapter, connection


def background() -> Counter[str]:
    """The adapter's tasks that belong to rule sets, by name."""
    names = (task.get_name() for task in asyncio.all_tasks())
    return Counter(name for name in names if name in ("rule set", "compare metrics", "prefetch", "free"))


PATHS = (
    f"{POD}/web-1/packets_total",
    f"{POD}/web-2/packets_total",
    f"{POD}/%2A/bytes_total",
    f"{EXTERNAL}/packets_total",
    f"{USAGE}/shop/pods/web-1",
    f"{USAGE}/bank/pods",
    "/apis/custom.metrics.k8s.io/v1beta2",
)


async def test_rules_are_swapped_under_load(tmp_path: Path, log: Log) -> None:
    """No request fails, none that begins after a reload was logged sees the rules before it, and nothing is left over.

    Meanwhile the series are listed all the time, so that reloads meet lists that are under way.
    """
    loaded, sent, stop, responded = 0, 0, asyncio.Event(), asyncio.Semaphore(0)

    async def client(adapter: Running, number: int) -> None:
        nonlocal sent
        async with front_proxy(adapter.client) as connection:
            while not stop.is_set():
                path = PATHS[(sent + number) % len(PATHS)]
                sent += 1
                before = loaded
                status, _, body = await connection.request(path)
                responded.release()
                assert status == 200, (path, body)
                values = {int(one) for one in re.findall(rb'"(?:value|cpu|memory)":"([0-9]+)', body)}
                assert values if path.count("/") > 3 and "kind" not in path else True
                assert all(before <= value <= loaded + 1 for value in values), (path, before, values)

    async with serving(tmp_path, rules(0), relist_interval=0.05) as (adapter, _):
        adapter.prometheus.names = ["packets_total", "bytes_total"]
        adapter.prometheus.value_of = version_of

        async def has_all() -> bool:
            return "bytes_total" in str((await adapter.client.request_as_master(PATHS[-1])).json)

        assert await eventually(has_all, within=20, every=0.01)
        before_load = background()
        async with asyncio.TaskGroup() as clients:
            for number in range(CLIENTS):
                clients.create_task(client(adapter, number))
            for version in range(1, RELOADS + 1):
                for _ in range(REQUESTS):
                    await responded.acquire()
                await reload(adapter, tmp_path, rules(version), log)
                loaded = version
            stop.set()
        adapter.prometheus.queries.clear()
        async with front_proxy(adapter.client) as connection:
            for path in PATHS:
                assert (await connection.request(path))[0] == 200
        assert {await version_of(query) for query in adapter.prometheus.queries} <= {str(RELOADS)}

        async def nothing_left() -> bool:
            return background() == before_load

        assert await eventually(nothing_left, within=10, every=0.01)
        await reload(adapter, tmp_path, "externalRules: [{name: last, query: 'vector(1)'}]", log)
    assert sent >= RELOADS * REQUESTS
    assert [line for line in log.lines if "the reload removed" in line] == log.lines[-5:-3]


async def test_request_in_flight_ends_with_the_rules_that_it_began_with(tmp_path: Path, log: Log) -> None:
    """Of all three APIs, also where the rules are gone or have another meaning."""
    held, go = asyncio.Semaphore(0), asyncio.Event()

    async def hold(query: str) -> str:
        held.release()
        await go.wait()
        return await version_of(query)

    async with serving(tmp_path, rules(1)) as (adapter, _):
        adapter.prometheus.value_of = hold
        async with asyncio.TaskGroup() as tasks, contextlib.AsyncExitStack() as stack:
            asking = []
            for path in (f"{POD}/web-1/packets_total", f"{EXTERNAL}/packets_total", f"{USAGE}/shop/pods/web-1"):
                connection = await stack.enter_async_context(front_proxy(adapter.client))
                asking.append(tasks.create_task(connection.request(path)))
            for _ in range(4):
                await held.acquire()
            adapter.prometheus.value_of = version_of
            await reload(adapter, tmp_path, rules(2).partition("resourceRules")[0], log)
            async with front_proxy(adapter.client) as connection:
                assert b'"value":"2"' in (await connection.request(f"{POD}/web-1/packets_total"))[2]
                assert (await connection.request(f"{USAGE}/shop/pods/web-1"))[0] == 404
            go.set()
            for task in asking:
                status, _, body = await task
                assert status == 200, body
                assert re.search(rb'"(value|cpu)":"1"', body), body


async def test_metrics_that_went_with_a_reload_are_logged_and_counted(tmp_path: Path, log: Log) -> None:
    """As of a file that an editor has left cut: it is valid, and without its last section."""
    gone = "milliscale_adapter_config_last_reload_metrics_gone"

    async def counted(adapter: Running) -> list[str]:
        metrics = (await adapter.client.request_as_master("/metrics")).body.decode()
        return [line for line in metrics.splitlines() if line.startswith(gone)]

    async with serving(tmp_path, rules(1)) as (adapter, connection):
        zero = [f'{gone}{{group="custom.metrics.k8s.io"}} 0.0', f'{gone}{{group="external.metrics.k8s.io"}} 0.0']
        assert await counted(adapter) == zero
        assert (await connection.request(f"{EXTERNAL}/packets_total"))[0] == 200
        await reload(adapter, tmp_path, rules(1).partition("externalRules")[0], log)
        status, _, body = await connection.request(f"{EXTERNAL}/packets_total")
        assert (status, b'"paths"' in body) == (404, True), "nor is the group served"
        metrics = (await adapter.client.request_as_master("/metrics")).body.decode()
        assert 'rule="rules[1]"' in metrics
        assert "externalRules" not in metrics
        assert 'resource="packets_total"' not in metrics
        assert await counted(adapter) == [zero[0], f'{gone}{{group="external.metrics.k8s.io"}} 1.0']
        [line] = [line for line in log.lines if "the reload removed" in line]
        assert line.startswith("the reload removed 1 of 1 metrics of external.metrics.k8s.io: packets_total; if")
        await reload(adapter, tmp_path, rules(1), log)
        assert (await connection.request(f"{EXTERNAL}/packets_total"))[0] == 200
        assert await counted(adapter) == zero


async def test_old_rules_stay_in_force_until_new_series_are_listed(tmp_path: Path, log: Log) -> None:
    async with serving(tmp_path, rules(1)) as (adapter, connection):
        while not adapter.prometheus.requests.empty():
            adapter.prometheus.requests.get_nowait()
        adapter.prometheus.value_of = version_of
        adapter.prometheus.listed.clear()
        (tmp_path / "config.yaml").write_text(
            rules(2).replace("seriesQuery: packets_total", "seriesQuery: '{packets_total}'")
        )
        signal.raise_signal(signal.SIGHUP)
        await asyncio.wait_for(adapter.prometheus.requests.get(), 60)
        status, _, body = await connection.request(f"{POD}/web-1/packets_total")
        assert (status, b'"value":"1"' in body) == (200, True)
        assert log.reloaded.empty()
        adapter.prometheus.listed.set()
        await asyncio.wait_for(log.reloaded.get(), 60)
        assert b'"value":"2"' in (await connection.request(f"{POD}/web-1/packets_total"))[2]


async def test_new_version_starts_with_the_lists_of_the_one_before(tmp_path: Path, log: Log) -> None:
    async with serving(tmp_path, rules(1)) as (adapter, connection):
        adapter.prometheus.value_of = version_of
        adapter.prometheus.listed.clear()  # no list ends
        await reload(adapter, tmp_path, rules(2), log)
        assert b'"value":"2"' in (await connection.request(f"{POD}/web-1/packets_total"))[2]
        adapter.prometheus.listed.set()


async def test_earlier_versions_are_freed_after_a_reload(
    tmp_path: Path, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalogs: list[weakref.ref[Catalog]] = []
    caches: list[weakref.ref[VectorCache]] = []
    of = RuleSet.of

    def noted(rules: RulesFile, shared: Shared) -> RuleSet:
        made = of(rules, shared)
        catalogs.append(weakref.ref(made.catalog))
        caches.append(weakref.ref(made.cache))  # the timers of its entries keep one that is not closed
        return made

    monkeypatch.setattr(RuleSet, "of", noted)
    async with serving(tmp_path, rules(0)) as (adapter, connection):
        gc.freeze()  # as the adapter does after the first lists: only reference counts free what is frozen
        for version in range(1, 4):
            assert (await connection.request(PATHS[0]))[0] == 200
            await reload(adapter, tmp_path, rules(version), log)

        async def are_freed() -> bool:
            gc.collect()
            return [[one() is None for one in ones] for ones in (catalogs, caches)] == 2 * [[True, True, True, False]]

        await eventually(are_freed, every=0.05)
