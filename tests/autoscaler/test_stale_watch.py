"""A watch that is silently dead scales nothing down, and the process reports it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from kube.api import client
from kube.api.config import load_config
from kube.cache import store
from tests.autoscaler.cluster import QUICK, Cluster, Running, running_cluster, running_controller
from tests.eventually import PATIENCE, eventually, until
from tests.kube.scripted import ScriptedServer

# Of 60 s.
BOOKMARK_SECONDS = 1.0


class Proxy:
    """Passes requests on to the API server. At will nothing more comes back on watches, or on anything.

    No connection is closed then, and new ones are accepted: what a dead peer behind a load balancer looks like.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._watches, self._others = asyncio.Event(), asyncio.Event()
        self._resource = ""
        self.padding: tuple[bytes, bytes] = (b"", b"")
        """Replaces the first by the second in the events of pods."""
        self.resume()
        self.url = ""

    @property
    def kubeconfig(self) -> Path:
        """Return a kubeconfig with this proxy as the API server."""
        return ScriptedServer(url=self.url).kubeconfig(self._folder)

    def silence(self, *, watches_only: bool, resource: str = "") -> None:
        """Pass nothing back any more on watches, or those of a resource, or on anything."""
        self._resource = resource
        self._watches.clear()
        if not watches_only:
            self._others.clear()

    def resume(self) -> None:
        self._watches.set()
        self._others.set()

    @asynccontextmanager
    async def between(self, server: Path) -> AsyncIterator[None]:
        """Pass on to the API server of a kubeconfig, with its credentials."""
        upstream = await load_config(server)
        connector = aiohttp.TCPConnector(limit=0, ssl=upstream.tls)
        async with aiohttp.ClientSession(connector=connector, auto_decompress=False) as session:

            async def handle(request: web.Request) -> web.StreamResponse:
                heard = self._watches if request.query.get("watch") == "true" else self._others

                async def may_pass() -> None:
                    if request.path.endswith(self._resource):
                        await heard.wait()

                await may_pass()
                body, kept = await request.read(), ("Accept", "Content-Type")
                headers = {name: request.headers[name] for name in kept if name in request.headers}
                url = f"{upstream.host}{request.raw_path}"
                async with session.request(request.method, url, data=body or None, headers=headers) as answer:
                    response = web.StreamResponse(status=answer.status)
                    response.content_type = answer.content_type
                    await response.prepare(request)
                    async for piece in answer.content.iter_any():
                        await may_pass()
                        padded = request.path.endswith("/pods") and self.padding[0]
                        await response.write(piece.replace(*self.padding) if padded else piece)
                    return response

            app = web.Application()
            app.router.add_route("*", "/{path:.*}", handle)
            runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0)
            await runner.setup()
            try:
                await web.TCPSite(runner, "127.0.0.1", 0).start()
                self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
                yield
            finally:
                await runner.cleanup()


@asynccontextmanager
async def environment(folder: Path) -> AsyncIterator[tuple[Cluster, Proxy, Running]]:
    """An autoscaler behind the proxy that has seen three pods at their targets."""
    proxy = Proxy(folder)
    async with contextlib.AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(running_cluster(folder, bookmark_seconds=BOOKMARK_SECONDS / 2))
        cluster.add_deployment("web", replicas=3)
        cluster.add_hpa("web", most=10, goal="10")
        await stack.enter_async_context(proxy.between(cluster.kubeconfig))
        running = await stack.enter_async_context(
            running_controller(proxy.kubeconfig, QUICK, bookmark_seconds=BOOKMARK_SECONDS)
        )
        await until(lambda: cluster.condition("web", "ScalingActive") == ("True", "ValidMetricFound"))
        await readyz_says(running, "ok", whole=True)  # on a busy machine, bookmarks are late for a moment
        yield cluster, proxy, running


async def readyz_says(running: Running, *texts: str, whole: bool = False) -> None:
    async def reported() -> bool:
        page = await running.get("/readyz")
        return page == texts[0] if whole else all(text in page for text in texts)

    await eventually(reported, within=PATIENCE, every=0.05)


async def scale_down_prevented(running: Running) -> bool:
    """Return True if a scale-down was blocked."""
    return 'decisions_total{action="none",reason="StaleWatch"}' in await running.get("/metrics")


