"""Flags and rules of the running processes, and reaching the adapter's Prometheus."""

import asyncio
import dataclasses
import json
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest import mock

import click
import msgspec
import pytest
from click.testing import CliRunner, Result

from adapter.commands.diagnose import check
from autoscaler.commands.debug_client import get_page
from kube.process.config_page import CONFIG_PATH, ConfigPage
from kubectl_milliscale.flags import borrow_flags
from kubectl_milliscale.running_config import fill_in_autoscaler, fill_in_prometheus, reachable_prometheus
from replay.commands import replay
from tests.adapter.serving import served_adapter
from tests.kubectl_milliscale.prepared_kubectl import PreparedKubectl

URL = "http://prometheus.monitoring:9090/"
RULES: dict[str, Any] = {"rules": []}
OTHER_PAGES: tuple[object, ...] = ([], b"\xff", b'{"rules":' + b"[" * 100_000)


class Adapter:
    """Runs a command whose flags about Prometheus are filled in; `page` is what the adapter has under /debug/config."""

    def __init__(self, page: object, *, status: int = 200) -> None:
        self.page, self.status = page if isinstance(page, bytes) else json.dumps(page).encode(), status
        pods = {"items": [{"metadata": {"name": "adapter-1"}, "status": {"phase": "Running"}}]}
        self.kubectl = PreparedKubectl(objects={"/api/v1/namespaces/milliscale/pods": pods})
        self.values: dict[str, Any] = {}
        self.rules: Any = None

    def run(self, *arguments: str, page: Callable[..., Awaitable[bytes]] | None = None) -> Result:
        """Run the command; `page` returns a page, without it that of the adapter is prepared."""

        @borrow_flags(check, without=("config",))
        @click.command()
        @click.option("--config", type=click.Path(path_type=Path))
        def command(**values: Any) -> None:
            with ExitStack() as stack:
                fill_in_prometheus(values, stack, self.kubectl, rules="config")
                self.values, self.rules = values, json.loads(values["config"].read_text())

        async def prepared(url: str, *, verified: bool) -> bytes:
            assert (url, verified) == ("https://127.0.0.1:4000/debug/config", False)
            if self.status != 200:
                raise click.ClickException(f"{url}: Forbidden ({self.status})")
            return self.page

        with mock.patch("kubectl_milliscale.running_config.get_page", page or prepared):
            return CliRunner().invoke(command, arguments)


def adapter(*, rules: object = RULES, **flags: object) -> Adapter:
    given = {name.replace("_", "-"): text for name, text in flags.items()}
    return Adapter({"version": 1, "flags": given, "rules": rules})


def test_flags_and_rules_are_those_of_the_adapter_unless_they_are_given() -> None:
    running = adapter(
        prometheus_url=URL,
        prometheus_verb="POST",
        prometheus_insecure_skip_tls_verify="true",
        metrics_relist_interval="1m",
        secure_port="6443",
        prometheus_flag_of_another_version="1",
        prometheus_partial_responses="of another version",
    )
    result = running.run("--metrics-max-age=5m")
    assert (result.exit_code, result.output) == (0, "")
    assert running.rules == RULES
    names = ("prometheus_url", "prometheus_verb", "prometheus_insecure_skip_tls_verify", "prometheus_partial_responses")
    assert [running.values[name] for name in names] == ["http://127.0.0.1:4000/", "POST", True, "fail"]
    assert (running.values["metrics_relist_interval"], running.values["metrics_max_age"]) == (60.0, 300.0)
    assert running.kubectl.forwarded == ["milliscale pod/adapter-1 https", "monitoring service/prometheus 9090"]


def test_given_rules_are_used_with_the_prometheus_of_the_adapter(tmp_path: Path) -> None:
    file = tmp_path / "rules.json"
    file.write_text('{"externalRules": []}')
    running = adapter(prometheus_url=URL)
    assert running.run(f"--config={file}").exit_code == 0
    assert (running.rules, running.values["prometheus_url"]) == ({"externalRules": []}, "http://127.0.0.1:4000/")


def test_what_only_the_pod_has_or_is_secret_is_named() -> None:
    running = adapter(
        prometheus_url=URL,
        prometheus_token_file="/t",
        prometheus_auth_incluster="true",
        prometheus_header=["X-Scope-OrgID=<secret>"],
    )
    flags = "--prometheus-token-file and --prometheus-auth-incluster and --prometheus-header"
    result = running.run()
    assert result.stderr == f"Note: the adapter has {flags}; give the same here if Prometheus needs it\n"
    assert (running.values["prometheus_token_file"], running.values["prometheus_headers"]) == (None, ())


def test_secrets_in_rules_are_left_out_with_a_note() -> None:
    hidden = {"url": "https://<secret>@mimir.example/?<secret>", "headers": {"X-Scope-OrgID": "<secret>"}}
    running = adapter(rules={**RULES, "prometheusServers": {"mimir": hidden}}, prometheus_url=URL)
    assert "of the adapter's rules are not known here" in running.run().stderr
    assert running.rules == {**RULES, "prometheusServers": {"mimir": {"url": "https://mimir.example/", "headers": {}}}}


@pytest.mark.parametrize(
    ("running", "problem"),
    [
        (adapter(), "the adapter has no --prometheus-url; give it here"),
        (adapter(prometheus_url="http://<secret>@p"), "the adapter has a secret in --prometheus-url; give it here"),
        (
            adapter(rules=None, prometheus_url=URL),
            "the rules of pod adapter-1 cannot be read: its rules file is invalid; ",
        ),
        *((Adapter(page), "cannot be read: the response is not the adapter's configuration: ") for page in OTHER_PAGES),
    ],
)
def test_unusable_configuration_is_an_error(running: Adapter, problem: str) -> None:
    result = running.run()
    assert result.exit_code == 1
    assert problem in result.output


