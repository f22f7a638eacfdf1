"""Measure what MetricRules cost the adapter: `make bench-metric-rules`.

It creates MetricRules in namespaces of 100 each, of the short form and then of the long form, and measures the adapter:
when their metrics are served, its memory, how late its event loop was, and how soon a change is effective. The API
server is that of KUBEBUILDER_ASSETS, or else the playground's. Prometheus is a server in this process, which responds
at once. Memory is measured in processes that start with and without the MetricRules.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import aiohttp
import click
import msgspec
from aiohttp import web

from bench.figures import Cost, percentile, show, write_lines
from bench.processes import ROOT, adapter_flags, api_server, served
from kube.api.client import KubeClient
from kube.process.runtime import run
from playground.apiserver.pki import Pki
from playground.install import apply, read_objects
from playground.kube_apiserver import find_assets
from playground.ports import LOOPBACK, free_port
from playground.processes import ChildProcess

_EXTERNAL: Final = "/apis/external.metrics.k8s.io/v1beta1"
_OF_NAMESPACE: Final = 100
_AT_A_TIME: Final = 16
_CHANGES: Final = 20
_PRIORITY: Final = 10
_START_SECONDS: Final = 120.0
_POLL_SECONDS: Final = 0.02
_LAG: Final = 'milliscale_adapter_event_loop_lag_seconds_bucket{le="'


class Row(msgspec.Struct, kw_only=True):
    """Figures of one form of rules, in seconds and MiB. No lag of the event loop exceeded the bounds in milliseconds.

    `created`: of creating all objects; `served`: from then until all metrics are in discovery and the last has a value.
    `start`: of a new process, until it is ready and all are served. `change`: from a change until it is effective.
    """

    form: str
    objects: int
    created: float
    served: float
    lag_ms_while_created: float
    start: float
    lag_ms_at_start: float
    rss_without: float
    rss_with: float
    kib_per_object: float
    change_median: float
    change_max: float
    discovery_kib: float


Handler = Callable[[web.Request], Awaitable[web.Response]]


@dataclass(frozen=True, slots=True)
class Bench:
    """What a run has: the API server, the certificates, Prometheus, and a folder."""

    client: KubeClient
    pki: Pki
    kubeconfig: Path
    prometheus_url: str
    folder: Path
    real_time: bool


@dataclass(frozen=True, slots=True)
class Adapter:
    """A running adapter, and a session of the front proxy."""

    session: aiohttp.ClientSession
    process: ChildProcess
    port: int

    async def get(self, path: str) -> tuple[int, bytes]:
        """Send a request as the front proxy."""
        headers = {"X-Remote-User": "admin", "X-Remote-Group": "system:masters"}
        async with self.session.get(f"https://{LOOPBACK}:{self.port}{path}", headers=headers) as response:
            return response.status, await response.read()

    async def value(self, number: int) -> str:
        """Return the value of an external metric; "" if there is none."""
        status, body = await self.get(f"{_EXTERNAL}/namespaces/{_namespace(number)}/{_metric(number)}")
        items = msgspec.json.decode(body).get("items") if status == 200 else None
        return str(items[0]["value"]) if items else ""

    async def wait_served(self, count: int) -> None:
        """Wait until `count` metrics are in discovery, and the last one has a value."""
        async with asyncio.timeout(_START_SECONDS):
            while True:
                status, body = await self.get(_EXTERNAL)
                if (
                    status == 200
                    and len(msgspec.json.decode(body)["resources"]) == count
                    and await self.value(count - 1)
                ):
                    return
                await asyncio.sleep(_POLL_SECONDS)

    async def lag(self) -> float:
        """Return the bound of the first bucket of the event loop's lag that has all observations, in milliseconds."""
        _, body = await self.get("/metrics")
        lines = [line.removeprefix(_LAG) for line in body.decode().splitlines() if line.startswith(_LAG)]
        buckets = [(float(line.partition('"')[0]), float(line.rpartition(" ")[2])) for line in lines]
        return 1000 * min(bound for bound, count in buckets if count == buckets[-1][1])

    async def rss(self) -> float:
        """Return the resident memory in MiB."""
        return (await asyncio.to_thread(Cost.of, self.process.pid)).rss


