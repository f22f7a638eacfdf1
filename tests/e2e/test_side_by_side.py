"""The autoscaler and kube-controller-manager side by side in one cluster: they take the same decisions.

Each scenario runs twice at the same time: kube-controller-manager scales one Deployment by an HPA of autoscaling/v2,
the autoscaler scales another one by an HPA of milliscale.io/v1 with the same spec, and both get the same metrics. At
the end of each phase both targets have the expected replicas and both HPAs the same status; in the end both targets
have had the same sequence of replicas and both HPAs the same events.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from autoscaler.commands.migrate import move
from autoscaler.core.model import KUBERNETES, MILLISCALE, HPAApi
from kube.api.client import KubeClient
from kube.cache.store import Store
from playground.cluster import start_cluster
from playground.install import apply, read_objects
from playground.tasks import background
from tests.e2e.controllers import ROOT, autoscaler, controller_manager, needs_controller_manager, started
from tests.e2e.scripted_metrics import METRIC, Load, ScriptedMetrics, scripted_metrics
from tests.eventually import eventually
from tests.objects import deployment, hpa

CUSTOM, EXTERNAL, RESOURCE = "custom.metrics.k8s.io", "external.metrics.k8s.io", "metrics.k8s.io"
SOON = 40.0
SYNCS = 3
"""The number of syncs after the target has its replicas, until no policy and no window depends on the scaling."""

pytestmark = needs_controller_manager


@dataclass(frozen=True, slots=True)
class Phase:
    """A load, and the replicas that both targets get."""

    load: Load
    replicas: int
    by_hand: int | None = None
    """The replicas that a user sets at the beginning."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """An HPA's spec and its phases. APP in the metrics is replaced by the name of each target."""

    name: str
    metrics: tuple[dict[str, Any], ...]
    phases: tuple[Phase, ...]
    start: int = 1
    least: int = 1
    most: int = 10
    behavior: dict[str, Any] = field(default_factory=dict)


def to(replicas: int, total: int, *, silent: int = 0, failing: str = "", by_hand: int | None = None) -> Phase:
    """A phase in which both targets get `replicas` at a load of `total` units."""
    failed = frozenset(filter(None, [failing]))
    return Phase(Load(total * 1000, silent=silent, failing=failed), replicas, by_hand)


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

SCENARIOS = [
    Scenario(
        "up-and-down",
        (QUEUE,),
        (to(2, 20), to(2, 21), to(10, 100), to(10, 130), to(10, 10, failing=EXTERNAL), to(5, 45), to(1, 0)),
    ),
    Scenario(
        "shared-by-pods",
        (PACKETS,),
        (to(3, 30), to(3, 32), to(9, 90), to(9, 20, failing=CUSTOM), to(6, 45, silent=3), to(5, 45), to(9, 85)),
        start=2,
    ),
    Scenario(
        "some-pods-are-silent",
        (PACKETS,),
        (to(4, 40), to(4, 60, silent=2), to(4, 100, silent=3), to(5, 100, silent=1)),
        most=5,
        start=2,
    ),
    # Each pod requests 100 cores, which makes the loads percents.
    Scenario("cpu", (CPU,), (to(2, 100), to(4, 200), to(4, 215), to(4, 100, failing=RESOURCE), to(2, 90)), start=2),
    Scenario("cpu-of-a-container", (ONE_CONTAINER,), (to(6, 300), to(3, 150)), start=3),
    Scenario("a-services-requests", (REQUESTS,), (to(6, 20), to(6, 10), to(1, 5)), start=2, most=6),
    Scenario(
        "gently",
        (QUEUE,),
        (to(10, 100), to(2, 20)),
        start=2,
        behavior={"scaleUp": rules(("Pods", 2, 2)), "scaleDown": rules(("Percent", 50, 2))},
    ),
    Scenario(
        "up-by-the-smaller-step-and-never-down",
        (QUEUE,),
        (to(4, 40), to(4, 10)),
        behavior={
            "scaleUp": rules(("Pods", 1, 1), ("Percent", 100, 1), selectPolicy="Min"),
            "scaleDown": {"selectPolicy": "Disabled"},
        },
    ),
    Scenario(
        "with-a-tolerance-of-its-own",
        (QUEUE,),
        # With 3 of 4 replicas in the status, as seen on the way, 40 must be outside of the tolerance: else 3 are kept.
        (to(2, 25), to(4, 40), to(4, 38), to(3, 30)),
        start=2,
        behavior={"scaleUp": {**AT_ONCE, "tolerance": "300m"}, "scaleDown": {**AT_ONCE, "tolerance": "100m"}},
    ),
    Scenario(
        "one-of-two-metrics-fails",
        (QUEUE, PACKETS),
        (
            to(3, 30),
            to(6, 60, failing=CUSTOM),
            to(6, 10, failing=CUSTOM),
            # A reconciliation may query one metric before a change of the load and the other one after it.
            to(6, 60),
            to(6, 10, failing=EXTERNAL),
            to(1, 10),
        ),
    ),
    Scenario("switched-off-by-hand", (QUEUE,), (to(3, 30), to(0, 50, by_hand=0), to(5, 50, by_hand=1)), start=3),
    Scenario(
        "out-of-bounds-by-hand", (QUEUE,), (to(3, 30), to(6, 60, by_hand=9), to(6, 60, by_hand=1)), least=2, most=6
    ),
]


