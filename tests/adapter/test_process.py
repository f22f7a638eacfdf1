"""The adapter as a process: reloaded rules, a start without other servers, and the shutdown delay."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from aiohttp import web

from playground.ports import LOOPBACK, free_port
from playground.processes import ChildProcess
from tests.adapter.metrics_env import RESOURCES
from tests.adapter.serving import ServedAdapter, bound_socket
from tests.eventually import eventually
from tests.kube.access_api import AccessApi, Authorities, write_pair
from tests.kube.scripted import Held, ScriptedServer, respond, scripted_server

pytestmark = pytest.mark.e2e

FIRST = "externalRules: [{name: first, query: 'vector(7)'}]"
SECOND = """
externalRules: [{name: second, query: 'vector(8)'}]
rules: [{name: heat, query: 'vector(9)', resources: {node: node}}]
"""
EXTERNAL = "/apis/external.metrics.k8s.io/v1beta1"
SEVEN = {"status": "success", "data": {"resultType": "scalar", "result": [1.7e9, "7"]}}


@dataclass
class RunningAdapter:
    """A process with a client and its rules file."""

    client: ServedAdapter
    process: ChildProcess
    config: Path

    @property
    def url(self) -> str:
        return f"https://{LOOPBACK}:{self.client.port}"

    async def serves(self, metric: str, value: str) -> bool:
        """Return True if an external metric has this value; otherwise raise AssertionError with the response."""
        try:
            reply = await self.client.request_as_master(f"{EXTERNAL}/namespaces/shop/{metric}")
        except OSError as error:
            raise AssertionError("it does not listen yet") from error
        assert reply.status == 200, reply.body
        assert [item["value"] for item in reply.json["items"]] == [value]
        return True

    async def keeps_the_last_good_rules(self) -> bool:
        """Return whether it is ready and reports that the current file is not in use."""
        reply = await self.client.request("/readyz?verbose")
        assert reply.status == 200
        return b"[!]rules-file: the last good rules stay in use: " in reply.body

    async def listed(self) -> set[str]:
        """Return the external metrics in its discovery."""
        reply = await self.client.request_as_master(EXTERNAL)
        return {resource["name"] for resource in reply.json["resources"]}


@contextlib.asynccontextmanager
async def running_adapter(
    folder: Path,
    rules: str,
    *,
    authorities: Authorities,
    prometheus: str = "http://127.0.0.1:9",
    fresh: str = "5s",
    delay: str = "100ms",
    kubeconfig: Path | None = None,
    more: tuple[str, ...] = (),
) -> AsyncIterator[RunningAdapter]:
    """Run an adapter that authenticates client certificates.

    Its API server has some resources and nothing else, unless a kubeconfig says another one.
    """
    config = _written(folder, rules, authorities)
    pair = write_pair(folder, authorities.serving.issue("adapter", hosts=[LOOPBACK], server=True))
    client = ServedAdapter(folder, authorities, AccessApi(authorities))
    client.port = free_port()
    async with scripted_server() as api:
        api.handlers.update(RESOURCES)
        kubeconfig = kubeconfig or api.kubeconfig(folder)
        command = [sys.executable, "-m", "adapter", "serve", f"--config={config}", f"--prometheus-url={prometheus}"]
        command += [f"--{purpose}-kubeconfig={kubeconfig}" for purpose in ("lister", "authentication", "authorization")]
        command += [f"--bind-address={LOOPBACK}", f"--secure-port={client.port}", "--authentication-skip-lookup"]
        command += [f"--tls-cert-file={pair.cert}", f"--tls-private-key-file={pair.key}"]
        command += [f"--client-ca-file={folder / 'clients.pem'}", f"--metrics-freshness={fresh}"]
        command += [f"--shutdown-delay-duration={delay}"]
        command += [f"--requestheader-client-ca-file={folder / 'front-proxy.pem'}", *more]
        async with await ChildProcess.start("adapter", command, log=folder / "log") as process:
            yield RunningAdapter(client, process, config)
            assert await process.stop(grace=8) == 0
    assert "Traceback" not in (folder / "log").read_text()


def _written(folder: Path, rules: str, authorities: Authorities) -> Path:
    folder.mkdir()
    (folder / "clients.pem").write_bytes(authorities.clients.cert_pem)
    (folder / "front-proxy.pem").write_bytes(authorities.front_proxy.cert_pem)
    config = folder / "config.yaml"
    config.write_text(rules)
    return config


async def test_rules_are_reloaded_while_serving(tmp_path: Path) -> None:
    async def number(request: web.Request) -> web.StreamResponse:
        value = request.query["query"].removeprefix("vector(").removesuffix(")")
        return web.json_response({"status": "success", "data": {"resultType": "scalar", "result": [1.7e9, value]}})

    async with (
        scripted_server() as prometheus,
        running_adapter(tmp_path / "a", FIRST, authorities=Authorities(), prometheus=prometheus.url) as adapter,
    ):
        prometheus.handlers["/api/v1/query"] = number
        assert await eventually(lambda: adapter.serves("first", "7"), within=30)
        adapter.config.write_text("rules: [{}]")
        adapter.process.send_signal(signal.SIGHUP)
        assert await eventually(adapter.keeps_the_last_good_rules, within=30)
        assert await adapter.serves("first", "7")

        adapter.config.write_text(SECOND)
        adapter.process.send_signal(signal.SIGHUP)
        assert await eventually(lambda: adapter.serves("second", "8"), within=30)
        assert (await adapter.client.request_as_master(f"{EXTERNAL}/namespaces/shop/first")).status == 404
        groups = (await adapter.client.request_as_master("/apis")).json["groups"]
        assert {group["name"] for group in groups} >= {"custom.metrics.k8s.io", "external.metrics.k8s.io"}
        assert not await adapter.keeps_the_last_good_rules()

        metrics = (await adapter.client.request_as_master("/metrics")).body.decode()
        latency = "prometheus_adapter_prometheus_client_request_duration_seconds_count"
        for line in (
            f'{latency}{{path="/api/v1/query",server="default"}}',
            "milliscale_adapter_config_last_reload_successful 1.0",
            "# TYPE rest_client_request_retries_total counter",
            'milliscale_adapter_rule_metrics{rule="externalRules[0]"} 1.0',
            'metrics_apiserver_metric_freshness_seconds_count{group="external.metrics.k8s.io"}',
        ):
            assert line in metrics


PODS = """
rules:
- seriesQuery: packets_total
  resources: {overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}
  metricsQuery: 'max(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)'
