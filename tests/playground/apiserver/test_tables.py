"""Tables have the cells that `kubectl get` of Kubernetes 1.36 prints."""

import datetime
from typing import Any

import pytest

from kube.api.client import KubeClient
from kube.api.status import StatusError
from playground.apiserver import PlaygroundApiServer
from playground.apiserver.encoding import Form
from playground.apiserver.resource_types import find_resource_type
from playground.apiserver.tables import human_duration, table_of
from tests.objects import deployment, hpa, pod
from tests.replay.builders import cpu_metric, external_metric, object_metric, pods_metric

NOW = datetime.datetime(2026, 1, 1, 12, tzinfo=datetime.UTC)
CREATED = "2026-01-01T11:00:00Z"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-1, "0s"), (0, "0s"), (119, "119s"), (120, "2m"), (125, "2m5s"), (600, "10m"), (3 * 3600 - 1, "179m")],
)
def test_ages_are_in_minutes_and_seconds(seconds: float, text: str) -> None:
    assert human_duration(seconds) == text


def cells(group: str, version: str, plural: str, obj: dict[str, Any]) -> dict[str, Any]:
    """Return the cells of an object's row, by column."""
    kind = find_resource_type(group, version, plural)
    assert kind is not None
    obj["metadata"]["creationTimestamp"] = CREATED
    table = table_of(kind, [obj], Form("Table"), metadata={}, include="None", now=NOW)
    columns = [column["name"] for column in table["columnDefinitions"]]
    return dict(zip(columns, table["rows"][0]["cells"], strict=True))


EXTERNAL, CPU = external_metric("q", averageValue="5"), cpu_metric()


@pytest.mark.parametrize(
    ("metrics", "current", "text"),
    [
        ([pods_metric("pps", "10")], None, "<unknown>/10"),
        ([pods_metric("pps", "10")], [{"type": "Pods", "pods": {"current": {"averageValue": "12500m"}}}], "12500m/10"),
        ([object_metric(value="100")], [{"type": "Object", "object": {"current": {"value": "80"}}}], "80/100"),
        ([object_metric(averageValue="9")], [], "<unknown>/9 (avg)"),
        ([EXTERNAL], [{"type": "External", "external": {"current": {"averageValue": "7"}}}], "7/5 (avg)"),
        ([CPU], [{"type": "Resource", "resource": {"current": {"averageUtilization": 70}}}], "cpu: 70%/50%"),
        ([EXTERNAL, CPU], [{"type": ""}], "<unknown>/5 (avg), cpu: <unknown>/50%"),
        ([pods_metric("a", "1"), EXTERNAL, CPU, CPU], None, "<unknown>/1, <unknown>/5 (avg) + 2 more..."),
    ],
)
def test_hpa_row_has_current_values_and_targets(metrics: list[Any], current: list[Any] | None, text: str) -> None:
    obj = hpa(metrics=metrics, minReplicas=1)
    obj["status"] = {"currentReplicas": 2, "currentMetrics": current}
    assert cells("autoscaling", "v2", "horizontalpodautoscalers", obj) == {
        "Name": "web",
        "Reference": "Deployment/web",
        "Targets": text,
        "MinPods": "1",
        "MaxPods": 5,
        "Replicas": 2,
        "Age": "60m",
    }


def test_deployment_row() -> None:
    obj = deployment(replicas=3)
    obj["status"] = {"readyReplicas": 2, "updatedReplicas": 3, "availableReplicas": 2}
    row = cells("apps", "v1", "deployments", obj)
    assert row == {"Name": "web", "Ready": "2/3", "Up-to-date": 3, "Available": 2, "Age": "60m"}


@pytest.mark.parametrize(
    ("status", "deleting", "ready", "text"),
    [
        ({"phase": "Pending"}, False, "0/1", "Pending"),
        ({"phase": "Running", "containerStatuses": [{"ready": True}]}, False, "1/1", "Running"),
        ({"phase": "Running", "containerStatuses": [{"ready": True}]}, True, "1/1", "Terminating"),
        (
            {"phase": "Running", "containerStatuses": [{"state": {"waiting": {"reason": "CrashLoopBackOff"}}}]},
            False,
            "0/1",
            "CrashLoopBackOff",
        ),
        ({"phase": "Failed", "reason": "Evicted"}, False, "0/1", "Evicted"),
    ],
)
def test_pod_row(status: dict[str, Any], deleting: bool, ready: str, text: str) -> None:
    obj = {**pod("p"), "status": status}
    if deleting:
        obj["metadata"]["deletionTimestamp"] = CREATED
    row = cells("", "v1", "pods", obj)
    assert row == {"Name": "p", "Ready": ready, "Status": text, "Restarts": "0", "Age": "60m"}


def test_metric_rule_row() -> None:
    ready = {"type": "Ready", "status": "True", "reason": "NoValue", "message": "the result is empty"}
    obj = {
        "metadata": {"name": "queue", "namespace": "shop"},
        "spec": {"type": "External", "metric": "queue_length", "query": "sum(queue)"},
        "status": {"conditions": [ready], "metrics": ["queue_length"], "value": "42", "series": 3},
    }
    assert cells("milliscale.io", "v1", "metricrules", obj) == {
        "Name": "queue",
        "Type": "External",
        "Metric": "queue_length",
        "Ready": "True",
        "Reason": "NoValue",
        "Value": "42",
        "Series": 3,
        "Query Time": "",
        "Message": "the result is empty",
        "Age": "60m",
    }


async def test_table_is_returned_if_accepted(admin: KubeClient, server: PlaygroundApiServer) -> None:
    server.create(deployment())
    path = "/apis/apps/v1/deployments"
    assert (await admin.get(path))["kind"] == "DeploymentList"
    table = await admin.get(path, accept=TABLE)
    assert (table["kind"], table["apiVersion"]) == ("Table", "meta.k8s.io/v1")
    assert table["rows"][0]["object"]["kind"] == "PartialObjectMetadata"
    whole = await admin.get(path, {"includeObject": "Object"}, accept=TABLE)
    assert whole["rows"][0]["object"]["spec"]["replicas"] == 2


async def test_partial_metadata_is_returned_if_accepted(admin: KubeClient, server: PlaygroundApiServer) -> None:
    server.create(deployment())
    accept = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
    response = await admin.get("/apis/apps/v1/deployments", accept=accept)
    assert response["kind"] == "PartialObjectMetadataList"
    assert response["items"][0].keys() == {"kind", "apiVersion", "metadata"}


async def test_unsupported_media_types_are_406(admin: KubeClient) -> None:
    with pytest.raises(StatusError) as refusal:
        await admin.get("/api/v1/pods", accept="application/vnd.kubernetes.protobuf")
    assert refusal.value.code == 406
    assert await admin.get("/api/v1/pods", accept="application/vnd.kubernetes.protobuf, */*")


def test_events() -> None:
    event = {
        "metadata": {"name": "web.1"},
        "type": "Warning",
        "reason": "FailedGetScale",
        "message": "it failed",
        "involvedObject": {"kind": "HorizontalPodAutoscaler", "name": "web"},
        "lastTimestamp": "2026-01-01T11:59:30Z",
    }
    about = "horizontalpodautoscaler/web"
    assert list(cells("", "v1", "events", event).values()) == ["30s", "Warning", "FailedGetScale", about, "it failed"]