class Target:
    """A Deployment and the HPA that scales it, in one of the two APIs."""

    def __init__(self, scenario: Scenario, api: HPAApi, client: KubeClient) -> None:
        self.name = f"{scenario.name}-{api.name}"
        self.counts = [scenario.start]
        self._api = api
        self._client = client

    @property
    def objects(self) -> tuple[str, str]:
        """Return the paths of the Deployment and of the HPA."""
        return f"/apis/apps/v1/namespaces/default/deployments/{self.name}", self._api.path("default", self.name)

    async def create(self, scenario: Scenario) -> None:
        """Create the Deployment and its HPA."""
        made = deployment(self.name, replicas=scenario.start, requests={"cpu": "100"})
        await self._client.post("/apis/apps/v1/namespaces/default/deployments", made)

        async def rolled_out() -> bool:
            status = (await self._client.get(self.objects[0])).get("status") or {}
            return bool(status.get("readyReplicas") == scenario.start)

        await eventually(rolled_out, within=SOON)
        metrics = json.loads(json.dumps(scenario.metrics).replace('"APP"', f'"{self.name}"'))
        spec: dict[str, Any] = {"minReplicas": scenario.least, "maxReplicas": scenario.most}
        if scenario.behavior:
            spec["behavior"] = scenario.behavior
        api = self._api.api_version
        await self._client.post(self._api.path("default"), hpa(self.name, *metrics, target=self.name, api=api, **spec))

    async def scale(self, replicas: int) -> None:
        """Set the replicas, as `kubectl scale` does."""
        await self._client.patch(f"{self.objects[0]}/scale", {"spec": {"replicas": replicas}})

    async def status(self) -> Any:
        """Return the HPA's status without times, with APP in the place of the name."""
        status = (await self._client.get(self.objects[1])).get("status") or {}
        status.setdefault("currentReplicas", 0)  # omitted by Go
        status.pop("lastScaleTime", None)
        status.pop("targets", None)  # added by kube-apiserver for HPAs of autoscaling/v2
        status.pop("observedGeneration", None)  # autoscaling/v2 has it from Kubernetes 1.37 on
        for condition in status.get("conditions") or ():
            condition.pop("lastTransitionTime")
        return self._without_name({key: value for key, value in status.items() if value is not None})

    async def events(self) -> Any:
        """Return types, reasons and messages of the HPA's events, sorted.

        Without those of conflicts: on a busy machine a controller writes a status before its own last write is back in
        its cache. Which sync that meets is chance.
        """
        found = (await self._client.get("/api/v1/namespaces/default/events"))["items"]
        mine = [
            each
            for each in found
            if each["involvedObject"]["name"] == self.name and "object has been modified" not in each["message"]
        ]
        return self._without_name(sorted([each["type"], each["reason"], each["message"]] for each in mine))

    def _without_name(self, value: Any) -> Any:
        return json.loads(json.dumps(value).replace(self.name, "APP"))


