"""Typed views of objects for the demo. Each has a `select` for kube.cache.store, which returns None for other JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec


@dataclass(frozen=True, slots=True, kw_only=True)
class Hpa:
    """An HPA with one metric; quantities are those of the API, or ""."""

    name: str
    target: str
    """The name of its Deployment."""
    metric: str
    goal: str
    value: str
    minimum: int
    maximum: int
    problem: str
    """Reason and message of the first condition that is not True, or ""."""

    @staticmethod
    def select(entry: Mapping[str, Any]) -> Hpa | None:
        """Return the view of an autoscaling/v2 HorizontalPodAutoscaler."""
        hpa = _read(entry, _HpaJson)
        if hpa is None:
            return None
        wanted = next((metric.source for metric in hpa.spec.metrics), _SourceJson())
        current = next((metric.source for metric in hpa.status.current_metrics or ()), _SourceJson())
        return Hpa(
            name=hpa.metadata.name,
            target=hpa.spec.scale_target_ref.name,
            metric=wanted.metric.name,
            goal=wanted.target.text,
            value=current.current.text,
            minimum=hpa.spec.min_replicas,
            maximum=hpa.spec.max_replicas,
            problem=next((f"{one.reason}: {one.message}" for one in hpa.status.conditions if one.is_problem), ""),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """Desired and ready replicas."""

    replicas: int
    ready: int

    @staticmethod
    def select(entry: Mapping[str, Any]) -> Deployment | None:
        """Return the view of an apps/v1 Deployment."""
        deployment = _read(entry, _DeploymentJson)
        if deployment is None:
            return None
        return Deployment(replicas=deployment.spec.replicas, ready=deployment.status.ready_replicas)


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """An event about an object (`kind/name`), with its count."""

    about: str
    reason: str
    message: str
    count: int = 1

    @staticmethod
    def select(entry: Mapping[str, Any]) -> Event | None:
        """Return the view of a v1 Event."""
        event = _read(entry, _EventJson)
        if event is None:
            return None
        about = f"{event.involved_object.kind.lower()}/{event.involved_object.name}"
        return Event(about=about, reason=event.reason, message=event.message, count=event.count)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """A pod; `ready` means that a Service sends traffic to it."""

    name: str
    ready: bool
    labels: Mapping[str, str] = field(default_factory=dict)

    @staticmethod
    def select(entry: Mapping[str, Any]) -> Pod | None:
        """Return the view of a v1 Pod."""
        pod = _read(entry, _PodJson)
        if pod is None:
            return None
        ready = any(one.type == "Ready" and one.status == "True" for one in pod.status.conditions)
        return Pod(
            name=pod.metadata.name,
            ready=ready and pod.status.phase == "Running" and pod.metadata.deletion_timestamp is None,
            labels=pod.metadata.labels,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """A Service with its selector."""

    name: str
    selector: Mapping[str, str] = field(default_factory=dict)

    @staticmethod
    def select(entry: Mapping[str, Any]) -> Service | None:
        """Return the view of a v1 Service."""
        service = _read(entry, _ServiceJson)
        if service is None:
            return None
        return Service(name=service.metadata.name, selector=service.spec.selector)

    def serves(self, pod: Pod) -> bool:
        """Return whether the Service selects the pod; without a selector it selects none."""
        return bool(self.selector) and self.selector.items() <= pod.labels.items()


class _Json(msgspec.Struct, rename="camel"):
    """The fields of an object that are read."""


class _MetadataJson(_Json):
    name: str
    labels: dict[str, str] = {}
    deletion_timestamp: str | None = None


class _ReferenceJson(_Json):
    name: str = ""
    kind: str = ""


class _AmountsJson(_Json):
    value: str = ""
    average_value: str = ""

    @property
    def text(self) -> str:
        # An External metric has its total beside the average per pod; the target is for the average.
        return self.average_value or self.value


class _SourceJson(_Json):
    metric: _ReferenceJson = msgspec.field(default_factory=_ReferenceJson)
    target: _AmountsJson = msgspec.field(default_factory=_AmountsJson)
    current: _AmountsJson = msgspec.field(default_factory=_AmountsJson)


class _MetricJson(_Json):
    pods: _SourceJson | None = None
    object: _SourceJson | None = None
    external: _SourceJson | None = None

    @property
    def source(self) -> _SourceJson:
        return self.pods or self.object or self.external or _SourceJson()


class _ConditionJson(_Json):
    type: str
    status: str
    reason: str = ""
    message: str = ""

    @property
    def is_problem(self) -> bool:
        return self.type in ("AbleToScale", "ScalingActive") and self.status != "True"


class _HpaSpecJson(_Json):
    scale_target_ref: _ReferenceJson
    max_replicas: int
    min_replicas: int = 1
    metrics: list[_MetricJson] = []


class _HpaStatusJson(_Json):
    current_metrics: list[_MetricJson] | None = None
    conditions: list[_ConditionJson] = []


class _HpaJson(_Json):
    metadata: _MetadataJson
    spec: _HpaSpecJson
    status: _HpaStatusJson = msgspec.field(default_factory=_HpaStatusJson)


class _ReplicasJson(_Json):
    replicas: int = 1
    ready_replicas: int = 0


class _DeploymentJson(_Json):
    spec: _ReplicasJson
    status: _ReplicasJson = msgspec.field(default_factory=_ReplicasJson)


class _EventJson(_Json):
    involved_object: _ReferenceJson
    reason: str = ""
    message: str = ""
    count: int = 1


class _PodStatusJson(_Json):
    phase: str = ""
    conditions: list[_ConditionJson] = []


class _PodJson(_Json):
    metadata: _MetadataJson
    status: _PodStatusJson = msgspec.field(default_factory=_PodStatusJson)


class _ServiceSpecJson(_Json):
    selector: dict[str, str] = {}


class _ServiceJson(_Json):
    metadata: _MetadataJson
    spec: _ServiceSpecJson = msgspec.field(default_factory=_ServiceSpecJson)


_T = TypeVar("_T")


def _read(entry: Mapping[str, Any], form: type[_T]) -> _T | None:
    try:
        return msgspec.convert(entry, form)
    except msgspec.ValidationError:
        return None