def _namespace(number: int) -> str:
    return f"team-{number // _OF_NAMESPACE}"


def _metric(number: int) -> str:
    return f"team_{number // _OF_NAMESPACE}_queue_{number % _OF_NAMESPACE}_length"


def _short(number: int) -> dict[str, Any]:
    query = f'sum(rabbitmq_queue_messages{{namespace="{_namespace(number)}",queue="q{number}"}})'
    return {"type": "External", "metric": _metric(number), "query": query}


def _long(number: int) -> dict[str, Any]:
    return {
        "type": "External",
        "seriesQuery": f'{_metric(number)}{{namespace!=""}}',
        "resources": {"overrides": {"namespace": {"resource": "namespace"}}},
        "metricsQuery": "sum(<<.Series>>{<<.LabelMatchers>>})",
    }


_FORMS: Final[dict[str, Callable[[int], dict[str, Any]]]] = {"short": _short, "long": _long}


def _path(number: int, *, one: bool = True) -> str:
    path = f"/apis/milliscale.io/v1/namespaces/{_namespace(number)}/metricrules"
    return f"{path}/rule-{number}" if one else path


async def _prometheus(request: web.Request) -> web.Response:
    """Respond to a query with its length, and to a list with the series that the selector names."""
    text = {**request.query, **await request.post()}
    if request.path.endswith("/series"):
        name = str(text["match[]"]).partition("{")[0]
        return web.json_response({"status": "success", "data": [{"__name__": name, "namespace": "any"}]})
    sample = {"metric": {}, "value": [time.time(), str(len(str(text["query"])))]}
    return web.json_response({"status": "success", "data": {"resultType": "vector", "result": [sample]}})


@asynccontextmanager
async def opened(folder: Path, *, real_time: bool, prometheus: Handler = _prometheus) -> AsyncIterator[Bench]:
    """Run an API server, and a server that responds as Prometheus."""
    async with AsyncExitStack() as stack:
        url, pki = await stack.enter_async_context(api_server(folder / "cluster"))
        kubeconfig = pki.kubeconfig(url, "admin", ["system:masters"])
        client = await stack.enter_async_context(await KubeClient.connect(kubeconfig))
        if find_assets(os.environ) is not None:
            for path in sorted((ROOT / "manifests/crds/metric-rules").glob("*rules.yaml")):
                await apply(client, await read_objects(path))
        address = await stack.enter_async_context(served(prometheus))
        yield Bench(client, pki, kubeconfig, f"http://{address}", folder, real_time)


@asynccontextmanager
async def running_adapter(bench: Bench, name: str, text: str = "{}") -> AsyncIterator[Adapter]:
    """Run an adapter with the text of a rules file until the end of the context; it is ready."""
    port, rules = free_port(), bench.folder / "rules.yaml"
    rules.write_text(text)
    command = [sys.executable, "-m", "adapter", "serve", "--metric-rules", "--shutdown-delay-duration=100ms"]
    command += adapter_flags(
        prometheus_url=bench.prometheus_url,
        rules=rules,
        kubeconfig=bench.kubeconfig,
        port=port,
        certificates=bench.folder / f"{name}-certificates",
    )
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.load_cert_chain(bench.pki.front_proxy.certificate, bench.pki.front_proxy.key)
    connector = aiohttp.TCPConnector(ssl=context)
    process = await ChildProcess.start(name, command, log=bench.folder / f"{name}.log", directory=ROOT)
    async with process, aiohttp.ClientSession(connector=connector) as session:
        if bench.real_time:
            os.sched_setscheduler(process.pid, os.SCHED_FIFO, os.sched_param(_PRIORITY))
        adapter = Adapter(session, process, port)
        async with asyncio.timeout(_START_SECONDS):
            while True:
                if process.exit_status is not None:
                    raise RuntimeError("\n".join(process.last_lines()))
                try:
                    if (await adapter.get("/readyz"))[0] == 200:
                        break
                except aiohttp.ClientError:
                    pass
                await asyncio.sleep(_POLL_SECONDS)
        yield adapter


