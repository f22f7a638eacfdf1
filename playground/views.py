"""Objects of the API, with the fields that the playground reads.

Each has a `select` for kube.cache.store, which returns None for other JSON.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any, Self

import msgspec


def now() -> str:
    """Return the time as a metav1.Time: whole seconds, in UTC."""
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class _Part(msgspec.Struct, rename="camel"):
    """A part of an object."""


class _Owner(_Part):
    kind: str = ""
    uid: str = ""
    controller: bool = False


class Metadata(_Part):
    """Of any object."""

    name: str
    namespace: str = ""
    uid: str = ""
    generation: int = 0
    creation_timestamp: str = ""
    deletion_timestamp: str | None = None
    labels: dict[str, str] = {}
    owner_references: list[_Owner] = []


class Condition(_Part):
    """A condition of any status."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class _View(_Part):
    metadata: Metadata

    @classmethod
    def select(cls, entry: Mapping[str, Any]) -> Self | None:
        """Return the view of an object."""
        try:
            return msgspec.convert(entry, cls)
        except msgspec.ValidationError:
            return None

    @property
    def name(self) -> str:
        """The object's name."""
        return self.metadata.name

    @property
    def deleting(self) -> bool:
        """True after its deletion was requested."""
        return self.metadata.deletion_timestamp is not None


class _Container(_Part):
    name: str
    image: str = ""


class _PodSpec(_Part):
    node_name: str = ""
    containers: list[_Container] = []


class _PodStatus(_Part):
    phase: str = ""
    conditions: list[Condition] = []


class Pod(_View):
    """A v1 Pod."""

    spec: _PodSpec = msgspec.field(default_factory=_PodSpec)
    status: _PodStatus = msgspec.field(default_factory=_PodStatus)

    @property
    def ready(self) -> bool:
        """True if a Service sends traffic to it."""
        ready = any(one.type == "Ready" and one.status == "True" for one in self.status.conditions)
        return ready and self.status.phase == "Running" and not self.deleting


class ServiceSpec(_Part):
    """Of a Service."""

    selector: dict[str, str] = {}


class Service(_View):
    """A v1 Service."""

    spec: ServiceSpec = msgspec.field(default_factory=ServiceSpec)

    def serves(self, pod: Pod) -> bool:
        """Return whether the Service selects the pod; without a selector it selects none."""
        return bool(self.spec.selector) and self.spec.selector.items() <= pod.metadata.labels.items()


class DeploymentSpec(_Part):
    """Of a Deployment."""

    template: dict[str, Any] = {}
    replicas: int = 1


class DeploymentStatus(_Part):
    """Of a Deployment."""

    observed_generation: int = 0
    replicas: int = 0
    updated_replicas: int = 0
    ready_replicas: int = 0
    available_replicas: int = 0
    unavailable_replicas: int = 0
    conditions: list[Condition] = []


class Deployment(_View):
    """An apps/v1 Deployment."""

    spec: DeploymentSpec
    status: DeploymentStatus = msgspec.field(default_factory=DeploymentStatus)


class Reference(_Part):
    """Names an object, or a metric."""

    name: str = ""
    kind: str = ""


class Event(_View):
    """A v1 Event."""

    involved_object: Reference
    reason: str = ""
    message: str = ""
    count: int = 1

    @property
    def about(self) -> str:
        """The object, `kind/name`."""
        return f"{self.involved_object.kind.lower()}/{self.involved_object.name}"


class _Amounts(_Part):
    value: str = ""
    average_value: str = ""


class _Source(_Part):
    metric: Reference = msgspec.field(default_factory=Reference)
    target: _Amounts = msgspec.field(default_factory=_Amounts)
    current: _Amounts = msgspec.field(default_factory=_Amounts)


class _Metric(_Part):
    pods: _Source | None = None
    object: _Source | None = None
    external: _Source | None = None


class _HpaSpec(_Part):
    scale_target_ref: Reference
    max_replicas: int
    metrics: list[_Metric] = []


class _HpaStatus(_Part):
    current_metrics: list[_Metric] | None = None
    conditions: list[Condition] = []


class Hpa(_View):
    """An autoscaling/v2 HorizontalPodAutoscaler with one metric."""

    spec: _HpaSpec
    status: _HpaStatus = msgspec.field(default_factory=_HpaStatus)

    @property
    def target(self) -> str:
        """The name of its Deployment."""
        return self.spec.scale_target_ref.name

    @property
    def metric(self) -> str:
        """The name of the metric."""
        return _first(self.spec.metrics).metric.name

    @property
    def goal(self) -> str:
        """The metric's target, a quantity; or ""."""
        return _text(_first(self.spec.metrics).target)

    @property
    def value(self) -> str:
        """The metric's current value, a quantity; or ""."""
        return _text(_first(self.status.current_metrics).current)

    @property
    def problem(self) -> str:
        """Reason and message of the first condition that is not True, or ""."""
        for one in self.status.conditions:
            if one.type in ("AbleToScale", "ScalingActive") and one.status != "True":
                return f"{one.reason}: {one.message}"
        return ""


def _first(metrics: list[_Metric] | None) -> _Source:
    for metric in metrics or ():
        return metric.pods or metric.object or metric.external or _Source()
    return _Source()


def _text(amounts: _Amounts) -> str:
    # An External metric has its total beside the average per pod; the target is for the average.
    return amounts.average_value or amounts.value
