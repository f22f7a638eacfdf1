"""A case: an HPA's spec, its target, its pods and the responses about them, phase by phase, all from a seed."""

from dataclasses import dataclass
from random import Random
from typing import Any

from tests.e2e.fuzz import responses
from tests.e2e.fuzz.responses import FUTURE, PAST, Response

QUANTITIES = [
    "10",
    "1",
    "100",
    "25",
    "12500m",
    "1.5",
    "1e1",
    "0.018",
    "2Ki",
    "5.",
    "+1",
    "00012",
    "1500u",
    "99999999999",
    "1k",
]
TOLERANCES = ["0", "0.018", "100m", "0.5", "1", "50m", "1e-1"]
LABELS = {"tier": "front", "env": "prod"}


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod: its manifest without a namespace, its status, and whether it is being deleted."""

    manifest: dict[str, Any]
    status: dict[str, Any]
    deleting: bool

    @property
    def name(self) -> str:
        """Its name."""
        return str(self.manifest["metadata"]["name"])


@dataclass(frozen=True, slots=True)
class Target:
    """The scale target."""

    kind: str
    spec_replicas: int
    status_replicas: int
    selector: dict[str, Any]
    text: str | None
    """The selector of the scale of a target that is not a Deployment; None: it has none."""


@dataclass(frozen=True, slots=True)
class Phase:
    """The state of a case until the next phase."""

    spec: dict[str, Any]
    target: Target
    pods: tuple[Pod, ...]
    responses: dict[str, Response]
    """By the name of the metric on the server: "resource", or the metric's name."""
    parked_change: bool
    """The HPA's target is parked while the state changes, so that no controller sees an intermediate state."""

    @property
    def longest_period(self) -> int:
        """Of the policies that may allow another scale within a run, in seconds: the API's defaults have 15."""
        behavior = self.spec.get("behavior", {})
        defaulted = behavior and not all("policies" in behavior.get(each, {}) for each in ("scaleUp", "scaleDown"))
        return 15 if defaulted else 1

    @property
    def parked(self) -> dict[str, Any]:
        """The spec with a target that does not exist."""
        reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "parked"}
        return {**self.spec, "scaleTargetRef": reference}


@dataclass(frozen=True, slots=True)
class Case:
    """An HPA with its phases."""

    name: str
    phases: tuple[Phase, ...]


@dataclass(frozen=True, slots=True)
class Kind:
    """Common properties of the cases of a round."""

    to_zero: bool = False
    """`minReplicas: 0` occurs; the feature gate HPAScaleToZero is on."""
    coalescible: bool = False
    """Every HPA has one of a few metrics of pods with a selector of the same form, and few responses are faults;
    so many of them are coalesced."""


def make_case(name: str, random: Random, phases: int, kind: Kind) -> Case:
    """A random case."""
    target_kind = random.choices(["Deployment", "Widget", "Gadget", "Gizmo"], [90, 7, 2, 1])[0]
    selector = _selector(random, name)
    if kind.coalescible:
        target_kind, selector = "Deployment", {"matchLabels": {"app": name}}
    made: list[Phase] = []
    for number in range(phases):
        before = made[-1] if made else None
        spec = _spec(random, name, target_kind, kind) if before is None or random.random() < 0.35 else before.spec
        parked_change = (
            before is None
            or random.random() < 0.7
            or spec is not before.spec
            or len(spec.get("metrics", ())) != 1
            or "behavior" in spec
        )
        if parked_change:
            pods = _pods(random, name, number, before.pods if before else ())
            replicas = random.choice([0, 1, 1, 2, 2, 3, 3, 4, 5, 7, 10, 22]) if random.random() < 0.9 else len(pods)
            status = replicas if random.random() < 0.8 else random.choice([0, 1, 3, 8])
            target = Target(target_kind, replicas, status, selector, _selector_text(random, name))
        else:
            assert before is not None
            pods, target = before.pods, before.target
        responded = _responses(random, name, spec, pods)
        while kind.coalescible and any(each.items is None for each in responded.values()):
            responded = _responses(random, name, spec, pods)
        made.append(Phase(spec, target, pods, responded, parked_change))
    return Case(name, tuple(made))