@dataclass
class Stage:
    """The cluster with both controllers and the metrics."""

    client: KubeClient
    metrics: ScriptedMetrics
    targets: dict[str, Target] = field(default_factory=dict)

    def deployment_changed(self, key: tuple[str, str], old: int | None, new: int | None) -> None:
        """Record the replicas of a target."""
        target = self.targets.get(key[1])
        if target is not None and new is not None and new != target.counts[-1]:
            target.counts.append(new)

    async def run_scenario(self, scenario: Scenario) -> list[str]:
        """Run a scenario; return the differences."""
        theirs, ours = targets = [Target(scenario, api, self.client) for api in (KUBERNETES, MILLISCALE)]
        for each in targets:
            self.targets[each.name] = each
            self.metrics.loads[each.name] = scenario.phases[0].load
        await asyncio.gather(*(each.create(scenario) for each in targets))
        for number, phase in enumerate(scenario.phases):
            for each in targets:
                if phase.by_hand is not None:
                    await each.scale(phase.by_hand)
                self.metrics.loads[each.name] = phase.load
            try:
                await self._wait_for(targets, phase)
            except AssertionError as error:
                return [f"{scenario.name}, phase {number}: {error}", f"replicas: {theirs.counts} and {ours.counts}"]
        if theirs.counts != ours.counts:
            return [
                f"{scenario.name}: kube-controller-manager scaled to {theirs.counts}, the autoscaler to {ours.counts}"
            ]
        if await theirs.events() != await ours.events():
            return [f"{scenario.name}: {await theirs.events()}\n{await ours.events()}"]
        return []

    async def _wait_for(self, targets: list[Target], phase: Phase) -> None:
        """Wait until both targets have the expected replicas and, some syncs later, both HPAs the same status."""

        async def arrived() -> bool:
            assert [each.counts[-1] for each in targets] == [phase.replicas] * 2
            return True

        async def agreed() -> bool:
            assert [each.counts[-1] for each in targets] == [phase.replicas] * 2
            assert all(self.metrics.requests[name] >= goal for name, goal in goals.items()), "too few requests"
            theirs, ours = [await each.status() for each in targets]
            assert theirs == ours, f"kube-controller-manager: {theirs}\nautoscaler: {ours}"
            assert theirs["currentReplicas"] == phase.replicas
            return True

        await eventually(arrived, within=SOON)
        syncs = SYNCS if phase.replicas else 0  # a disabled HPA requests no metrics
        goals = {each.name: self.metrics.requests[each.name] + syncs for each in targets}
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
    found = await asyncio.gather(*(stage.run_scenario(scenario) for scenario in SCENARIOS))
    differences = [each for differences in found for each in differences]
    assert not differences, "\n".join(differences)


async def test_replicas_do_not_change_while_an_hpa_is_migrated_and_back(stage: Stage) -> None:
    scenario = Scenario("mover", (QUEUE,), (to(4, 40), to(6, 60), to(3, 30)))
    there, back = Target(scenario, KUBERNETES, stage.client), Target(scenario, MILLISCALE, stage.client)
    back.name = there.name
    stage.targets[there.name] = there

    async def comes_to(phase: Phase) -> None:
        stage.metrics.loads[there.name] = phase.load

        async def arrived() -> bool:
            return there.counts[-1] == phase.replicas

        await eventually(arrived, within=SOON)

    async def some_more_syncs() -> None:
        goal = stage.metrics.requests[there.name] + 2 * SYNCS

        async def synced() -> bool:
            return stage.metrics.requests[there.name] >= goal

        await eventually(synced, within=SOON)

    stage.metrics.loads[there.name] = scenario.phases[0].load
    await there.create(scenario)
    await comes_to(scenario.phases[0])
    old, new = there.objects[1], back.objects[1]
    await stage.client.post(MILLISCALE.path("default"), move(await stage.client.get(old), MILLISCALE).manifest)
    await some_more_syncs()
    await stage.client.delete(old)
    await stage.client.patch(new, {"metadata": {"annotations": {"milliscale.io/mode": None}}})
    await comes_to(scenario.phases[1])
    await some_more_syncs()  # until kube-controller-manager has removed the old HPA

    await stage.client.patch(new, {"metadata": {"annotations": {"milliscale.io/mode": "dry-run"}}})
    await stage.client.post(KUBERNETES.path("default"), move(await stage.client.get(new), KUBERNETES).manifest)
    await stage.client.delete(new)
    await comes_to(scenario.phases[2])
    assert there.counts == [1, 4, 6, 3]

    async def writers() -> bool:
        found = (await stage.client.get("/api/v1/namespaces/default/events"))["items"]
        by = {event["message"].split(";")[0]: event["involvedObject"]["apiVersion"] for event in found}
        assert {size: by.get(f"New size: {size}") for size in (4, 6, 3)} == {
            4: KUBERNETES.api_version,
            6: MILLISCALE.api_version,
            3: KUBERNETES.api_version,
        }
        return True

    await eventually(writers, within=SOON)  # an event is written after its scale
