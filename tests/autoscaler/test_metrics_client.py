"""Metric values: requests, good and bad responses."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any, cast

import msgspec
import pytest

from autoscaler.core.metrics import pod_samples
from autoscaler.core.model import ContainerResourceMetric, CrossVersionObjectReference, ResourceMetric
from autoscaler.core.observation import (
    MetricError,
    MetricResponse,
    Pod,
    PodSample,
    PodsResponse,
    PodUsage,
    ResourceResponse,
    ValuesResponse,
)
from autoscaler.loop import metrics_client
from autoscaler.loop.metrics_client import MetricsClient
from autoscaler.loop.pod_owners import PodIndex
from kube.api.client import KubeClient
from kube.api.mapping import RestMapper
from kube.controller.flowcontrol import ThrottledClient
from kube.values.selectors import LabelSelector
from tests.kube.scripted_api import RecordedRequest, ScriptedApi

GROUP = "/apis/custom.metrics.k8s.io"
PODS = f"{GROUP}/v1beta2/namespaces/default/pods/*/packets"
RESOURCE = "/apis/metrics.k8s.io/v1beta1/namespaces/default/pods"
EXTERNAL = "/apis/external.metrics.k8s.io/v1beta1/namespaces/default/queue_depth"
WEB = LabelSelector.parse("app=web")
NOTHING = LabelSelector.from_object(None)
TIME, TIME_MS = "2026-01-02T03:04:05Z", 1_767_323_045_000


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def metrics(api: ScriptedApi, client: ThrottledClient, kube: KubeClient, clock: Clock) -> MetricsClient:
    api.on("GET", GROUP, group("v1beta2", "v1beta1"))
    return MetricsClient(
        resource=client, custom=client, external=client, mapper=RestMapper(kube), version_seconds=15, clock=clock
    )


def group(*versions: str, preferred: str | None = None) -> dict[str, Any]:
    return {
        "kind": "APIGroup",
        "versions": [{"version": version} for version in versions],
        "preferredVersion": {"version": preferred or versions[0]},
    }


def listed(*items: dict[str, Any]) -> dict[str, Any]:
    return {"kind": "List", "items": list(items)}


def value_of(name: str, value: Any, **more: Any) -> dict[str, Any]:
    return {"describedObject": {"name": name}, "timestamp": TIME, "value": value, **more}


# --- pods metrics --------------------------------------------------------------------------------------------------


async def test_pods_metric_has_a_sample_for_each_pod(api: ScriptedApi, metrics: MetricsClient) -> None:
    api.on("GET", PODS, listed(value_of("web-0", "1500m", windowSeconds=30), value_of("web-1", "2")))
    response = await metrics.pods_metric("default", "packets", pods=WEB, metric_selector=NOTHING)
    assert response == PodsResponse(
        {
            "web-0": PodSample(value=1500, timestamp_ms=TIME_MS, window_ms=30_000),
            "web-1": PodSample(value=2000, timestamp_ms=TIME_MS, window_ms=0),
        }
    )


async def test_too_large_response_is_an_error(api: ScriptedApi, metrics: MetricsClient) -> None:
    api.on("GET", RESOURCE, b" " * (16 * 2**20 + 1))
    response = await metrics.resource_usage("default", WEB)
    assert response == MetricError("the API server's response is too large to be read: more than 16 MiB")


async def test_white_space_around_a_value_is_ignored(api: ScriptedApi, metrics: MetricsClient) -> None:
    api.on("GET", EXTERNAL, listed({"value": " 20 ", "timestamp": TIME}))
    response = await metrics.external_metric("default", "queue_depth", metric_selector=NOTHING)
    assert response == ValuesResponse(values=(20_000,), timestamp_ms=TIME_MS)


async def test_both_selectors_are_sent(api: ScriptedApi, metrics: MetricsClient) -> None:
    api.on("GET", PODS, listed())
    selector = LabelSelector.parse("verb in (GET,POST)")
    await metrics.pods_metric("default", "packets", pods=WEB, metric_selector=selector)
    assert api.requests[-1] == RecordedRequest(
        "GET", PODS, {"labelSelector": "app=web", "metricLabelSelector": "verb in (GET,POST)"}
    )


async def test_response_without_items_is_empty(api: ScriptedApi, metrics: MetricsClient) -> None:
    api.on("GET", PODS, {"kind": "MetricValueList", "items": None})
    assert await metrics.pods_metric("default", "packets", pods=WEB, metric_selector=NOTHING) == PodsResponse({})


async def test_v1beta1_is_used_if_only_that_is_served(api: ScriptedApi, metrics: MetricsClient) -> None:
    api.on("GET", GROUP, group("v1beta9", "v1beta1"))
    api.on("GET", PODS.replace("v1beta2", "v1beta1"), listed(value_of("web-0", 3, window=5)))
    response = await metrics.pods_metric("default", "packets", pods=WEB, metric_selector=NOTHING)
    assert response == PodsResponse({"web-0": PodSample(value=3000, timestamp_ms=TIME_MS, window_ms=5_000)})


async def test_preferred_version_is_cached_for_a_while(api: ScriptedApi, metrics: MetricsClient, clock: Clock) -> None:
    api.on("GET", PODS, listed())
    for now in (0.0, 14.9, 15.0):
        clock.now = now
        await metrics.pods_metric("default", "packets", pods=WEB, metric_selector=NOTHING)
    assert len(api.named("GET", GROUP)) == 2
    api.on("GET", GROUP, group("v1beta2", "v1beta1", preferred="v1beta1"))
    clock.now = 30.0
    await metrics.pods_metric("default", "packets", pods=WEB, metric_selector=NOTHING)
    assert api.requests[-1].path == PODS.replace("v1beta2", "v1beta1")


async def test_missing_custom_metrics_api_is_an_error(api: ScriptedApi, metrics: MetricsClient) -> None:
    api.fail("GET", GROUP, 404, "the server could not find the requested resource")
    response = await metrics.pods_metric("default", "packets", pods=WEB, metric_selector=NOTHING)
    assert response == MetricError("no custom metrics API (custom.metrics.k8s.io) registered")
    api.on("GET", GROUP, group("v1"))
    response = await metrics.pods_metric("default", "packets", pods=WEB, metric_selector=NOTHING)
    assert response == MetricError("no known available metric versions found")


async def test_custom_metrics_api_whose_server_is_away_has_no_available_version(
    api: ScriptedApi, metrics: MetricsClient
) -> None:
    def query() -> Awaitable[MetricResponse]:
        return metrics.pods_metric("default", "packets", pods=WEB, metric_selector=NOTHING)

    api.on("GET", PODS, b"service unavailable\n", status=503)
    api.on("GET", f"{GROUP}/v1beta2", {"resources": []})
    away = MetricError("the server is currently unable to handle the request (get pods.custom.metrics.k8s.io *)")
    assert await query() == away, "its discovery is served"
    api.on("GET", f"{GROUP}/v1beta2", b"service unavailable\n", status=503)
    for _ in range(3):
        assert await query() == MetricError("no known available metric versions found")
    assert len(api.named("GET", PODS)) == 2, "values are not requested meanwhile"
    api.on("GET", f"{GROUP}/v1beta2", {"resources": []})
    api.on("GET", PODS, listed())
    assert await query() == PodsResponse({})
    assert len(api.named("GET", f"{GROUP}/v1beta2")) == 5
    await query()
    assert len(api.named("GET", f"{GROUP}/v1beta2")) == 5, "lists of metrics are read only while it is away"


class Hanging:
    """A client that never gets a response from some paths."""

    def __init__(self) -> None:
        self.hangs: set[str] = set()

    async def get_bytes(self, path: str, query: object = None, **_: object) -> bytes:
        if path in self.hangs:
            await asyncio.Event().wait()
        return msgspec.json.encode(group("v1beta2") if path == GROUP else listed(value_of("web-0", "3")))


@pytest.mark.looptime
async def test_a_hanging_lookup_of_the_version_delays_a_query_by_two_seconds_at_most(kube: KubeClient) -> None:
    """The server that hangs has a part in the lookup, and the values may be served all the same."""
    hanging, clock = Hanging(), asyncio.get_running_loop().time
    client = cast("ThrottledClient", hanging)
    metrics = MetricsClient(
        resource=client, custom=client, external=client, mapper=RestMapper(kube), version_seconds=15, clock=clock
    )
    lasted = []
    for _ in range(3):
        started = clock()
        response = await metrics.pods_metric("default", "packets", pods=WEB, metric_selector=NOTHING)
        assert response == PodsResponse({"web-0": PodSample(value=3000, timestamp_ms=TIME_MS, window_ms=0)})
        lasted.append(round(clock() - started, 1))
        hanging.hangs.add(GROUP)
        await asyncio.sleep(10)
    assert lasted == [0, 0, 2]


async def test_status_message_is_the_error(api: ScriptedApi, metrics: MetricsClient) -> None:
    api.fail("GET", PODS, 503, "prometheus cannot be reached")
    response = await metrics.pods_metric("default", "packets", pods=WEB, metric_selector=NOTHING)
    assert response == MetricError("prometheus cannot be reached")


# --- object metrics ------------------------------------------------------------------------------------------------

INGRESS = CrossVersionObjectReference("Ingress", "front", "networking.k8s.io/v1")
SERVICE = CrossVersionObjectReference("Service", "front", "v1")


@pytest.fixture
def discovery(api: ScriptedApi) -> None:
    api.on(
        "GET",
        "/apis",
        {"groups": [{"name": "networking.k8s.io", "versions": [{"version": "v1"}]}]},
    )
    api.on("GET", "/api/v1", {"resources": [{"name": "services", "kind": "Service", "namespaced": True}]})
    api.on(
        "GET",
        "/apis/networking.k8s.io/v1",
        {"resources": [{"name": "ingresses", "kind": "Ingress", "namespaced": True}]},
    )


@pytest.mark.usefixtures("discovery")
@pytest.mark.parametrize(
    ("described", "path", "named"),
    [
        (INGRESS, "ingresses.networking.k8s.io/front/hits", "ingresses.networking.k8s.io.custom.metrics.k8s.io front"),
        (SERVICE, "services/front/hits", "services.custom.metrics.k8s.io front"),
        (
            CrossVersionObjectReference("Namespace", "elsewhere", "v1"),
            "metrics/hits",
            "metrics.custom.metrics.k8s.io hits",
        ),
    ],
    ids=["in a group", "in the core group", "the namespace itself"],
)
async def test_object_metric_is_requested_by_resource_which_its_errors_name(
    described: CrossVersionObjectReference, path: str, named: str, api: ScriptedApi, metrics: MetricsClient
) -> None:
    path = f"{GROUP}/v1beta2/namespaces/default/{path}"
    api.on("GET", path, listed(value_of("front", "10500m")))
    response = await metrics.object_metric("default", "hits", described=described, metric_selector=NOTHING)
    assert response == ValuesResponse(values=(10_500,), timestamp_ms=TIME_MS)
    assert api.requests[-1] == RecordedRequest("GET", path, {})
    api.on("GET", path, b"", status=404)
    response = await metrics.object_metric("default", "hits", described=described, metric_selector=NOTHING)
    assert response == MetricError(f"the server could not find the requested resource (get {named})")


@pytest.mark.usefixtures("discovery")
async def test_unknown_kind_is_an_error(metrics: MetricsClient) -> None:
    gizmo = CrossVersionObjectReference("Gizmo", "g", "example.com/v1")
    response = await metrics.object_metric("default", "hits", described=gizmo, metric_selector=NOTHING)
    assert response == MetricError(
        'unable to map kind Gizmo.example.com to resource: no matches for kind "Gizmo" in group "example.com"'
    )


@pytest.mark.usefixtures("discovery")
@pytest.mark.parametrize("number", [0, 2])
async def test_object_must_have_exactly_one_value(number: int, api: ScriptedApi, metrics: MetricsClient) -> None:
    api.on("GET", f"{GROUP}/v1beta2/namespaces/default/services/front/hits", listed(*[value_of("front", "1")] * number))
    response = await metrics.object_metric("default", "hits", described=SERVICE, metric_selector=NOTHING)
    assert response == MetricError(
        f"the custom metrics API server returned {number} results when we asked for exactly one"
    )


# --- external and resource metrics ---------------------------------------------------------------------------------


async def test_external_metric_has_all_values(api: ScriptedApi, metrics: MetricsClient) -> None:
    api.on("GET", EXTERNAL, listed({"value": "20", "timestamp": TIME}, {"value": "-500m", "timestamp": TIME}))
    response = await metrics.external_metric("default", "queue_depth", metric_selector=LabelSelector.parse("q=a"))
    assert response == ValuesResponse(values=(20_000, -500), timestamp_ms=TIME_MS)
    assert api.requests[-1] == RecordedRequest("GET", EXTERNAL, {"labelSelector": "q=a"})


async def test_resource_usage_is_by_container(api: ScriptedApi, metrics: MetricsClient) -> None:
    containers = [{"name": "app", "usage": {"cpu": "250m", "memory": "1Ki"}}, {"name": "idle"}]
    pod = {"metadata": {"name": "web-0"}, "timestamp": TIME, "window": "15.5s", "containers": containers}
    api.on("GET", RESOURCE, listed(pod))
    assert await metrics.resource_usage("default", WEB) == ResourceResponse(
        {
            "web-0": PodUsage(
                timestamp_ms=TIME_MS,
                window_ms=15_500,
                containers=(("app", {"cpu": 250, "memory": 1_024_000}), ("idle", {})),
            )
        }
    )
    assert api.requests[-1] == RecordedRequest("GET", RESOURCE, {"labelSelector": "app=web"})


async def test_last_item_of_a_pod_that_has_a_value_counts(api: ScriptedApi, metrics: MetricsClient) -> None:
    def item(**usages: str) -> dict[str, object]:
        containers = [{"name": name, "usage": {"cpu": cpu}} for name, cpu in usages.items()]
        return {"metadata": {"name": "web-0"}, "timestamp": TIME, "window": "15s", "containers": containers}

    api.on("GET", RESOURCE, listed(item(app="1"), item(app="2"), item(idle="3"), item()))
    response = await metrics.resource_usage("default", WEB)
    assert isinstance(response, ResourceResponse)
    for metric, value in ((ContainerResourceMetric("cpu", container="app"), 2_000), (ResourceMetric("cpu"), 3_000)):
        samples = pod_samples(metric, response)
        assert not isinstance(samples, MetricError)
        assert {name: sample.value for name, sample in samples.items()} == {"web-0": value}


# --- several HPAs in one moment ------------------------------------------------------------------------------------


def object_metric(
    metrics: MetricsClient, described: CrossVersionObjectReference = INGRESS, *, name: str = "hits", selector: str = ""
) -> Awaitable[MetricResponse]:
    return metrics.object_metric("default", name, described=described, metric_selector=LabelSelector.parse(selector))


@pytest.mark.usefixtures("discovery")
async def test_concurrent_equal_queries_are_one_request(api: ScriptedApi, metrics: MetricsClient) -> None:
    hits = f"{GROUP}/v1beta2/namespaces/default/ingresses.networking.k8s.io/front/hits"
    api.on("GET", EXTERNAL, listed({"value": "20"}))
    api.on("GET", RESOURCE, listed({"metadata": {"name": "web-0"}}))
    api.on("GET", PODS, listed(value_of("web-0", "1")))
    api.on("GET", hits, listed(value_of("front", "2")))
    queue = LabelSelector.parse("q=a")
    responses = await asyncio.gather(
        *(metrics.external_metric("default", "queue_depth", metric_selector=queue) for _ in range(3)),
        *(metrics.resource_usage("default", WEB) for _ in range(3)),
        *(metrics.pods_metric("default", "packets", pods=WEB, metric_selector=queue) for _ in range(3)),
        *(object_metric(metrics, selector="q=a") for _ in range(3)),
    )
    assert [len(api.named("GET", path)) for path in (EXTERNAL, RESOURCE, PODS, hits)] == [1, 1, 1, 1]
    assert {type(response) for response in responses[:3]} == {ValuesResponse}
    assert {type(response) for response in responses[3:6]} == {ResourceResponse}
    assert {type(response) for response in responses[6:9]} == {PodsResponse}
    assert {type(response) for response in responses[9:]} == {ValuesResponse}


async def test_concurrent_usage_queries_are_coalesced(
    api: ScriptedApi, client: ThrottledClient, kube: KubeClient
) -> None:
    apps = ["a", "b", "c", "d"]
    pods = PodIndex()
    for app in apps:
        pods.apply(("default", app), None, Pod(name=app, namespace="default", labels={"app": app}, phase="Running"))
    metrics = MetricsClient(
        resource=client, custom=client, external=client, mapper=RestMapper(kube), pods=pods, version_seconds=15
    )
    api.on("GET", RESOURCE, listed(*({"metadata": {"name": app}} for app in apps)))
    usages = await asyncio.gather(
        *(metrics.resource_usage("default", LabelSelector.parse(f"app={app}")) for app in apps)
    )
    assert [asked.query for asked in api.requests] == [{"labelSelector": "app in (a,b,c,d)"}]
    assert [[*usage.pods] for usage in usages if isinstance(usage, ResourceResponse)] == [[app] for app in apps]


def by_selector(name: str, parameter: str) -> Callable[[RecordedRequest], dict[str, Any]]:
    """Answers `q=7` with the value 7."""
    return lambda asked: listed(value_of(name, asked.query[parameter].removeprefix("q=")))


@pytest.mark.usefixtures("discovery")
async def test_queries_with_other_metric_selectors_are_not_coalesced(api: ScriptedApi, metrics: MetricsClient) -> None:
    hits = f"{GROUP}/v1beta2/namespaces/default/ingresses.networking.k8s.io/front/hits"
    api.on("GET", EXTERNAL, by_selector("", "labelSelector"))
    api.on("GET", PODS, by_selector("web-0", "metricLabelSelector"))
    api.on("GET", hits, by_selector("front", "metricLabelSelector"))
    selectors = [LabelSelector.parse(text) for text in ("q=1", "q=2")]
    external, pods, objects = await asyncio.gather(
        asyncio.gather(
            *(metrics.external_metric("default", "queue_depth", metric_selector=each) for each in selectors)
        ),
        asyncio.gather(
            *(metrics.pods_metric("default", "packets", pods=WEB, metric_selector=each) for each in selectors)
        ),
        asyncio.gather(*(object_metric(metrics, selector=str(each)) for each in selectors)),
    )
    assert [each.values for each in external if isinstance(each, ValuesResponse)] == [(1000,), (2000,)]
    assert [each.pods["web-0"].value for each in pods if isinstance(each, PodsResponse)] == [1000, 2000]
    assert [each.values for each in objects if isinstance(each, ValuesResponse)] == [(1000,), (2000,)]


@pytest.mark.usefixtures("discovery")
async def test_queries_for_other_objects_and_metrics_are_not_coalesced(
    api: ScriptedApi, metrics: MetricsClient
) -> None:
    base = f"{GROUP}/v1beta2/namespaces/default"
    endpoints = {"name": "endpoints", "kind": "Endpoints", "namespaced": True}
    services = {"name": "services", "kind": "Service", "namespaced": True}
    api.on("GET", "/api/v1", {"resources": [services, endpoints]})
    paths = [
        "endpoints/front/hits",
        "ingresses.networking.k8s.io/front/hits",
        "services/front/hits",
        "services/back/hits",
        "services/back/size",
    ]
    for number, path in enumerate(paths, start=1):
        api.on("GET", f"{base}/{path}", listed(value_of("", number)))
    back = CrossVersionObjectReference("Service", "back", "v1")
    responses = await asyncio.gather(
        object_metric(metrics, CrossVersionObjectReference("Endpoints", "front", "v1")),
        object_metric(metrics, INGRESS),
        object_metric(metrics, SERVICE),
        object_metric(metrics, back),
        object_metric(metrics, back, name="size"),
    )
    assert [each.values for each in responses if isinstance(each, ValuesResponse)] == [(1000 * n,) for n in range(1, 6)]


# --- long responses ------------------------------------------------------------------------------------------------


async def test_long_responses_are_read_in_threads_and_one_at_a_time(
    api: ScriptedApi, metrics: MetricsClient, kube: KubeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """10,000 values keep the event loop busy for a twentieth of a second, and an HPA can have 100 such metrics.

    Few are in memory: large ones have the slots of large responses until they are read.
    """
    steps: list[tuple[str, bool]] = []
    large: list[int] = []
    read = metrics_client._samples_of_pods

    def recorded(content: bytes) -> PodsResponse:
        is_main = threading.current_thread() is threading.main_thread()
        steps.append(("begin", is_main))
        large.append(kube.large_responses)
        found = read(content)
        steps.append(("end", is_main))
        return found

    monkeypatch.setattr(metrics_client, "_samples_of_pods", recorded)
    counts = {"short": 10, "a": 1_000, "b": 1_000, "c": 1_000}
    for name, count in counts.items():
        values = [value_of(f"web-{number}", "1", metric={"name": "x" * 1100}) for number in range(count)]
        api.on("GET", PODS.replace("packets", name), listed(*values))
    found = await asyncio.gather(
        *(metrics.pods_metric("default", name, pods=WEB, metric_selector=NOTHING) for name in counts)
    )
    assert [len(one.pods) for one in found if isinstance(one, PodsResponse)] == list(counts.values())
    in_threads = [kind for kind, is_main in steps if not is_main]
    assert in_threads == ["begin", "end"] * 3
    assert len(steps) == 8
    assert (large[-1], kube.large_responses) == (1, 0)


# --- hostile responses -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("response", "part"),
    [
        (b"<html>", "not JSON"),
        (b"[]", "Expected `object`, got `array`"),
        (b'{"unknown":' + b"[" * 100_000, "not JSON"),
        ({"items": "many"}, "$.items"),
        (listed({"timestamp": TIME, "value": "1"}), "describedObject"),
        (listed({"describedObject": {"name": "web-0"}, "timestamp": TIME}), "value"),
        (listed(value_of("web-0", "one")), "quantities must match the regular expression"),
        (listed(value_of("web-0", "1e99999999999")), "unable to parse quantity's suffix"),
        (listed(value_of("web-0", None)), "value"),
        (listed(value_of("web-0", "1", windowSeconds="long")), "windowSeconds"),
        (listed({**value_of("web-0", "1"), "timestamp": "yesterday"}), "timestamp"),
        ({"items": [None]}, "$.items[0]"),
    ],
    ids=str,
)
async def test_bad_response_is_a_metric_error(
    response: Any, part: str, api: ScriptedApi, metrics: MetricsClient
) -> None:
    api.on("GET", PODS, response)
    result = await metrics.pods_metric("default", "packets", pods=WEB, metric_selector=NOTHING)
    assert isinstance(result, MetricError)
    assert part in result.message


async def test_one_bad_value_fails_the_whole_response(api: ScriptedApi, metrics: MetricsClient) -> None:
    api.on("GET", EXTERNAL, listed({"value": "20"}, {"value": "lots"}))
    assert isinstance(await metrics.external_metric("default", "queue_depth", metric_selector=NOTHING), MetricError)
    api.on("GET", RESOURCE, listed({"metadata": {"name": "web-0"}, "window": "soon"}))
    assert isinstance(await metrics.resource_usage("default", WEB), MetricError)


async def test_missing_timestamp_is_the_zero_time(api: ScriptedApi, metrics: MetricsClient) -> None:
    api.on("GET", EXTERNAL, listed({"value": "20", "timestamp": None}))
    response = await metrics.external_metric("default", "queue_depth", metric_selector=NOTHING)
    assert response == ValuesResponse(values=(20_000,), timestamp_ms=0)


@pytest.mark.parametrize("name", ["..", ".", "a/b", "a%2fb", ""])
async def test_name_cannot_leave_its_path(name: str, api: ScriptedApi, metrics: MetricsClient) -> None:
    response = await metrics.external_metric("default", name, metric_selector=NOTHING)
    assert isinstance(response, MetricError)
    assert "invalid resource name" in response.message
    assert api.requests == []
