"""The same decisions as Kubernetes' own controller, side by side with it in one cluster.

Each story is played twice at the same time: kube-controller-manager scales one Deployment by an HPA of autoscaling/v2,
the autoscaler scales its twin by an HPA of milliscale.io/v1 with the same spec, and both are told the same metrics. At
the end of each chapter both have come to the same number of replicas and say the same of it; in the end they have gone
the same way there.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from autoscaler.core.model import KIND, KUBERNETES, MILLISCALE, HPAApi
from autoscaler.objects.migration import move
from kube.client import KubeClient
from kube.store import Store
from playground.cluster import start_cluster
from playground.install import apply, read_objects
from playground.tasks import background
from tests.e2e.controllers import ROOT, autoscaler, controller_manager, needs_controller_manager, started
from tests.e2e.scripted_metrics import METRIC, Load, ScriptedMetrics, scripted_metrics
from tests.eventually import eventually

CUSTOM, EXTERNAL, RESOURCE = "custom.metrics.k8s.io", "external.metrics.k8s.io", "metrics.k8s.io"
SOON = 40.0
LOOKS = 3
"""How often both look at a load again after their arrival, so that no policy and no window remembers the way there."""

pytestmark = needs_controller_manager


@dataclass(frozen=True, slots=True)
class Chapter:
    """A load, and the number of replicas at which both arrive."""

    load: Load
    replicas: int
    by_hand: int | None = None
    """What somebody sets the scale to before it."""


@dataclass(frozen=True, slots=True)
class Story:
    """What happens to a pair of twins. The metrics' label, or described object, is filled in for each twin."""

    name: str
    metrics: tuple[dict[str, Any], ...]
    chapters: tuple[Chapter, ...]
    start: int = 1
    least: int = 1
    most: int = 10
    behavior: dict[str, Any] = field(default_factory=dict)


def to(replicas: int, total: int, *, silent: int = 0, failing: str = "", by_hand: int | None = None) -> Chapter:
    """Both come to `replicas` under a load of `total` units."""
    failed = frozenset(filter(None, [failing]))
    return Chapter(Load(total * 1000, silent=silent, failing=failed), replicas, by_hand)


def rules(*policies: tuple[str, int, int], window: int = 0, **more: Any) -> dict[str, Any]:
    """Policies as (type, value, seconds)."""
    listed = [{"type": kind, "value": value, "periodSeconds": seconds} for kind, value, seconds in policies]
    return {"stabilizationWindowSeconds": window, "policies": listed, **more}


AT_ONCE = rules(("Percent", 1000, 1))
PER_POD = {"type": "AverageValue", "averageValue": "10"}
HALF = {"type": "Utilization", "averageUtilization": 50}
APP = {"name": METRIC, "selector": {"matchLabels": {"app": "APP"}}}
QUEUE = {"type": "External", "external": {"metric": APP, "target": PER_POD}}
PACKETS = {"type": "Pods", "pods": {"metric": {"name": METRIC}, "target": PER_POD}}
CPU = {"type": "Resource", "resource": {"name": "cpu", "target": HALF}}
ONE_CONTAINER = {"type": "ContainerResource", "containerResource": {"name": "cpu", "container": "c", "target": HALF}}
SERVICE = {"apiVersion": "v1", "kind": "Service", "name": "APP"}
REQUESTS = {
    "type": "Object",
    "object": {"metric": {"name": METRIC}, "describedObject": SERVICE, "target": {"type": "Value", "value": "10"}},
}

STORIES = [
    Story(
        "up-and-down",
        (QUEUE,),
        (to(2, 20), to(2, 21), to(10, 100), to(10, 130), to(10, 10, failing=EXTERNAL), to(5, 45), to(1, 0)),
    ),
    Story(
        "shared-by-pods",
        (PACKETS,),
        (to(3, 30), to(3, 32), to(9, 90), to(9, 20, failing=CUSTOM), to(6, 45, silent=3), to(5, 45), to(9, 85)),
        start=2,
    ),
    Story(
        "some-pods-are-silent",
        (PACKETS,),
        (to(4, 40), to(4, 60, silent=2), to(4, 100, silent=3), to(5, 100, silent=1)),
        most=5,
        start=2,
    ),
    # Each pod requests 100 cores, which makes the loads percents.
    Story("cpu", (CPU,), (to(2, 100), to(4, 200), to(4, 215), to(4, 100, failing=RESOURCE), to(2, 90)), start=2),
    Story("cpu-of-a-container", (ONE_CONTAINER,), (to(6, 300), to(3, 150)), start=3),
    Story("a-services-requests", (REQUESTS,), (to(6, 20), to(6, 10), to(1, 5)), start=2, most=6),
    Story(
        "gently",
        (QUEUE,),
        (to(10, 100), to(2, 20)),
        start=2,
        behavior={"scaleUp": rules(("Pods", 2, 2)), "scaleDown": rules(("Percent", 50, 2))},
    ),
    Story(
        "up-by-the-smaller-step-and-never-down",
        (QUEUE,),
        (to(4, 40), to(4, 10)),
        behavior={
            "scaleUp": rules(("Pods", 1, 1), ("Percent", 100, 1), selectPolicy="Min"),
            "scaleDown": {"selectPolicy": "Disabled"},
        },
    ),
    Story(
        "with-a-tolerance-of-its-own",
        (QUEUE,),
        (to(2, 28), to(4, 40), to(4, 38), to(3, 30)),
        start=2,
        behavior={"scaleUp": {**AT_ONCE, "tolerance": "500m"}, "scaleDown": {**AT_ONCE, "tolerance": "100m"}},
    ),
    Story(
        "one-of-two-metrics-fails",
        (QUEUE, PACKETS),
        (to(3, 30), to(6, 60, failing=CUSTOM), to(6, 10, failing=CUSTOM), to(6, 10, failing=EXTERNAL), to(1, 10)),
    ),
    Story("switched-off-by-hand", (QUEUE,), (to(3, 30), to(0, 50, by_hand=0), to(5, 50, by_hand=1)), start=3),
    Story("out-of-bounds-by-hand", (QUEUE,), (to(3, 30), to(6, 60, by_hand=9), to(6, 60, by_hand=1)), least=2, most=6),
]


