"""Reading the adapter's settings, and reaching its Prometheus."""

from typing import Any

import click
import pytest

from kubectl_milliscale.adapter_settings import AdapterSettings, reachable_prometheus, read_settings
from tests.kubectl_milliscale.prepared_kubectl import PreparedKubectl

DEPLOYMENTS = "/apis/apps/v1/namespaces/milliscale/deployments"
CONFIG_MAP = "/api/v1/namespaces/milliscale/configmaps/rules-5f7"
SIDECAR = {"name": "proxy", "args": ["--verbose"]}


def settings(*arguments: str, data: dict[str, str] | None = None, mount: str = "/etc/milliscale") -> AdapterSettings:
    """Return the settings of an adapter with this command line."""
    container = {
        "name": "adapter",
        "command": ["milliscale-adapter", "serve"],
        "args": list(arguments),
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}, {"name": "rules", "mountPath": mount}],
    }
    volumes = [{"name": "tmp", "emptyDir": {}}, {"name": "rules", "configMap": {"name": "rules-5f7"}}]
    deployment = {
        "metadata": {"name": "adapter"},
        "spec": {"template": {"spec": {"containers": [SIDECAR, container], "volumes": volumes}}},
    }
    objects: dict[str, Any] = {
        DEPLOYMENTS: {"items": [deployment]},
        CONFIG_MAP: {"data": {"rules.yaml": "rules: []"} if data is None else data},
    }
    return read_settings(PreparedKubectl(objects=objects), "milliscale")


def test_flags_and_rules_are_those_of_the_deployment() -> None:
    found = settings(
        "--prometheus-url=http://prometheus:9090/",
        "--prometheus-header=X-Scope-OrgID=shop",
        "--config",
        "/etc/milliscale/rules.yaml",
        "--metrics-relist-interval=1m",
        "--secure-port=6443",
        "--flag-of-another-version=1",
    )
    assert found == AdapterSettings(
        flags={
            "prometheus_url": "http://prometheus:9090/",
            "prometheus_headers": (("X-Scope-OrgID", "shop"),),
            "metrics_relist_interval": 60.0,
        },
        credentials=(),
        rules="rules: []",
    )


def test_config_map_may_be_mounted_as_a_file() -> None:
    assert settings("--config=/etc/rules.yaml", mount="/etc/rules.yaml").rules == "rules: []"


def test_credentials_of_the_pod_are_named() -> None:
    found = settings("--config=/etc/milliscale/rules.yaml", "--prometheus-auth-incluster", "--prometheus-token-file=/t")
    assert found.credentials == ("--prometheus-token-file", "--prometheus-auth-incluster")


@pytest.mark.parametrize(
    ("arguments", "data", "problem"),
    [
        (["--config=/elsewhere/rules.yaml"], None, "/elsewhere/rules.yaml is not in a ConfigMap"),
        (["--config=/etc/milliscale/other.yaml"], None, "has no other.yaml"),
        (["--prometheus-url=http://p"], None, "no container has the flag --config"),
    ],
)
def test_rules_that_cannot_be_found_are_an_error(arguments: list[str], data: Any, problem: str) -> None:
    with pytest.raises(click.ClickException, match=f"{problem}; give --prometheus-url and --config"):
        settings(*arguments, data=data)


def test_no_deployment_is_an_error_that_names_the_flag() -> None:
    with pytest.raises(
        click.ClickException, match=r"no Deployment of the adapter in namespace milliscale.*--adapter-namespace"
    ):
        read_settings(PreparedKubectl(objects={DEPLOYMENTS: {"items": []}}), "milliscale")


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
        (
            "http://user:secret@prometheus:9090",
            "milliscale service/prometheus 9090",
            "http://user:secret@127.0.0.1:4000",
        ),
    ],
)
def test_service_of_the_cluster_is_forwarded(url: str, forwarded: str, reachable: str) -> None:
    kubectl = PreparedKubectl(objects={})
    with reachable_prometheus(kubectl, url, namespace="milliscale", verified=True) as found:
        assert found == reachable
    assert kubectl.forwarded == [forwarded]


@pytest.mark.parametrize("url", ["https://prometheus.shop.example/", "http://10.0.0.7:9090", "http://localhost:9090"])
def test_other_hosts_are_not_forwarded(url: str) -> None:
    kubectl = PreparedKubectl(objects={})
    with reachable_prometheus(kubectl, url, namespace="milliscale", verified=True) as found:
        assert found == url
    assert kubectl.forwarded == []


def test_https_of_a_service_needs_a_flag() -> None:
    url, kubectl = "https://prometheus.monitoring.svc:9091", PreparedKubectl(objects={})
    with (
        pytest.raises(click.ClickException, match="give --prometheus-insecure-skip-tls-verify"),
        reachable_prometheus(kubectl, url, namespace="milliscale", verified=True),
    ):
        pytest.fail("it was forwarded")
    with reachable_prometheus(kubectl, url, namespace="milliscale", verified=False) as found:
        assert found == "https://127.0.0.1:4000"
