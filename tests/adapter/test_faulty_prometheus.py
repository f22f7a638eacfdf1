"""Whatever a Prometheus sends is an error without its address, in bounded memory, and the next query works."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

import pytest

from adapter.prometheus import (
    MemoryBudget,
    PrometheusBadResponse,
    PrometheusClient,
    PrometheusError,
    PrometheusOptions,
    PrometheusQueryError,
    PrometheusTimeout,
    PrometheusUnavailable,
    Vector,
)
from adapter.prometheus.long_responses import Share
from adapter.settings import PrometheusSettings
from tests.adapter.faulty_prometheus import (
    HEAD,
    SERIES_HEAD,
    FaultyPrometheus,
    Reply,
    bomb,
    drips,
    endless,
    faulty_prometheus,
    head,
    responds,
    vector,
)
from tests.eventually import eventually

MIB = 1024 * 1024
SAMPLE = b'{"metric":{},"value":[1,"1"]},'
ONE_SERIES = b'{"__name__":"a","pod":"x"},'


def cut(body: bytes, length: int) -> Reply:
    async def reply(writer: asyncio.StreamWriter) -> None:
        writer.write(head(Content_Length=str(length)) + body)

    return reply


def nested(first: bytes) -> Reply:
    return responds(first + b'{"a":' * 100_000)


def distinct_labels(number: int, first: bytes) -> Reply:
    labels = ",".join(f'"l{n}":"v"' for n in range(number))
    return responds(first + b'{"metric":{' + labels.encode() + b'},"value":[1,"1"]}]}}')


FAULTS: dict[str, tuple[Callable[[], Reply], type[PrometheusError]]] = {
    "endless": (lambda: endless(HEAD, SAMPLE * 1_000), PrometheusBadResponse),
    "endless garbage": (lambda: endless(b"", b"x" * 10_000), PrometheusBadResponse),
    "endless line of white space": (lambda: endless(HEAD, b" " * 10_000), PrometheusBadResponse),
    "gzip bomb": (lambda: bomb("gzip", HEAD, SAMPLE * 10_000, times=300), PrometheusBadResponse),
    "brotli": (lambda: responds(b"\x1b\x00", Content_Encoding="br"), PrometheusUnavailable),
    "no gzip": (lambda: responds(b"x" * 1_000, Content_Encoding="gzip"), PrometheusUnavailable),
    "truncated": (lambda: responds(vector({}, *range(5_000))[:-9]), PrometheusBadResponse),
    "less than its Content-Length": (lambda: cut(vector({}, 1), 10_000), PrometheusUnavailable),
    "more than its Content-Length": (lambda: cut(vector({}, 1), 10), PrometheusUnavailable),
    "Content-Length of nonsense": (lambda: responds(b"", Content_Length="many"), PrometheusUnavailable),
    "deep nesting": (lambda: nested(HEAD), PrometheusBadResponse),
    "a million labels": (lambda: distinct_labels(1_000_000, HEAD), PrometheusBadResponse),
    "endless head": (lambda: cut_head, PrometheusUnavailable),
    "endless error": (lambda: endless_error, PrometheusUnavailable),
    "redirect": (lambda: responds(b"", status=307, Location="/api/v1/query"), PrometheusUnavailable),
    "too many requests": (lambda: responds(b"", status=429, Retry_After="3600"), PrometheusUnavailable),
    "unavailable": (lambda: responds(b"", status=503, Retry_After="3600"), PrometheusUnavailable),
    "refused query": (lambda: responds(b'{"errorType":"bad_data","error":"x"}', status=400), PrometheusQueryError),
    "slow": (lambda: drips(HEAD, b" "), PrometheusTimeout),
    "slow head": (lambda: slow_head, PrometheusTimeout),
}


async def cut_head(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nX: ")
    while True:
        writer.write(b"a" * 10_000)
        await writer.drain()


async def slow_head(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nX: ")
    while True:
        writer.write(b"a")
        await writer.drain()
        await asyncio.sleep(0.005)


async def endless_error(writer: asyncio.StreamWriter) -> None:
    writer.write(head(500))
    while True:
        writer.write(b"x" * 10_000)
        await writer.drain()


async def works_again(server: FaultyPrometheus, client: PrometheusClient, before: set[asyncio.Task[object]]) -> None:
    server.query = responds(vector({}, 1))
    assert isinstance(await client.instant("good"), Vector)

    async def closed() -> bool:
        return not server.open

    await eventually(closed, within=10, every=0.001)
    own = [task for task in asyncio.all_tasks() - before if "faulty_prometheus" not in repr(task.get_coro())]
    assert own == []


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.looptime(name.startswith("slow"))) for name in FAULTS]
)
async def test_fault_is_an_error_without_the_address_or_leaks(name: str) -> None:
    fault, error = FAULTS[name]
    async with faulty_prometheus() as server:
        server.query = fault()
        before = asyncio.all_tasks()
        budget = MemoryBudget(4 * MIB)
        options = PrometheusOptions(url=server.url, query_timeout=0.05 if name.startswith("slow") else 20.0)
        async with PrometheusClient(options, budget=budget) as client:
            with pytest.raises(error) as raised:
                await client.instant("a")
            assert type(raised.value) is error
            assert "127.0.0.1" not in str(raised.value)
            assert budget.used == 0
            await works_again(server, client, before)


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (endless(SERIES_HEAD, ONE_SERIES * 3_000), PrometheusBadResponse),
        (endless(SERIES_HEAD, b'{"a":"x"'), PrometheusBadResponse),
        (endless(b"", b"x" * 10_000), PrometheusBadResponse),
        (nested(SERIES_HEAD), PrometheusBadResponse),
        (responds(SERIES_HEAD + ONE_SERIES), PrometheusBadResponse),
        (responds(b"", status=302, Location="/x"), PrometheusUnavailable),
    ],
)
async def test_faults_of_series_are_errors_too(reply: Reply, error: type[PrometheusError]) -> None:
    async with faulty_prometheus() as server:
        server.series = reply
        before = asyncio.all_tasks()
        settings = PrometheusSettings(list_bytes=2 * MIB)
        async with PrometheusClient(PrometheusOptions(url=server.url), settings=settings) as client:
            with pytest.raises(error) as raised:
                await client.series("a", start=0, end=1)
            assert "127.0.0.1" not in str(raised.value)
            await works_again(server, client, before)


async def test_memory_of_series_is_limited() -> None:
    names = (json.dumps({"__name__": f"metric_{n}", f"label_{n}": ""}).encode() + b"," for n in range(100_000))
    async with faulty_prometheus() as server:

        async def distinct(writer: asyncio.StreamWriter) -> None:
            writer.write(head() + SERIES_HEAD)
            for name in names:
                writer.write(name)
                await writer.drain()

        server.series = distinct
        async with PrometheusClient(PrometheusOptions(url=server.url), budget=MemoryBudget(4 * MIB)) as client:
            with pytest.raises(PrometheusBadResponse, match="takes more than 4 MiB of memory"):
                await client.series("a", start=0, end=1)


class Watched(MemoryBudget):
    """Records the most that was ever used."""

    most = 0

    async def wait_for_memory(self, share: Share) -> None:
        self.most = max(self.most, self.used)
        await super().wait_for_memory(share)


async def test_memory_of_concurrent_endless_responses_is_limited() -> None:
    budget = Watched(4 * MIB)
    async with faulty_prometheus() as server:
        server.query = endless(HEAD, SAMPLE * 200)
        async with PrometheusClient(PrometheusOptions(url=server.url), budget=budget) as client:
            failed = await asyncio.gather(*(client.instant(f"q{n}") for n in range(8)), return_exceptions=True)
    assert {type(error) for error in failed} == {PrometheusBadResponse}
    piece = 64 * 1024 * 6  # with what its samples take, and of each response one has just been decoded
    assert 4 * MIB < budget.most <= 6 * MIB + 8 * piece


async def test_long_responses_wait_for_memory_and_all_succeed() -> None:
    body = vector({"namespace": "shop", "pod": "web"}, *range(5_000))  # of which each takes 2.2 MB
    async with faulty_prometheus() as server:
        server.query = responds(body)
        async with PrometheusClient(PrometheusOptions(url=server.url), budget=MemoryBudget(3 * MIB)) as client:
            results = await asyncio.gather(*(client.instant(f"q{n}") for n in range(6)))
    assert [len(result.samples) for result in results if isinstance(result, Vector)] == [5_000] * 6


async def test_duplicate_labels_and_series_are_samples_like_others() -> None:
    entry = b'{"metric":{"pod":"a","pod":"b"},"value":[1,"1"]}'
    async with faulty_prometheus() as server:
        server.query = responds(HEAD + b",".join([entry] * 5_000) + b"]}}")
        async with PrometheusClient(PrometheusOptions(url=server.url)) as client:
            result = await client.instant("a")
    assert isinstance(result, Vector)
    assert [dict(sample.labels) for sample in result.samples] == [{"pod": "b"}] * 5_000