class Twin:
    """One of two Deployments that live the same story, and the HPA that scales it."""

    def __init__(self, story: Story, api: HPAApi, client: KubeClient) -> None:
        self.name = f"{story.name}-{api.name}"
        self.way = [story.start]
        self._api = api
        self._client = client

    @property
    def objects(self) -> tuple[str, str]:
        """The paths of the Deployment and of the HPA."""
        return f"/apis/apps/v1/namespaces/default/deployments/{self.name}", self._api.path("default", self.name)

    async def create(self, story: Story) -> None:
        """The Deployment and its HPA."""
        labels = {"app": self.name}
        container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "100"}}}
        deployment = {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": self.name},
            "spec": {
                "replicas": story.start,
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
            },
        }
        await self._client.post("/apis/apps/v1/namespaces/default/deployments", deployment)

        async def rolled_out() -> bool:
            status = (await self._client.get(self.objects[0])).get("status") or {}
            return bool(status.get("readyReplicas") == story.start)

        await eventually(rolled_out, within=SOON)
        target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": self.name}
        spec = {"scaleTargetRef": target, "minReplicas": story.least, "maxReplicas": story.most}
        metrics = json.loads(json.dumps(story.metrics).replace('"APP"', f'"{self.name}"'))
        hpa = {
            "apiVersion": self._api.api_version,
            "kind": KIND,
            "metadata": {"name": self.name},
            "spec": {**spec, "metrics": metrics, **({"behavior": story.behavior} if story.behavior else {})},
        }
        await self._client.post(self._api.path("default"), hpa)

    async def scale(self, replicas: int) -> None:
        """As somebody does with `kubectl scale`."""
        await self._client.patch(f"{self.objects[0]}/scale", {"spec": {"replicas": replicas}})

    async def said(self) -> Any:
        """The HPA's status without times, in words that do not tell the twins apart."""
        status = (await self._client.get(self.objects[1])).get("status") or {}
        status.setdefault("currentReplicas", 0)  # which Go leaves out
        status.pop("lastScaleTime", None)
        status.pop("targets", None)  # which kube-apiserver works out for its own
        status.pop("observedGeneration", None)  # autoscaling/v2 has it from Kubernetes 1.37 on
        for condition in status.get("conditions") or ():
            condition.pop("lastTransitionTime")
        return self._neutral({key: value for key, value in status.items() if value is not None})

    async def events(self) -> Any:
        """Types, reasons and messages of the HPA's events, in no order."""
        found = (await self._client.get("/api/v1/namespaces/default/events"))["items"]
        mine = [each for each in found if each["involvedObject"]["name"] == self.name]
        return self._neutral(sorted([each["type"], each["reason"], each["message"]] for each in mine))

    def _neutral(self, value: Any) -> Any:
        return json.loads(json.dumps(value).replace(self.name, "APP"))


