"""The whole process: its rules file is swapped while it serves, on SIGHUP without delay."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

from kube.certs import CertificateAuthority
from playground.ports import LOOPBACK, free_port
from playground.processes import ChildProcess
from playground.prometheus import PrometheusServer
from tests.adapter.metrics_bed import RESOURCES
from tests.adapter.serving import AccessApi, Authorities, ServedAdapter, write_pair
from tests.eventually import eventually
from tests.kube.scripted import scripted_server

pytestmark = pytest.mark.e2e

FIRST = "externalRules: [{name: first, query: 'vector(7)'}]"
SECOND = """
externalRules: [{name: second, query: 'vector(8)'}]
rules: [{name: heat, query: 'vector(9)', resources: {node: node}}]
"""
EXTERNAL = "/apis/external.metrics.k8s.io/v1beta1"


async def test_rules_are_swapped_under_a_running_process(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(FIRST)
    authorities = Authorities()
    clients: CertificateAuthority = authorities.clients
    (tmp_path / "clients.pem").write_bytes(clients.cert_pem)
    pair = write_pair(tmp_path, authorities.serving.issue("adapter", hosts=[LOOPBACK], server=True))
    adapter = ServedAdapter(tmp_path, authorities, AccessApi(authorities))
    adapter.port = free_port()
    async with scripted_server() as api, PrometheusServer(tmp_path / "prometheus") as prometheus:
        api.answers.update(RESOURCES)
        kubeconfig = api.kubeconfig(tmp_path)
        command = [sys.executable, "-m", "adapter", "serve", f"--config={config}", f"--prometheus-url={prometheus.url}"]
        command += [f"--{purpose}-kubeconfig={kubeconfig}" for purpose in ("lister", "authentication", "authorization")]
        command += [f"--bind-address={LOOPBACK}", f"--secure-port={adapter.port}", "--authentication-skip-lookup"]
        command += [f"--tls-cert-file={pair.cert}", f"--tls-private-key-file={pair.key}"]
        command += [f"--client-ca-file={tmp_path / 'clients.pem'}"]
        async with await ChildProcess.start("adapter", command, log=tmp_path / "log") as process:

            async def value_of(metric: str) -> str:
                try:
                    reply = await adapter.ask_as_master(f"{EXTERNAL}/namespaces/shop/{metric}")
                except OSError as error:
                    raise AssertionError("it does not listen yet") from error
                assert reply.status == 200, reply.body
                return str(reply.json["items"][0]["value"])

            async def remark() -> bool:
                reply = await adapter.ask("/readyz?verbose")
                assert reply.status == 200
                return b"[+]rules-file ok: the last good rules stay in force: " in reply.body

            assert await eventually(lambda: value_of("first"), within=30) == "7"
            config.write_text("rules: [{}]")
            process.send_signal(signal.SIGHUP)
            assert await eventually(remark, within=4, every=0.02)
            assert await value_of("first") == "7"

            config.write_text(SECOND)
            process.send_signal(signal.SIGHUP)
            assert await eventually(lambda: value_of("second"), within=4, every=0.02) == "8"
            assert (await adapter.ask_as_master(f"{EXTERNAL}/namespaces/shop/first")).status == 404
            groups = (await adapter.ask_as_master("/apis")).json["groups"]
            assert {group["name"] for group in groups} >= {"custom.metrics.k8s.io", "external.metrics.k8s.io"}
            assert not await remark()

            metrics = (await adapter.ask_as_master("/metrics")).body.decode()
            for line in (
                'prometheus_adapter_prometheus_client_request_duration_seconds_count{path="/api/v1/query",server="default"}',
                "milliscale_adapter_config_last_reload_successful 1.0",
                'milliscale_adapter_rule_metrics{rule="externalRules[0]"} 1.0',
                'metrics_apiserver_metric_freshness_seconds_count{group="external.metrics.k8s.io"}',
            ):
                assert line in metrics
            assert await process.stop(grace=8) == 0
    assert "Traceback" not in (tmp_path / "log").read_text()