async def test_a_dead_watch_on_pods_scales_nothing_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The missed changes have as long to arrive as in a cluster, although the watch is noticed to be dead much sooner.
    monkeypatch.setattr(store, "_CATCH_UP", store._CATCH_UP * client.BOOKMARK_SECONDS / BOOKMARK_SECONDS)
    async with environment(tmp_path) as (cluster, proxy, running):
        proxy.silence(watches_only=True, resource="pods")
        await readyz_says(running, "[-]pods failed:")
        # An operator scales to 10, and all pods are at 120% of the target. Three pods are known: 1.2 times 3 are 4.
        await cluster.admin.patch("/apis/apps/v1/namespaces/default/deployments/web", {"spec": {"replicas": 10}})
        # A reconciliation that had read the scale before would scale up to 4, and repeat that after the conflict.
        syncs = cluster.syncs()
        await until(lambda: cluster.syncs() >= syncs + 2)
        cluster.metrics.value = "12"
        await cluster.roll_out("web")
        # Not by its status: that may be refused, as the autoscaler does not know the HPA's last version any more.
        await eventually(partial(scale_down_prevented, running), within=PATIENCE, every=0.05)
        syncs = cluster.syncs()
        await until(lambda: cluster.syncs() >= syncs + 10)
        assert cluster.replicas("web") == 10

        proxy.resume()
        await readyz_says(running, "ok", whole=True)
        await until(lambda: cluster.condition("web", "ScalingLimited") == ("True", "TooManyReplicas"))
        assert cluster.replicas("web") == 10
        assert "SuccessfulRescale" not in {reason for reason, _, _ in await cluster.events("web")}
        cluster.metrics.value = "5"
        await until(lambda: cluster.replicas("web") == 5)


async def test_a_dead_watch_on_hpas_scales_nothing_down(tmp_path: Path) -> None:
    async with environment(tmp_path) as (cluster, proxy, running):
        proxy.silence(watches_only=True, resource="horizontalpodautoscalers")
        await readyz_says(running, "[-]hpas failed:")

        async def only_hpas_are_stale() -> bool:
            metrics = await running.get("/metrics")
            stale = {"pods": 0.0, "horizontalpodautoscalers": 1.0, "replicasets": 0.0}
            name = "horizontal_pod_autoscaler_controller_watch_stale"
            return all(f'{name}{{resource="{each}"}} {value}\n' in metrics for each, value in stale.items())

        await eventually(only_hpas_are_stale, every=0.05)
        cluster.metrics.value = "5"
        await eventually(partial(scale_down_prevented, running), within=PATIENCE, every=0.05)
        syncs = cluster.syncs()
        await until(lambda: cluster.syncs() >= syncs + 3)
        assert cluster.replicas("web") == 3
        proxy.resume()
        await until(lambda: cluster.replicas("web") < 3)


async def test_an_api_server_that_falls_silent_is_noticed_although_no_connection_ends(tmp_path: Path) -> None:
    async with environment(tmp_path) as (cluster, proxy, running):
        scale_writes = cluster.server.requests.of("update", "deployments/scale")
        cluster.metrics.value = "5"
        proxy.silence(watches_only=False)
        await readyz_says(running, "[-]hpas failed:", "[-]pods failed:")
        assert cluster.server.requests.of("update", "deployments/scale") == scale_writes
        proxy.resume()
        await readyz_says(running, "ok", whole=True)
        await until(lambda: cluster.replicas("web") < 3)


async def test_pod_that_is_too_large_to_be_read_keeps_its_hpa_from_scaling_down_and_nothing_else(
    tmp_path: Path,
) -> None:
    async with environment(tmp_path) as (cluster, proxy, running):
        pod = "/api/v1/namespaces/default/pods/web-0"
        # More than an API server with a usual etcd sends. It writes the namespace second.
        start = b'"metadata":{"name":"web-0",'
        proxy.padding = (start, start + b'"namespace":"default","padding":"' + b"x" * 2**25 + b'",')
        await cluster.admin.patch(pod, {"metadata": {"annotations": {"a": "1"}}})
        await until(lambda: running.logged("default/web-0 cannot be read"))
        cluster.metrics.value = "5"
        await eventually(partial(scale_down_prevented, running), within=PATIENCE, every=0.05)
        await readyz_says(running, "ok", whole=True)
        assert cluster.replicas("web") == 3
        cluster.metrics.value = "12"
        await until(lambda: cluster.replicas("web") == 4)

        proxy.padding = (b"", b"")
        await cluster.admin.patch(pod, {"metadata": {"annotations": {"a": "2"}}})
        cluster.metrics.value = "5"
        await until(lambda: cluster.replicas("web") < 4)


async def test_hpa_that_is_too_large_is_named_in_the_log_and_counted(tmp_path: Path) -> None:
    async with environment(tmp_path) as (cluster, _, running):

        async def counted(number: int) -> bool:
            metric = "horizontal_pod_autoscaler_controller_unreadable_horizontal_pod_autoscalers"
            return f"{metric} {number}.0\n" in await running.get("/metrics")

        hpa = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers/web"
        await eventually(partial(counted, 0), every=0.05)
        await cluster.admin.patch(hpa, {"metadata": {"annotations": {"a": "x" * 2**17}}})
        await eventually(partial(counted, 1), every=0.05)
        assert running.logged("default/web: its metadata has 131")
        await cluster.admin.patch(hpa, {"metadata": {"annotations": {"a": None}}})
        await eventually(partial(counted, 0), every=0.05)