@dataclass
class Stage:
    """The cluster with both controllers and the metrics."""

    client: KubeClient
    metrics: ScriptedMetrics
    twins: dict[str, Twin] = field(default_factory=dict)

    def deployment_changed(self, key: tuple[str, str], old: int | None, new: int | None) -> None:
        """Note which way a twin goes."""
        twin = self.twins.get(key[1])
        if twin is not None and new is not None and new != twin.way[-1]:
            twin.way.append(new)

    async def play(self, story: Story) -> list[str]:
        """Play a story to its end; where the twins differed."""
        theirs, ours = twins = [Twin(story, api, self.client) for api in (KUBERNETES, MILLISCALE)]
        for twin in twins:
            self.twins[twin.name] = twin
            self.metrics.loads[twin.name] = story.chapters[0].load
        await asyncio.gather(*(twin.create(story) for twin in twins))
        for number, chapter in enumerate(story.chapters):
            for twin in twins:
                if chapter.by_hand is not None:
                    await twin.scale(chapter.by_hand)
                self.metrics.loads[twin.name] = chapter.load
            try:
                await self._arrival(twins, chapter)
            except AssertionError as error:
                return [f"{story.name}, chapter {number}: {error}", f"ways: {theirs.way} and {ours.way}"]
        if theirs.way != ours.way:
            return [f"{story.name}: Kubernetes went {theirs.way}, the autoscaler {ours.way}"]
        if await theirs.events() != await ours.events():
            return [f"{story.name}: {await theirs.events()}\n{await ours.events()}"]
        return []

    async def _arrival(self, twins: list[Twin], chapter: Chapter) -> None:
        """Both come to where they should be, and after some more looks at the load both are there still."""

        async def arrived() -> bool:
            assert [twin.way[-1] for twin in twins] == [chapter.replicas] * 2
            return True

        async def agreed() -> bool:
            assert [twin.way[-1] for twin in twins] == [chapter.replicas] * 2
            assert all(self.metrics.asked[name] >= goal for name, goal in goals.items()), "not looked at often enough"
            theirs, ours = [await twin.said() for twin in twins]
            assert theirs == ours, f"Kubernetes: {theirs}\nautoscaler: {ours}"
            assert theirs["currentReplicas"] == chapter.replicas
            return True

        await eventually(arrived, within=SOON)
        looks = LOOKS if chapter.replicas else 0  # the metrics of what is switched off are not asked for
        goals = {twin.name: self.metrics.asked[twin.name] + looks for twin in twins}
        await eventually(agreed, within=SOON)


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    async with (
        start_cluster(tmp_path / "cluster", ready_seconds=0.05) as cluster,
        await cluster.client() as client,
        scripted_metrics(client, tmp_path) as metrics,
    ):
        await apply(client, await read_objects(ROOT / "manifests/crds/horizontalpodautoscalers.yaml"))
        stage = Stage(client, metrics)
        deployments = Store(
            client,
            "/apis/apps/v1/deployments",
            lambda raw: int(raw["spec"]["replicas"]),
            on_change=stage.deployment_changed,
        )
        ours = autoscaler(cluster.kubeconfig, "--hpa-apis=milliscale", "--metrics-port=0")
        async with (
            background(deployments.run()),
            started("kube-controller-manager", controller_manager(cluster, tmp_path), tmp_path),
            started("autoscaler", ours, tmp_path),
        ):
            yield stage


async def test_both_controllers_take_the_same_decisions(stage: Stage) -> None:
    found = await asyncio.gather(*(stage.play(story) for story in STORIES))
    differences = [each for differences in found for each in differences]
    assert not differences, "\n".join(differences)


async def test_replicas_do_not_change_while_an_hpa_is_migrated_and_back(stage: Stage) -> None:
    story = Story("mover", (QUEUE,), (to(4, 40), to(6, 60), to(3, 30)))
    there, back = Twin(story, KUBERNETES, stage.client), Twin(story, MILLISCALE, stage.client)
    back.name = there.name
    stage.twins[there.name] = there

    async def comes_to(chapter: Chapter) -> None:
        stage.metrics.loads[there.name] = chapter.load

        async def arrived() -> bool:
            return there.way[-1] == chapter.replicas

        await eventually(arrived, within=SOON)

    async def some_more_looks() -> None:
        goal = stage.metrics.asked[there.name] + 2 * LOOKS

        async def looked_at() -> bool:
            return stage.metrics.asked[there.name] >= goal

        await eventually(looked_at, within=SOON)

    stage.metrics.loads[there.name] = story.chapters[0].load
    await there.create(story)
    await comes_to(story.chapters[0])
    old, new = there.objects[1], back.objects[1]
    await stage.client.post(MILLISCALE.path("default"), move(await stage.client.get(old), MILLISCALE).manifest)
    await some_more_looks()
    await stage.client.delete(old)
    await stage.client.patch(new, {"metadata": {"annotations": {"milliscale.io/mode": None}}})
    await comes_to(story.chapters[1])
    await some_more_looks()  # in which Kubernetes' controller forgets the old HPA

    await stage.client.patch(new, {"metadata": {"annotations": {"milliscale.io/mode": "dry-run"}}})
    await stage.client.post(KUBERNETES.path("default"), move(await stage.client.get(new), KUBERNETES).manifest)
    await stage.client.delete(new)
    await comes_to(story.chapters[2])
    assert there.way == [1, 4, 6, 3]

    async def writers() -> bool:
        found = (await stage.client.get("/api/v1/namespaces/default/events"))["items"]
        by = {event["message"].split(";")[0]: event["involvedObject"]["apiVersion"] for event in found}
        assert {size: by.get(f"New size: {size}") for size in (4, 6, 3)} == {
            4: KUBERNETES.api_version,
            6: MILLISCALE.api_version,
            3: KUBERNETES.api_version,
        }
        return True

    await eventually(writers, within=SOON)  # an event comes after the scale that it tells of
