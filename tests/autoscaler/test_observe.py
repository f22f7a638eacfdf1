"""Observation: the requests of each case, and the resulting observation."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from autoscaler.core.config import AnnotationOverrides, Config, PodSelection
from autoscaler.core.model import (
    HPA,
    ContainerResourceMetric,
    CrossVersionObjectReference,
    ExternalMetric,
    HPAKey,
    LabelSelectorSpec,
    MetricIdentifier,
    MetricSource,
    MetricSpec,
    MetricTarget,
    ObjectMetric,
    PodsMetric,
    ResourceMetric,
    Spec,
)
from autoscaler.core.observation import (
    Owner,
    Pod,
    PodsResponse,
    ReadError,
    ResourceResponse,
    Scale,
    ValuesResponse,
)
from autoscaler.loop.metrics_client import MetricsClient
from autoscaler.loop.observe import Observer
from autoscaler.loop.pod_owners import PodIndex
from autoscaler.loop.scales import ScaleClient
from autoscaler.loop.selector_index import SelectorIndex
from kube.api.client import KubeClient
from kube.api.mapping import RestMapper
from kube.controller.flowcontrol import ThrottledClient
from kube.values.selectors import LabelSelector
from tests.autoscaler.simulated_cluster import average_target, quantity
from tests.kube.scripted_api import RecordedRequest, ScriptedApi

SCALE = "/apis/apps/v1/namespaces/default/deployments/web/scale"
CUSTOM = "/apis/custom.metrics.k8s.io"
PACKETS = f"{CUSTOM}/v1beta2/namespaces/default/pods/*/packets"
HITS = f"{CUSTOM}/v1beta2/namespaces/default/metrics/hits"
DEPTH = "/apis/external.metrics.k8s.io/v1beta1/namespaces/default/depth"
USAGE = "/apis/metrics.k8s.io/v1beta1/namespaces/default/pods"
PACKETS_METRIC = MetricSpec("Pods", pods=PodsMetric(MetricIdentifier("packets"), average_target(1000)))
WEB = Pod(name="web-0", namespace="default", labels={"app": "web"}, phase="Running")
OWN = replace(WEB, owner=Owner("ReplicaSet", "rs-web"))
FOREIGN = replace(WEB, name="web-1", owner=Owner("ReplicaSet", "rs-api"))


def metric(source: MetricSource) -> MetricSpec:
    one = quantity(1000)
    target = MetricTarget("Value", value=one, average_value=one, average_utilization=50)
    return MetricSpec.of(source).with_target(target)


def hpa(
    *metrics: MetricSpec,
    api_version: str = "apps/v1",
    name: str = "web",
    target: str = "web",
    selection: PodSelection = PodSelection.SELECTOR,
) -> HPA:
    reference = CrossVersionObjectReference("Deployment", target, api_version)
    spec = Spec(scale_target_ref=reference, min_replicas=1, max_replicas=5, metrics=metrics)
    return HPA(namespace="default", name=name, spec=spec, overrides=AnnotationOverrides(pod_selection=selection))


@pytest.fixture
def selectors() -> SelectorIndex:
    return SelectorIndex()


class Controllers:
    """The controllers of ReplicaSets; None: they are not listed yet."""

    known: Mapping[str, str] | None = None
    queried = False

    def __call__(self) -> Mapping[str, str] | None:
        self.queried = True
        return self.known


@pytest.fixture
def controllers() -> Controllers:
    return Controllers()


class Watches:
    """Which are silent: "pods", "replicasets", or those on the API of the HPAs of these names."""

    def __init__(self) -> None:
        self.stale: set[str] = set()


@pytest.fixture
def watches() -> Watches:
    return Watches()


@pytest.fixture
def pods() -> PodIndex:
    return PodIndex()


@pytest.fixture
def observer(
    api: ScriptedApi,
    client: ThrottledClient,
    kube: KubeClient,
    pods: PodIndex,
    selectors: SelectorIndex,
    controllers: Controllers,
    watches: Watches,
) -> Observer:
    api.on("GET", "/apis", {"groups": [{"name": "apps", "versions": [{"version": "v1"}]}]})
    deployments = {"name": "deployments", "kind": "Deployment", "namespaced": True}
    api.on("GET", "/apis/apps/v1", {"resources": [deployments]})
    api.on("GET", SCALE, {"spec": {"replicas": 2}, "status": {"replicas": 1, "selector": "app=web"}})
    api.on("GET", CUSTOM, {"versions": [{"version": "v1beta2"}]})
    mapper = RestMapper(kube)
    pods.apply(("default", "web-0"), None, WEB)
    pods.apply(("default", "api-0"), None, Pod(name="api-0", namespace="default", labels={}, phase="Running"))
    return Observer(
        scales=ScaleClient(client, mapper),
        metrics=MetricsClient(resource=client, custom=client, external=client, mapper=mapper, version_seconds=15),
        pods=pods,
        selectors=selectors,
        config=Config(),
        controllers=controllers,
        stale={
            "horizontalpodautoscalers": lambda key: key.name in watches.stale,
            "pods": lambda _: "pods" in watches.stale,
            "replicasets": lambda _: "replicasets" in watches.stale,
        },
    )


async def test_observation_has_scale_pods_and_a_response_for_each_metric(api: ScriptedApi, observer: Observer) -> None:
    value = {"describedObject": {"name": "web-0"}, "value": "5"}
    api.on("GET", PACKETS, {"items": [value]})
    api.on("GET", HITS, {"items": [value]})
    api.on("GET", DEPTH, {"items": [{"value": "7"}]})
    api.on("GET", USAGE, {"items": [{"metadata": {"name": "web-0"}}]})
    namespace = CrossVersionObjectReference("Namespace", "default", "v1")
    observed = await observer.observe(
        hpa(
            metric(ResourceMetric("cpu")),
            metric(PodsMetric(MetricIdentifier("packets"))),
            MetricSpec("Odd"),
            metric(ObjectMetric(MetricIdentifier("hits"), namespace)),
            metric(ExternalMetric(MetricIdentifier("depth", LabelSelectorSpec({"queue": "a"})))),
            metric(ContainerResourceMetric("memory", container="app")),
        )
    )
    assert observed.observation.scale == Scale(spec_replicas=2, status_replicas=1, selector="app=web")
    assert observed.observation.pods == (WEB,)
    assert observed.observation.responses is not None
    assert [type(response) for response in observed.observation.responses] == [
        ResourceResponse,
        PodsResponse,
        type(None),
        ValuesResponse,
        ValuesResponse,
        ResourceResponse,
    ]
    assert len(api.named("GET", USAGE)) == 1, "one response serves all resource metrics"
    assert api.named("GET", DEPTH)[0].query == {"labelSelector": "queue=a"}
    assert observed.target is not None
    assert observed.target.path == SCALE
    assert len(observed.seconds) == 6


@pytest.mark.parametrize("order", [1, -1])
async def test_hpas_with_one_metric_and_with_several_share_requests(
    api: ScriptedApi, observer: Observer, selectors: SelectorIndex, order: int
) -> None:
    api.on("GET", DEPTH, {"items": [{"value": "7"}]})
    api.on("GET", USAGE, {"items": [{"metadata": {"name": "web-0"}}]})
    depth, cpu = metric(ExternalMetric(MetricIdentifier("depth"))), metric(ResourceMetric("cpu"))
    hpas = [hpa(depth, name="one"), hpa(depth, cpu, name="two"), hpa(cpu, name="three")][::order]
    before = []
    for each in hpas:
        before.append((await observer.observe(each)).observation)
        selectors.clear()  # they need not have different pods
    api.requests.clear()
    await asyncio.gather(*(observer.refresh(each, earlier) for each, earlier in zip(hpas, before, strict=True)))
    assert sorted(each.path for each in api.requests) == sorted([DEPTH, USAGE])


async def test_without_a_scale_nothing_else_is_read(api: ScriptedApi, observer: Observer) -> None:
    api.fail("GET", SCALE, 404, 'deployments.apps "web" not found')
    observed = await observer.observe(hpa(metric(PodsMetric(MetricIdentifier("packets")))))
    assert observed.observation.scale == ReadError('deployments.apps "web" not found')
    assert observed.target is None
    assert not [asked for asked in api.requests if "metrics" in asked.path]


async def test_pods_created_during_the_metrics_requests_count(
    api: ScriptedApi, observer: Observer, pods: PodIndex
) -> None:
    def response(asked: RecordedRequest) -> dict[str, Any]:
        pods.apply(("default", "web-2"), None, replace(WEB, name="web-2"))
        items = [{"describedObject": {"name": name}, "value": "5"} for name in ("web-0", "web-2")]
        return {"items": items}

    api.on("GET", PACKETS, response)
    observed = await observer.observe(hpa(PACKETS_METRIC))
    assert isinstance(observed.observation.pods, tuple)
    assert [pod.name for pod in observed.observation.pods] == ["web-0", "web-2"]


async def test_hpas_with_the_same_pods_find_each_other(
    api: ScriptedApi, observer: Observer, selectors: SelectorIndex
) -> None:
    api.on("GET", PACKETS, {"items": []})
    packets = metric(PodsMetric(MetricIdentifier("packets")))
    first = await observer.observe(hpa(packets, name="one"))
    second = await observer.observe(hpa(packets, name="two"))
    assert first.observation.other_selectors == {}
    assert second.observation.other_selectors == {"default/one": LabelSelector.parse("app=web")}
    assert second.observation.responses is None, "an ambiguous target's metrics do not matter"
    selectors.drop(HPAKey("default", "one"))
    third = await observer.observe(hpa(packets, name="two"))
    assert third.observation.other_selectors == {}


class TestPodsOfTheOwner:
    """The Deployment web has the uid "web"; web-0 is its, web-1 is another's with the same labels."""

    @pytest.fixture(autouse=True)
    def two_pods(self, api: ScriptedApi, observer: Observer, pods: PodIndex) -> None:
        scale = {"metadata": {"uid": "web"}, "spec": {"replicas": 2}, "status": {"replicas": 2, "selector": "app=web"}}
        api.on("GET", SCALE, scale)
        values = [{"describedObject": {"name": f"web-{number}"}, "value": "5"} for number in range(3)]
        api.on("GET", PACKETS, {"items": values})
        pods.apply(("default", "web-0"), WEB, OWN)
        pods.apply(("default", "web-1"), None, FOREIGN)

    async def test_only_owned_pods_and_their_values_count(self, observer: Observer, controllers: Controllers) -> None:
        controllers.known = {"rs-web": "web", "rs-api": "api"}
        observation = (await observer.observe(hpa(PACKETS_METRIC, selection=PodSelection.OWNER))).observation
        assert observation.pods == (OWN,)
        assert observation.foreign_pods == ("web-1",)
        assert observation.responses is not None
        (response,) = observation.responses
        assert isinstance(response, PodsResponse)
        assert set(response.pods) == {"web-0"}

    async def test_replica_sets_are_not_read_without_pod_selection_owner(
        self, observer: Observer, controllers: Controllers
    ) -> None:
        observation = (await observer.observe(hpa(PACKETS_METRIC))).observation
        assert observation.pods == (OWN, FOREIGN)
        assert observation.foreign_pods == ()
        assert not controllers.queried

    async def test_pods_are_unknown_until_replica_sets_are_listed(
        self, observer: Observer, controllers: Controllers
    ) -> None:
        for known, problem in (
            (None, "pods are selected for their owner, and the ReplicaSets have not been listed yet"),
            ({"rs-web": "web"}, "the ReplicaSet that owns pod web-1 is not known"),
        ):
            controllers.known = known
            observed = await observer.observe(hpa(PACKETS_METRIC, selection=PodSelection.OWNER))
            assert isinstance(observed.observation.pods, ReadError)
            assert observed.observation.pods.message.startswith(problem)

    async def test_owned_pods_are_ambiguous_only_with_the_same_target(
        self, api: ScriptedApi, observer: Observer, controllers: Controllers
    ) -> None:
        controllers.known = {"rs-web": "web", "rs-api": "api"}
        scale = {"metadata": {"uid": "api"}, "spec": {"replicas": 1}, "status": {"replicas": 1, "selector": "app=web"}}
        api.on("GET", SCALE.replace("web", "api"), scale)
        await observer.observe(hpa(PACKETS_METRIC, name="other", target="api"))
        own = await observer.observe(hpa(PACKETS_METRIC, name="own", selection=PodSelection.OWNER))
        assert own.observation.other_selectors == {}
        twin = await observer.observe(hpa(PACKETS_METRIC, name="twin", selection=PodSelection.OWNER))
        assert set(twin.observation.other_selectors) == {"default/own"}


