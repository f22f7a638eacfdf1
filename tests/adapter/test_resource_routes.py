"""The paths of metrics.k8s.io: content negotiation, lists, single objects and tables."""

from __future__ import annotations

from typing import Any, cast

import msgspec
import pytest

from adapter.content.values import ObjectUsage, Usage
from adapter.serving.routes import Response
from adapter.serving.usage_routes import usage_response
from kube.api.status import StatusError
from kube.values.selectors import LabelSelector
from tests.adapter.serving import SAMPLED_AT, SAMPLED_TEXT, parsed_request

MEBI_MILLI = 1000 * 2**20
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
OLD_TABLE = "application/json;as=Table;v=v1beta1;g=meta.k8s.io"
KUBECTL = f"{TABLE},application/json"

POD = ObjectUsage(
    namespace="shop",
    name="web-0",
    labels={"app": "web"},
    timestamp=SAMPLED_AT,
    window_seconds=300.0,
    containers=(
        Usage(cpu_milli=250, memory_milli=64 * MEBI_MILLI, container="app"),
        Usage(cpu_milli=50, memory_milli=16 * MEBI_MILLI, container="proxy"),
    ),
)
NODE = ObjectUsage(
    name="node-a",
    labels={"zone": "north"},
    timestamp=SAMPLED_AT,
    window_seconds=90.0,
    containers=(Usage(cpu_milli=1500, memory_milli=2048 * MEBI_MILLI),),
)
POD_METADATA = {"name": "web-0", "creationTimestamp": SAMPLED_TEXT, "namespace": "shop", "labels": {"app": "web"}}


class Cluster:
    """One pod and one node, whatever is selected."""

    async def usages(
        self, resource: str, *, namespace: str, selector: LabelSelector, name: str = "", deadline: float
    ) -> list[ObjectUsage]:
        one = POD if resource == "pods" else NODE
        return [one] if namespace in ("", one.namespace) and name in ("", one.name) else []


async def requested(path: str, accept: str, *, method: str = "GET") -> Response:
    request = parsed_request(
        f"/apis/metrics.k8s.io/v1beta1/{path}", method=method, accept=accept, user_agent="kubectl/v1.36.0"
    )
    return await usage_response(cast("Any", Cluster()), request, request.target.segments[3:])


async def document(path: str, accept: str) -> Any:
    response = await requested(path, accept)
    assert (response.status, response.content.content_type) == (200, "application/json")
    return msgspec.json.decode(response.content.body)


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("pods", "PodMetricsList"),
        ("namespaces/shop/pods", "PodMetricsList"),
        ("namespaces/shop/pods/web-0", "PodMetrics"),
        ("nodes", "NodeMetricsList"),
        ("nodes/node-a", "NodeMetrics"),
    ],
)
@pytest.mark.parametrize(
    ("accept", "version"),
    [
        pytest.param("", None, id="nothing said"),
        pytest.param("application/json", None, id="json"),
        pytest.param(KUBECTL, "v1", id="kubectl"),
        pytest.param(f"{TABLE},{OLD_TABLE},application/json", "v1", id="kubectl of old"),
        pytest.param(OLD_TABLE, "v1beta1", id="the old version"),
        pytest.param(f"{TABLE};q=0.5,application/json", None, id="rather not a table"),
        pytest.param(f"{TABLE};q=0.5,application/json;q=0.1", "v1", id="rather a table"),
        pytest.param("application/json;as=Table;v=v2;g=meta.k8s.io,application/json", None, id="an unknown version"),
        pytest.param("application/json;as=Table;v=v1;g=other,application/json", None, id="an unknown group"),
    ],
)
async def test_table_is_sent_if_it_is_preferred(path: str, kind: str, accept: str, version: str | None) -> None:
    found = await document(path, accept)
    expected = (kind, "metrics.k8s.io/v1beta1") if version is None else ("Table", f"meta.k8s.io/{version}")
    assert (found["kind"], found["apiVersion"]) == expected


@pytest.mark.parametrize("path", ["pods", "namespaces/shop/pods/web-0"])
async def test_a_table_of_pods_is_that_of_metrics_server(path: str) -> None:
    """The form is that of metrics-server's pkg/api/table.go, as k8s.io/apiserver writes it."""
    partial = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": POD_METADATA}
    assert await document(path, KUBECTL) == {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {},
        "columnDefinitions": [
            {"name": "Name", "type": "string", "format": "name", "description": "Name of the resource", "priority": 0},
            {"name": "cpu", "type": "string", "format": "quantity", "description": "", "priority": 0},
            {"name": "memory", "type": "string", "format": "quantity", "description": "", "priority": 0},
            {"name": "Window", "type": "string", "format": "duration", "description": "", "priority": 0},
        ],
        "rows": [{"cells": ["web-0", "300m", "80Mi", "5m0s"], "object": partial}],
    }


@pytest.mark.parametrize("path", ["nodes", "nodes/node-a"])
async def test_a_table_of_nodes(path: str) -> None:
    table = await document(path, KUBECTL)
    assert [row["cells"] for row in table["rows"]] == [["node-a", "1500m", "2Gi", "1m30s"]]


@pytest.mark.parametrize(
    ("include", "kind"),
    [("", "PartialObjectMetadata"), ("Metadata", "PartialObjectMetadata"), ("Object", "PodMetrics"), ("None", None)],
)
async def test_include_object(include: str, kind: str | None) -> None:
    table = await document(f"pods?includeObject={include}", KUBECTL)
    beside = table["rows"][0]["object"]
    assert (beside and beside["kind"]) == kind
    if beside:
        assert beside["metadata"] == POD_METADATA


async def test_a_table_of_nothing_has_no_rows() -> None:
    assert (await document("namespaces/empty/pods", KUBECTL))["rows"] == []


@pytest.mark.parametrize(
    ("method", "path", "accept", "code", "message"),
    [
        (
            "GET",
            "pods?includeObject=All",
            KUBECTL,
            400,
            'Unable to convert to Table as requested: includeObject: Invalid value: "All": must be',
        ),
        ("GET", "namespaces/shop/pods/nosuch", KUBECTL, 404, 'pods.metrics.k8s.io "shop/nosuch" not found'),
        ("GET", "pods", "application/json;as=Table;v=v2;g=meta.k8s.io", 406, "only the following media types are"),
        ("POST", "pods", KUBECTL, 405, "the server does not allow this method"),
        ("GET", "pods?watch=true", KUBECTL, 405, "the server does not allow this method"),
    ],
)
async def test_errors(method: str, path: str, accept: str, code: int, message: str) -> None:
    with pytest.raises(StatusError) as refused:
        await requested(path, accept, method=method)
    assert refused.value.code == code
    assert str(refused.value.body()["message"]).startswith(message)


async def test_include_object_is_ignored_without_a_table() -> None:
    assert (await document("pods?includeObject=All", "application/json"))["kind"] == "PodMetricsList"