# --- the HPA -------------------------------------------------------------------------------------------------------


def _spec(random: Random, name: str, target_kind: str, kind: Kind) -> dict[str, Any]:
    spec: dict[str, Any] = {"scaleTargetRef": _reference(random, name, target_kind)}
    least = random.choice([0, 0, 1, 2] if kind.to_zero else [1, 1, 1, 2, 3])
    spec["maxReplicas"] = max(1, least + random.choice([0, 1, 3, 7, 17]))
    if least != 1 or random.random() < 0.5:
        spec["minReplicas"] = least
    if kind.coalescible:
        spec["minReplicas"] = max(1, least)
        spec["scaleTargetRef"] = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}
        spec["metrics"] = [random.choice(_ALIKE)]
        return spec
    spec["metrics"] = [_metric(random, name, number) for number in range(random.choice([1, 1, 1, 1, 2, 2, 3]))]
    if not least and not {"Object", "External"} & {metric["type"] for metric in spec["metrics"]}:
        spec["minReplicas"] = 1
    if random.random() < 0.35:
        spec["behavior"] = _behavior(random)
    return spec


_ALIKE: tuple[dict[str, Any], ...] = (
    {"type": "Pods", "pods": {"metric": {"name": "load"}, "target": {"type": "AverageValue", "averageValue": "10"}}},
    {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}},
    {
        "type": "ContainerResource",
        "containerResource": {"name": "cpu", "container": "c", "target": {"type": "AverageValue", "averageValue": "1"}},
    },
)


def _reference(random: Random, name: str, kind: str) -> dict[str, Any]:
    draw = random.random()
    if kind != "Deployment":
        return {"apiVersion": "fuzz.example.com/v1", "kind": kind if draw < 0.9 else kind.lower(), "name": name}
    usual = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}
    odd: dict[str, Any] = {}
    if draw < 0.12:
        odd = random.choice(
            [
                {"kind": "deployment"},
                {"kind": "DEPLOYMENT"},
                {"kind": "deployments"},
                {"kind": "DeploymentList"},
                {"kind": "Nothing"},
                {"apiVersion": "apps/v1beta9"},
                {"apiVersion": "nothing.example.com/v1"},
                {"apiVersion": "v1"},
                {"name": "missing"},
                {"kind": "ControllerRevision"},
                {"kind": "Pod", "apiVersion": "v1"},
            ]
        )
    return {**usual, **odd}


def _metric(random: Random, name: str, number: int) -> dict[str, Any]:
    kind = random.choice(
        ["Resource", "Resource", "ContainerResource", "Pods", "Pods", "Object", "External", "External"]
    )
    identifier: dict[str, Any] = {"name": random.choice(["load", "packets"])}
    if random.random() < 0.3:
        identifier["selector"] = _metric_selector(random)
    if kind in ("Resource", "ContainerResource"):
        fields: dict[str, Any] = {"name": random.choice(["cpu", "cpu", "cpu", "memory", "example.com/gpu"])}
        if kind == "ContainerResource":
            fields["container"] = random.choice(["c", "c", "side", "absent"])
        fields["target"] = random.choice([_utilization(random), _utilization(random), _average(random)])
        if fields["name"] == "memory" and "averageValue" in fields["target"]:
            fields["target"]["averageValue"] = random.choice(["64Mi", "100M", "1Gi", "5e7", "1.5Gi"])
        key = "resource" if kind == "Resource" else "containerResource"
        return {"type": kind, key: fields}
    if kind == "Pods":
        return {"type": kind, "pods": {"metric": identifier, "target": _average(random)}}
    identifier["name"] = f"{name}-{number}"
    target = random.choice([_average(random), {"type": "Value", "value": random.choice(QUANTITIES)}])
    if kind == "External":
        return {"type": kind, "external": {"metric": identifier, "target": target}}
    described = random.choice(
        [
            {"apiVersion": "v1", "kind": "Service", "name": name},
            {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "name": name},
            {"apiVersion": "networking.k8s.io/v1beta7", "kind": "Ingress", "name": name},
            {"apiVersion": "v1", "kind": "service", "name": name},
            {"apiVersion": "v1", "kind": "Namespace", "name": "elsewhere"},
            {"apiVersion": "v1", "kind": "Node", "name": name},
            {"kind": "Service", "name": name},
            {"apiVersion": "example.com/v1", "kind": "Nothing", "name": name},
        ]
    )
    return {"type": kind, "object": {"metric": identifier, "describedObject": described, "target": target}}