@pytest.mark.parametrize(
    ("silent", "stale"),
    [
        ({"pods"}, ("pods",)),
        ({"web"}, ("horizontalpodautoscalers",)),
        ({"web", "pods", "replicasets"}, ("horizontalpodautoscalers", "pods")),
        ({"another"}, ()),
    ],
)
async def test_observation_names_the_stale_resources(
    silent: set[str], stale: tuple[str, ...], api: ScriptedApi, observer: Observer, watches: Watches
) -> None:
    watches.stale = silent
    observed = await observer.observe(hpa(metric(PodsMetric(MetricIdentifier("packets")))))
    assert observed.observation.stale == stale


async def test_replica_sets_count_where_pods_are_selected_by_owner(
    api: ScriptedApi, observer: Observer, watches: Watches, controllers: Controllers
) -> None:
    watches.stale, controllers.known = {"replicasets"}, {}
    packets = metric(PodsMetric(MetricIdentifier("packets")))
    assert (await observer.observe(hpa(packets, selection=PodSelection.OWNER))).observation.stale == ("replicasets",)


async def test_a_watch_that_falls_silent_while_metrics_are_awaited_counts(
    api: ScriptedApi, observer: Observer, watches: Watches
) -> None:
    def response(_: RecordedRequest) -> dict[str, Any]:
        watches.stale = {"pods"}
        return {"items": []}

    api.on("GET", PACKETS, response)
    observed = await observer.observe(hpa(metric(PodsMetric(MetricIdentifier("packets")))))
    assert observed.observation.stale == ("pods",)


async def test_pods_that_are_not_looked_at_are_not_out_of_date(
    api: ScriptedApi, observer: Observer, watches: Watches
) -> None:
    watches.stale = {"pods"}
    api.on("GET", SCALE, {"spec": {"replicas": 0}, "status": {"replicas": 0, "selector": "app=web"}})
    observed = await observer.observe(hpa(metric(PodsMetric(MetricIdentifier("packets")))))
    assert (observed.observation.pods, observed.observation.stale) == (None, ())