async def _for_all(count: int, work: Callable[[int], Any]) -> None:
    numbers = iter(range(count))

    async def each() -> None:
        for number in numbers:
            await work(number)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(_AT_A_TIME):
            tasks.create_task(each())


async def _measure(bench: Bench, form: str, count: int) -> Row:
    spec = _FORMS[form]

    async def create(number: int) -> None:
        body = {
            "apiVersion": "milliscale.io/v1",
            "kind": "MetricRule",
            "metadata": {"name": f"rule-{number}", "namespace": _namespace(number)},
            "spec": spec(number),
        }
        await bench.client.post(_path(number, one=False), body)

    async def delete(number: int) -> None:
        await bench.client.delete(_path(number))

    async with running_adapter(bench, f"{form}-live") as adapter:
        rss_without = await adapter.rss()
        begun = time.monotonic()
        await _for_all(count, create)
        created = time.monotonic()
        await adapter.wait_served(count)
        served, lag_ms_while_created = time.monotonic(), await adapter.lag()
    starting = time.monotonic()
    async with running_adapter(bench, f"{form}-start") as adapter:
        await adapter.wait_served(count)
        started, lag_ms_at_start, rss_with = time.monotonic(), await adapter.lag(), await adapter.rss()
        changes = [await _change(bench, adapter, number * count // _CHANGES, spec) for number in range(_CHANGES)]
        _, discovery = await adapter.get(_EXTERNAL)
        await _for_all(count, delete)
    return Row(
        form=form,
        objects=count,
        created=created - begun,
        served=served - created,
        lag_ms_while_created=lag_ms_while_created,
        start=started - starting,
        lag_ms_at_start=lag_ms_at_start,
        rss_without=rss_without,
        rss_with=rss_with,
        kib_per_object=(rss_with - rss_without) * 1024 / count,
        change_median=percentile(changes, 0.5),
        change_max=max(changes),
        discovery_kib=len(discovery) / 1024,
    )


async def _change(bench: Bench, adapter: Adapter, number: int, spec: Callable[[int], dict[str, Any]]) -> float:
    """Make a rule's query longer, which changes its value; return the seconds until it is effective."""
    before = await adapter.value(number)
    key = "query" if "query" in spec(number) else "metricsQuery"
    begun = time.monotonic()
    await bench.client.patch(_path(number), {"spec": {key: f"{spec(number)[key]} + {10 ** (len(before) + 2)}"}})
    async with asyncio.timeout(_START_SECONDS):
        while True:
            if await adapter.value(number) not in ("", before):
                break
            await asyncio.sleep(_POLL_SECONDS)
    return time.monotonic() - begun


async def _measured(folder: Path, count: int, *, real_time: bool) -> list[Row]:
    async with opened(folder, real_time=real_time) as bench:
        # The Lease of the replica that writes statuses is in the adapter's namespace.
        for name in ("milliscale", *(_namespace(number) for number in range(0, count, _OF_NAMESPACE))):
            await bench.client.post("/api/v1/namespaces", {"metadata": {"name": name}})
        return [await _measure(bench, form, count) for form in _FORMS]


@click.command(help=__doc__)
@click.option("--objects", type=click.IntRange(1), default=5_000, show_default=True)
@click.option("--output", type=click.Path(path_type=Path), default=Path("bench-metric-rules.jsonl"), show_default=True)
@click.option(
    "--real-time", is_flag=True, help="Run the adapter with real-time priority, on a busy machine; needs root."
)
def main(*, objects: int, output: Path, real_time: bool) -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as folder:
        rows = run(_measured(Path(folder), objects, real_time=real_time))
    show(f"{objects} MetricRules", rows)
    write_lines(output, rows)


if __name__ == "__main__":
    main()