def _utilization(random: Random) -> dict[str, Any]:
    return {"type": "Utilization", "averageUtilization": random.choice([1, 10, 50, 50, 80, 100, 150, 999])}


def _average(random: Random) -> dict[str, Any]:
    return {"type": "AverageValue", "averageValue": random.choice(QUANTITIES)}


def _metric_selector(random: Random) -> dict[str, Any]:
    return random.choice(
        [
            {},
            {"matchLabels": {"verb": "GET"}},
            {"matchLabels": {"b": "2", "a": "1"}},
            {"matchExpressions": [{"key": "verb", "operator": "In", "values": ["POST", "GET"]}]},
            {"matchLabels": {"a": "1"}, "matchExpressions": [{"key": "x", "operator": "Exists"}]},
            {"matchExpressions": [{"key": "x", "operator": "DoesNotExist"}]},
            {"matchExpressions": [{"key": "x", "operator": "NotIn", "values": ["b", "a", "a"]}]},
            {"matchExpressions": [{"key": "x", "operator": "Equals", "values": ["b"]}]},
            {"matchExpressions": [{"key": "x", "operator": "In"}]},
            {"matchExpressions": [{"key": "x", "operator": "Exists", "values": ["b"]}]},
            {"matchLabels": {"not a label": "1"}},
            {"matchLabels": {"verb": "not a value!"}},
        ]
    )


def _behavior(random: Random) -> dict[str, Any]:
    behavior = {}
    for direction in ("scaleUp", "scaleDown"):
        if random.random() < 0.75:
            behavior[direction] = _rules(random)
    return behavior


def _rules(random: Random) -> dict[str, Any]:
    """Windows and periods end at once or not within a run."""
    rules: dict[str, Any] = {}
    if random.random() < 0.7:
        rules["stabilizationWindowSeconds"] = random.choice([0, 0, 0, 3600])
    if random.random() < 0.7:
        rules["policies"] = [
            {
                "type": random.choice(["Pods", "Percent"]),
                "value": random.choice([1, 2, 3, 10, 50, 90, 100, 400]),
                "periodSeconds": random.choice([1, 1, 1800]),
            }
            for _ in range(random.choice([1, 1, 2]))
        ]
        if random.random() < 0.5:
            rules["selectPolicy"] = random.choice(["Max", "Min", "Disabled"])
    if random.random() < 0.4:
        rules["tolerance"] = random.choice(TOLERANCES)
    return rules if rules.keys() - {"tolerance"} or random.random() < 0.5 else {"stabilizationWindowSeconds": 0}


# --- the target and its pods ---------------------------------------------------------------------------------------


def _selector(random: Random, name: str) -> dict[str, Any]:
    more: dict[str, Any] = random.choice(
        [
            {},
            {},
            {},
            {"matchLabels": {"tier": "front"}},
            {"matchExpressions": [{"key": "tier", "operator": "Exists"}]},
            {"matchExpressions": [{"key": "legacy", "operator": "DoesNotExist"}]},
            {"matchExpressions": [{"key": "tier", "operator": "In", "values": ["front", "back"]}]},
        ]
    )
    return {**more, "matchLabels": {"app": name, **more.get("matchLabels", {})}}