"""
CUSTOM = "/apis/custom.metrics.k8s.io/v1beta2"


async def test_adapter_starts_without_prometheus_and_api_server(tmp_path: Path) -> None:
    """It is alive, serves discovery, is not ready, and reports why."""
    with bound_socket() as nobody:
        url = f"http://{LOOPBACK}:{nobody.getsockname()[1]}"
        kubeconfig = ScriptedServer(url=url).kubeconfig(tmp_path)
        async with running_adapter(
            tmp_path / "a", PODS, authorities=Authorities(), prometheus=url, kubeconfig=kubeconfig
        ) as adapter:

            async def not_ready() -> str:
                try:
                    reply = await adapter.client.request("/readyz?verbose")
                except OSError as error:
                    raise AssertionError("it does not listen yet") from error
                assert reply.status == 500
                assert b"[-]metrics failed: no good relist yet of rules[0]: " in reply.body
                return reply.body.decode()

            assert url.removeprefix("http://") not in await eventually(not_ready, within=30)
            assert (await adapter.client.request("/livez")).status == 200
            discovery = await adapter.client.request_as_master("/apis/custom.metrics.k8s.io/v1beta1")
            assert (discovery.status, discovery.json["resources"]) == (200, [])
            assert (await adapter.client.request_as_master("/apis/external.metrics.k8s.io/v1beta1")).status == 404
            path = f"{CUSTOM}/namespaces/a/pods/b/packets_total"
            bob = adapter.client.authorities.clients.issue("bob", client=True)
            for reply in (
                await adapter.client.request_as_master(path),
                await adapter.client.request(path, certificate=bob),
            ):
                assert (reply.status, reply.json["reason"]) == (503, "ServiceUnavailable")


async def test_sigterm_serves_for_the_delay_and_finishes_requests_in_flight(tmp_path: Path) -> None:
    async with scripted_server() as prometheus:
        held = Held(respond(SEVEN))
        prometheus.handlers["/api/v1/query"] = held
        async with running_adapter(
            tmp_path / "a", FIRST, authorities=Authorities(), prometheus=prometheus.url, fresh="0s", delay="2s"
        ) as adapter:

            async def is_ready() -> bool:
                try:
                    return (await adapter.client.request("/readyz")).status == 200
                except OSError as error:
                    raise AssertionError("it does not listen yet") from error

            async def is_unready() -> bool:
                return (await adapter.client.request("/readyz")).status == 500

            async def refuses() -> bool:
                try:
                    await adapter.client.request("/livez")
                except OSError:
                    return True
                return False

            assert await eventually(is_ready, within=30)
            adapter.process.send_signal(signal.SIGTERM)
            assert await eventually(is_unready, within=10, every=0.01)
            asking = asyncio.create_task(adapter.serves("first", "7"))
            await asyncio.wait_for(held.arrived.wait(), 60)
            assert await eventually(refuses, within=10)
            held.open.set()
            assert await asking
            async with asyncio.timeout(60):
                assert await adapter.process.wait() == 0
