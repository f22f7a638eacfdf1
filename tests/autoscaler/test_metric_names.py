"""Metrics whose names are like that of a metric with a typo, from the discovery of the metrics APIs."""

from typing import Any

import pytest

from autoscaler.core.model import CrossVersionObjectReference
from autoscaler.records.metric_lookup import MetricNames
from autoscaler.records.record import Measure, MetricRecord
from kube.api.client import KubeUnreachable
from kube.api.status import not_found

CUSTOM, OLDER = "/apis/custom.metrics.k8s.io/v1beta2", "/apis/custom.metrics.k8s.io/v1beta1"
EXTERNAL = "/apis/external.metrics.k8s.io/v1beta1"
NAMES = {
    CUSTOM: [
        "pods/packets_per_second",
        "namespaces/packets_per_hour",
        "ingresses.networking.k8s.io/requests_per_second",
    ],
    EXTERNAL: ["queue_depth"],
}


class Discovery:
    """An API server that serves these lists."""

    def __init__(self, lists: dict[str, list[str]]) -> None:
        self.lists = {path: {"resources": [{"name": name} for name in names]} for path, names in lists.items()}
        self.requests: list[str] = []
        self.now = 0.0
        self.names = MetricNames(self.get, clock=lambda: self.now)

    async def get(self, path: str) -> dict[str, Any]:
        self.requests.append(path)
        if path not in self.lists:
            raise not_found("the server could not find the requested resource")
        return self.lists[path]


def metric(name: str, type_: str = "Pods", kind: str = "") -> MetricRecord:
    described = CrossVersionObjectReference(kind, "front") if kind else None
    return MetricRecord(type=type_, name=name, described_object=described, target=Measure(value="1"))


@pytest.mark.parametrize(
    ("metric", "similar"),
    [
        (metric("packets_per_secnd"), ("packets_per_second",)),
        (metric("packets_per_second"), ()),
        (metric("temperature"), ()),
        (metric("request_per_second", "Object", "Ingress"), ("requests_per_second",)),
        (metric("packets_per_hours", "Object", "Namespace"), ("packets_per_hour",)),
        (metric("queue_dept", "External"), ("queue_depth",)),
        (metric("cpus", "Resource"), ()),
        (metric("packets_per_second" * 1000), ()),
    ],
    ids=lambda each: each.name[:20] if isinstance(each, MetricRecord) else "",
)
async def test_similar_names_are_those_of_the_same_api_and_resource(
    metric: MetricRecord, similar: tuple[str, ...]
) -> None:
    assert await Discovery(NAMES).names.like(metric) == similar


async def test_older_version_of_the_api_is_read_where_there_is_no_newer_one() -> None:
    discovery = Discovery({OLDER: ["pods/packets_per_second"]})
    assert await discovery.names.like(metric("packets_per_secnd")) == ("packets_per_second",)
    assert discovery.requests == [CUSTOM, OLDER]


async def test_lists_are_read_once_a_minute_also_if_they_fail() -> None:
    discovery = Discovery({})
    for name in ("packets_per_secnd", "packets_per_secnd", "packets_per_seconds"):
        assert await discovery.names.like(metric(name)) == ()
    assert discovery.requests == [CUSTOM, OLDER]
    discovery.lists = Discovery(NAMES).lists
    discovery.now = 61.0
    assert await discovery.names.like(metric("packets_per_secnd")) == ("packets_per_second",)


@pytest.mark.parametrize("resources", [None, "pods/a", [None, 1, {"name": 5}, {}]])
async def test_strange_lists_have_no_names(resources: Any) -> None:
    discovery = Discovery({})
    discovery.lists = {CUSTOM: {"resources": resources}}
    assert await discovery.names.like(metric("packets_per_secnd")) == ()


async def test_unreachable_api_server_is_no_error() -> None:
    async def get(_: str) -> dict[str, Any]:
        raise KubeUnreachable("no connection")

    assert await MetricNames(get).like(metric("packets_per_secnd")) == ()
