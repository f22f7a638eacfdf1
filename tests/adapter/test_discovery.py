"""Discovery, the paths at the root and /version: what tests.golden has no recording of."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.adapter.serving import ServedAdapter, served_adapter

E = "/apis/external.metrics.k8s.io/v1beta1"


async def test_group_list_has_the_port_of_the_listener(new_adapter: ServedAdapter) -> None:
    groups = (await new_adapter.request_as_master("/apis")).json["groups"]
    addresses = [{"clientCIDR": "0.0.0.0/0", "serverAddress": f":{new_adapter.port}"}]
    assert [one["serverAddressByClientCIDRs"] for one in groups] == [addresses] * 2


@pytest.mark.parametrize("version", ["v2", "v2beta1"])
async def test_aggregated_discovery(tmp_path: Path, version: str) -> None:
    def metric(name: str, version: str) -> dict[str, Any]:
        kind = {"group": "custom.metrics.k8s.io", "version": version, "kind": "MetricValueList"}
        return {"subresource": name, "responseKind": kind, "verbs": ["get"]}

    def resource(name: str, scope: str, *metrics: dict[str, Any]) -> dict[str, Any]:
        nothing = {"group": "", "version": "", "kind": ""}
        return {
            "resource": name,
            "responseKind": nothing,
            "scope": scope,
            "singularResource": "",
            "verbs": [],
            "subresources": list(metrics),
        }

    def custom(version: str) -> dict[str, Any]:
        return {
            "version": version,
            "freshness": "Current",
            "resources": [
                resource("pods", "Namespaced", metric("http_packets_per_second", version)),
                resource("nodes", "Cluster", metric("node_load", version)),
                resource("ingresses.networking.k8s.io", "Namespaced", metric("hits", version)),
            ],
        }

    media_type = f"application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList"
    async with served_adapter(tmp_path) as adapter:
        reply = await adapter.request_as_master("/apis", headers={"Accept": f"{media_type},application/json"})
        assert (reply.status, reply.content_type) == (200, media_type)
        external_kind = {"group": "external.metrics.k8s.io", "version": "v1beta1", "kind": "ExternalMetricValueList"}
        assert reply.json == {
            "kind": "APIGroupDiscoveryList",
            "apiVersion": f"apidiscovery.k8s.io/{version}",
            "metadata": {},
            "items": [
                {"metadata": {"name": "custom.metrics.k8s.io"}, "versions": [custom("v1beta2"), custom("v1beta1")]},
                {
                    "metadata": {"name": "external.metrics.k8s.io"},
                    "versions": [
                        {
                            "version": "v1beta1",
                            "freshness": "Current",
                            "resources": [
                                {
                                    "resource": "queue_depth",
                                    "responseKind": external_kind,
                                    "scope": "Namespaced",
                                    "singularResource": "",
                                    "verbs": ["get"],
                                }
                            ],
                        }
                    ],
                },
            ],
        }


async def test_aggregated_discovery_is_sent_again_only_when_it_has_changed(tmp_path: Path) -> None:
    headers = {"Accept": "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"}
    async with served_adapter(tmp_path) as adapter:
        first = await adapter.request_as_master("/apis", headers=headers)
        again = headers | {"If-None-Match": first.headers["ETag"]}
        unchanged = await adapter.request_as_master("/apis", headers=again)
        assert (unchanged.status, unchanged.body, unchanged.headers["ETag"]) == (304, b"", first.headers["ETag"])
        adapter.names.external_metrics = ("queue_depth", "backlog")
        changed = await adapter.request_as_master("/apis", headers=again)
        assert changed.status == 200
        assert changed.headers["ETag"] != first.headers["ETag"]


async def test_unknown_form_of_discovery_falls_back(tmp_path: Path) -> None:
    wanted = "application/json;g=apidiscovery.k8s.io;v=v3;as=APIGroupDiscoveryList"
    async with served_adapter(tmp_path) as adapter:
        reply = await adapter.request_as_master("/apis", headers={"Accept": f"{wanted},application/json"})
        assert (reply.content_type, reply.json["kind"]) == ("application/json", "APIGroupList")
        assert (await adapter.request_as_master("/apis", headers={"Accept": wanted})).status == 406


async def test_discovery_follows_the_catalog_without_queries(new_adapter: ServedAdapter) -> None:
    new_adapter.names.external_metrics = ()
    new_adapter.names.problem = "Prometheus has not answered yet"
    assert (await new_adapter.request_as_master(E)).json["resources"] == []
    assert new_adapter.metrics.requests == []


async def test_paths(new_adapter: ServedAdapter) -> None:
    root = await new_adapter.request_as_master("/")
    nowhere = await new_adapter.request_as_master("/nosuch")
    assert (root.status, nowhere.status) == (200, 404)
    assert root.json == nowhere.json
    assert {"/apis/custom.metrics.k8s.io/v1beta2", "/healthz", "/metrics", "/readyz/catalog", "/version"} <= set(
        root.json["paths"]
    )
    assert (await new_adapter.request_as_master("/apis/apps/v1")).json == root.json


@pytest.mark.parametrize("accept", ["", "*/*", "application/json;q=0", "text/html, application/json"])
async def test_the_version_is_json(new_adapter: ServedAdapter, accept: str) -> None:
    reply = await new_adapter.request_as_master("/version", headers={"Accept": accept})
    assert (reply.status, reply.content_type) == (200, "application/json")


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        ("text/html", "application/json"),
        ("application/*", "application/json"),
        ("application/yaml", "application/yaml"),
    ],
)
async def test_the_version_is_nothing_but_json(new_adapter: ServedAdapter, accept: str, content_type: str) -> None:
    reply = await new_adapter.request_as_master("/version", headers={"Accept": accept})
    assert (reply.status, reply.content_type) == (406, content_type)
    document = yaml.safe_load(reply.body)
    assert document["message"] == "406: Not Acceptable\n\nAvailable representations: application/json"


async def test_version(new_adapter: ServedAdapter) -> None:
    document = (await new_adapter.request_as_master("/version")).json
    assert document["gitVersion"] == f"v{document['major']}.{document['minor']}.0"