def _selector_text(random: Random, name: str) -> str | None:
    """Of a custom resource, which may write there whatever it likes."""
    texts: list[str | None] = [
        f"app={name}",
        f"app=={name}",
        f"app in ({name})",
        f"app={name},!legacy",
        f"app={name},tier!=x",
    ]
    odd: list[str | None] = [
        None,
        "",
        f"app={name},n>3",
        "a in (",
        "a=b=c",
        f"app={name},tier notin (a,b)",
        f" app = {name} ",
    ]
    return random.choice(texts if random.random() < 0.5 else odd)


def _pods(random: Random, name: str, phase: int, before: tuple[Pod, ...]) -> tuple[Pod, ...]:
    """Those of the phase before, changed; pods cannot be changed in most ways, so a new one has a new name."""
    kept = [_changed(random, pod) for pod in before if not pod.deleting and random.random() < 0.75]
    wanted = random.choice([0, 1, 1, 2, 3, 3, 4, 5])
    new = [_pod(random, name, f"{name}-{phase}{number}") for number in range(max(0, wanted - len(kept)))]
    return (*kept, *new)


def _changed(random: Random, pod: Pod) -> Pod:
    if pod.status["phase"] in ("Failed", "Succeeded"):
        return pod  # as it stays in a cluster
    return Pod(pod.manifest, _pod_status(random), random.random() < 0.07)


def _pod(random: Random, name: str, pod_name: str) -> Pod:
    containers = [{"name": "c", "image": "i", "resources": {"requests": _requests(random)}}]
    if random.random() < 0.35:
        containers.append({"name": "side", "image": "i", "resources": {"requests": _requests(random)}})
    spec: dict[str, Any] = {"containers": containers}
    if random.random() < 0.2:
        sidecar = {"restartPolicy": "Always"} if random.random() < 0.6 else {}
        spec["initContainers"] = [
            {"name": "init", "image": "i", "resources": {"requests": _requests(random)}, **sidecar}
        ]
    if random.random() < 0.1:
        spec["resources"] = {"requests": {"cpu": "8"} if random.random() < 0.5 else {"memory": "8Gi", "cpu": "9"}}
    labels = {"app": name, **LABELS} if random.random() < 0.95 else {"app": name, "legacy": "yes"}
    return Pod(
        {"metadata": {"name": pod_name, "labels": labels}, "spec": spec}, _pod_status(random), random.random() < 0.05
    )


def _requests(random: Random) -> dict[str, str]:
    requests = {}
    if random.random() < 0.96:
        requests["cpu"] = random.choice(["100m", "100m", "1", "250m", "0.1", "1500m", "0", "0.0001"])
    if random.random() < 0.9:
        requests["memory"] = random.choice(["64Mi", "128Mi", "100M", "1Gi", "1e8", "0"])
    return requests


def _pod_status(random: Random) -> dict[str, Any]:
    status: dict[str, Any] = {
        "phase": random.choices(["Running", "Pending", "Failed", "Succeeded", "Unknown"], [86, 5, 4, 3, 2])[0]
    }
    if random.random() < 0.95:
        status["startTime"] = random.choice([PAST, PAST, FUTURE])
    if random.random() < 0.95:
        ready = random.choices(["True", "False", "Unknown"], [80, 17, 3])[0]
        status["conditions"] = [{"type": "Ready", "status": ready, "lastTransitionTime": random.choice([PAST, FUTURE])}]
    return status


# --- the metrics ---------------------------------------------------------------------------------------------------


def _responses(random: Random, name: str, spec: dict[str, Any], pods: tuple[Pod, ...]) -> dict[str, Response]:
    names = [pod.name for pod in pods]
    made = {"resource": responses.resource_response(random, names, ["c", "side"] if random.random() < 0.4 else ["c"])}
    for metric in spec["metrics"]:
        fields = metric[metric["type"][0].lower() + metric["type"][1:]]
        key = fields["metric"]["name"] if "metric" in fields else "resource"
        if metric["type"] == "Pods":
            made[key] = responses.pods_response(random, names)
        elif metric["type"] == "Object":
            made[key] = responses.object_response(random, name)
        elif metric["type"] == "External":
            made[key] = responses.external_response(random)
    return made