async def test_configuration_is_read_from_a_pod_without_credentials(tmp_path: Path) -> None:
    running = adapter(prometheus_url=URL)

    async def config(_: object, __: object) -> ConfigPage:
        return msgspec.json.decode(running.page, type=ConfigPage)

    async with served_adapter(tmp_path, local_paths=[CONFIG_PATH]) as served:
        served.debug.pages = mock.Mock(respond=config)
        running.kubectl = dataclasses.replace(running.kubectl, port=served.port)
        result = await asyncio.to_thread(running.run, page=get_page)
        assert served.api.reviews == []
        assert (result.exit_code, result.stderr) == (0, "")
        assert running.rules == RULES


async def test_error_of_an_adapter_that_refuses_the_page_is_a_sentence(tmp_path: Path) -> None:
    running = adapter(prometheus_url=URL)
    async with served_adapter(tmp_path) as served:
        running.kubectl = dataclasses.replace(running.kubectl, port=served.port)
        result = await asyncio.to_thread(running.run, page=get_page)
    forbidden = 'forbidden: User "system:anonymous" cannot get path "/debug/config" (403)'
    assert result.stderr.startswith(
        f"Error: the rules of pod adapter-1 cannot be read: pod adapter-1/debug/config: {forbidden}; give --prom"
    )


def test_what_an_adapter_does_not_show_must_be_given_and_the_error_says_how() -> None:
    result = Adapter({}, status=403).run()
    assert result.exit_code == 1
    assert result.stderr.startswith(
        "Error: the rules of pod adapter-1 cannot be read: pod adapter-1/debug/config: Forbidden (403); give "
        "--prometheus-url, and --config with a file like its rules file, which `kubectl get configmaps -n milliscale"
    )


def test_flags_of_decisions_are_those_of_the_autoscaler_unless_they_are_given(monkeypatch: pytest.MonkeyPatch) -> None:
    flags = {
        "horizontal-pod-autoscaler-tolerance": "0.2",
        "horizontal-pod-autoscaler-downscale-stabilization": "1m",
        "horizontal-pod-autoscaler-sync-period": "30s",
        "kubeconfig": "/etc/kubeconfig",
    }

    async def get_page(url: str, **_: object) -> bytes:
        assert url == "http://127.0.0.1:4000/debug/config"
        return msgspec.json.encode(ConfigPage(flags=flags))

    monkeypatch.setattr("kubectl_milliscale.running_config.get_page", get_page)
    pods = {"items": [{"metadata": {"name": "autoscaler-1"}, "status": {"phase": "Running"}}]}
    kubectl = PreparedKubectl(objects={"/api/v1/namespaces/milliscale/pods": pods})
    found: dict[str, Any] = {}

    @borrow_flags(replay, without=("hpas",))
    @click.command()
    def command(**values: Any) -> None:
        fill_in_autoscaler(values, kubectl)
        found.update(values)

    result = CliRunner().invoke(command, ["--horizontal-pod-autoscaler-tolerance=0.3"])
    assert (result.exit_code, result.output) == (0, "")
    names = ("tolerance", "downscale_stabilization_ms", "step", "kubeconfig")
    assert [found[name] for name in names] == [0.3, 60_000, 30.0, None]


def test_autoscaler_that_cannot_be_read_is_a_note() -> None:
    @borrow_flags(replay, without=("hpas",))
    @click.command()
    def command(**values: Any) -> None:
        fill_in_autoscaler(values, PreparedKubectl(objects={}))

    result = CliRunner().invoke(command)
    assert result.exit_code == 0
    assert result.stderr.startswith("Note: the flags of the controller are the defaults: Error from server (NotFound)")


@pytest.mark.parametrize(
    ("url", "forwarded", "reachable"),
    [
        (
            "http://prometheus-k8s.monitoring.svc:9090/",
            "monitoring service/prometheus-k8s 9090",
            "http://127.0.0.1:4000/",
        ),
        ("http://p.m.svc.cluster.local/prefix/", "m service/p 80", "http://127.0.0.1:4000/prefix/"),
        ("http://p.m:9090", "m service/p 9090", "http://127.0.0.1:4000"),
        ("http://prometheus:9090", "milliscale service/prometheus 9090", "http://127.0.0.1:4000"),
    ],
)
def test_service_of_the_cluster_is_forwarded(url: str, forwarded: str, reachable: str) -> None:
    kubectl = PreparedKubectl(objects={})
    with reachable_prometheus(kubectl, url, verified=True) as found:
        assert found == reachable
    assert kubectl.forwarded == [forwarded]


@pytest.mark.parametrize(
    "url", ["https://prometheus.shop.example/", "http://10.0.0.7:9090", "http://localhost:9090", "http://[::1]:9090"]
)
def test_other_hosts_are_not_forwarded(url: str) -> None:
    kubectl = PreparedKubectl(objects={})
    with reachable_prometheus(kubectl, url, verified=True) as found:
        assert found == url
    assert kubectl.forwarded == []


def test_https_of_a_service_needs_a_flag() -> None:
    url, kubectl = "https://prometheus.monitoring.svc:9091", PreparedKubectl(objects={})
    with (
        pytest.raises(click.ClickException, match="give --prometheus-insecure-skip-tls-verify"),
        reachable_prometheus(kubectl, url, verified=True),
    ):
        pytest.fail("it was forwarded")
    with reachable_prometheus(kubectl, url, verified=False) as found:
        assert found == "https://127.0.0.1:4000"
