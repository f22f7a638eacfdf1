"""Scales, workloads and pods, from Kubernetes JSON into the model.

A cluster has many pods, and the pods of one workload differ mainly in their names. So equal labels and containers of
consecutive pods are shared objects.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final, TypeAlias

import msgspec

from autoscaler.core.model import Int32, LabelSelectorSpec
from autoscaler.core.observation import Container, Owned, Owner, Pod, ReadyCondition, Scale
from autoscaler.core.quantities import milli_value
from autoscaler.objects.decoding import convert, intern, object_name, optional_time_ms
from kube.api.objects import ParseError, TooLargeError
from kube.values import selectors
from kube.values.quantity import QuantityError
from kube.values.selectors import Operator, Requirement, SelectorError

_log = logging.getLogger(__name__)

PODS: Final = "/api/v1/pods"
_CACHED: Final = 1024
# Kubernetes has no limit. To parse a selector of a megabyte takes a second, which all other HPAs would wait for.
_MAX_SELECTOR: Final = 8 * 1024
# Stored of a pod, as JSON: its labels, and the names and requests of its containers. In memory it takes ten times
# as much. A pod of a hundred containers has less.
_MAX_POD: Final = 8 * 1024
_NOT_CONVERTIBLE: Final = (
    "received an object from a /scale endpoint which was not convertible to autoscaling Scale: "
    "failed to parse target selector"
)

# --- JSON shapes; null means "absent" in Kubernetes ----------------------------------------------------------------

_Requests: TypeAlias = dict[str, str | int | float]


class _Shape(msgspec.Struct, rename="camel", kw_only=True, omit_defaults=True):
    pass


class _OwnerReference(_Shape):
    kind: str = ""
    uid: str = ""
    controller: bool | None = None


class _Metadata(_Shape):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    labels: dict[str, str] | None = None
    owner_references: list[_OwnerReference] | None = None
    deletion_timestamp: str | None = None


class _Object(_Shape):
    metadata: _Metadata


class _ScaleSpec(_Shape):
    replicas: Int32 = 0


class _ScaleStatus(_Shape):
    replicas: Int32 = 0
    selector: str = ""


class _Scale(_Shape):
    metadata: _Metadata | None = None
    spec: _ScaleSpec | None = None
    status: _ScaleStatus | None = None


class _WorkloadSpec(_Shape):
    replicas: Int32
    selector: LabelSelectorSpec


class _Workload(_Object):
    spec: _WorkloadSpec
    status: _ScaleStatus | None = None


class _Resources(_Shape):
    requests: _Requests | None = None


class _Container(_Shape):
    name: str
    resources: _Resources | None = None
    restart_policy: str | None = None


class _PodSpec(_Shape):
    containers: list[_Container] | None = None
    init_containers: list[_Container] | None = None
    resources: _Resources | None = None
    overhead: _Requests | None = None


class _PodCondition(_Shape):
    type: str
    status: str
    last_transition_time: str | None = None


class _PodStatus(_Shape):
    phase: str = ""
    start_time: str | None = None
    conditions: list[_PodCondition] | None = None


class _Pod(_Object):
    spec: _PodSpec
    status: _PodStatus | None = None


# --- scales --------------------------------------------------------------------------------------------------------


def parse_scale(raw: Mapping[str, Any]) -> Scale:
    """Parse the scale subresource (autoscaling/v1 Scale).

    Raises:
        ParseError: a field has the wrong type, or the selector could not be a metav1.LabelSelector.
    """
    name = object_name("Scale", raw)
    scale = convert(raw, _Scale, name)
    status = scale.status or _ScaleStatus()
    _check_size(f"{name}: status.selector", len(status.selector))
    return Scale(
        spec_replicas=scale.spec.replicas if scale.spec else 0,
        status_replicas=status.replicas,
        selector=_converted_selector(status.selector),
        target_uid=scale.metadata.uid if scale.metadata else "",
    )


def parse_workload(raw: Mapping[str, Any]) -> Scale:
    """Parse a Deployment or a StatefulSet into its scale.

    Raises:
        ParseError: a field has the wrong type or is missing, or the selector is not valid.
    """
    name = object_name("workload", raw)
    workload = convert(raw, _Workload, name)
    _check_size(f"{name}: spec.selector", len(msgspec.json.encode(raw["spec"]["selector"])))
    try:
        selector = selectors.LabelSelector.from_object(raw["spec"]["selector"])
    except SelectorError as error:
        raise ParseError(f"{name}: spec.selector: {error}") from None
    return Scale(
        spec_replicas=workload.spec.replicas,
        status_replicas=workload.status.replicas if workload.status else 0,
        selector=str(selector),
        target_uid=workload.metadata.uid,
    )


def _check_size(where: str, size: int) -> None:
    if size > _MAX_SELECTOR:
        raise ParseError(f"{where}: it has {size} characters, and at most {_MAX_SELECTOR} are supported")


@lru_cache(_CACHED)
def _converted_selector(text: str) -> str:
    """Return a scale's selector like client-go, which converts it to a metav1.LabelSelector and back to text.

    Upstream: scale.convertToScale, metav1.ParseToLabelSelector.
    """
    try:
        parsed = selectors.LabelSelector.parse(text)
    except SelectorError as error:
        raise ParseError(f'{_NOT_CONVERTIBLE}: couldn\'t parse the selector string "{text}": {error}') from None
    equal: dict[str, Requirement] = {}
    others: list[Requirement] = []
    for each in parsed.requirements:
        match each.operator:
            case Operator.EQUALS | Operator.DOUBLE_EQUALS:
                equal[each.key] = replace(each, operator=Operator.EQUALS)
            case Operator.IN | Operator.NOT_IN | Operator.EXISTS | Operator.DOES_NOT_EXIST:
                others.append(each)
            case Operator.GREATER_THAN | Operator.LESS_THAN:
                raise ParseError(f'{_NOT_CONVERTIBLE}: "{each.operator.value}" isn\'t supported in label selectors')
            case _:
                raise ParseError(f'{_NOT_CONVERTIBLE}: "{each.operator.value}" is not a valid label selector operator')
    return str(selectors.LabelSelector(tuple(sorted([*equal.values(), *others], key=lambda each: each.key))))


# --- pods ----------------------------------------------------------------------------------------------------------


def track_pod(raw: Mapping[str, Any]) -> Pod | None:
    """Parse a pod; log it and return None if it cannot be parsed. Raises TooLargeError."""
    try:
        return parse_pod(raw)
    except TooLargeError:
        raise
    except ParseError as error:
        _log.warning("this pod is not counted: %s", error)
        return None


def parse_pod(raw: Mapping[str, Any]) -> Pod:
    """Parse a pod.

    Raises:
        ParseError: a field has the wrong type or is not a quantity or time.
        TooLargeError: its labels and containers are too large.
    """
    name = object_name("Pod", raw)
    pod = convert(raw, _Pod, name)
    if (size := len(msgspec.json.encode(pod))) > _MAX_POD:
        raise TooLargeError(
            f"{name}: its labels and containers have {size} characters, and at most {_MAX_POD} are kept"
        )
    status = pod.status or _PodStatus()
    ready = next((each for each in status.conditions or () if each.type == "Ready"), None)
    pod_level = pod.spec.resources
    try:
        return Pod(
            name=pod.metadata.name,
            namespace=intern(pod.metadata.namespace),
            labels=_labels(tuple((pod.metadata.labels or {}).items())),
            phase=intern(status.phase),
            deleted=pod.metadata.deletion_timestamp is not None,
            start_ms=optional_time_ms(status.start_time, "status.startTime"),
            ready=None
            if ready is None
            else ReadyCondition(
                status=intern(ready.status),
                last_transition_ms=optional_time_ms(ready.last_transition_time, "status.conditions") or 0,
            ),
            containers=_containers(
                (
                    *(_form(each, init=False) for each in pod.spec.containers or ()),
                    *(_form(each, init=True) for each in pod.spec.init_containers or ()),
                )
            ),
            requests=_requests(pod_level.requests.items()) if pod_level and pod_level.requests else None,
            overhead=_requests(pod.spec.overhead.items()) if pod.spec.overhead else None,
            owner=_owner(pod.metadata),
        )
    except ParseError as error:
        raise ParseError(f"{name}: {error}") from None


def parse_owned(raw: Mapping[str, Any]) -> Owned:
    """Parse the metadata of any object.

    Raises:
        ParseError: a field of the metadata has the wrong type.
    """
    metadata = convert(raw, _Object, object_name("object", raw)).metadata
    return Owned(metadata.uid, _owner(metadata))


@lru_cache(_CACHED)
def _labels(labels: tuple[tuple[str, str], ...]) -> Mapping[str, str]:
    return dict(labels)


_ContainerForm: TypeAlias = tuple[str, tuple[tuple[str, str | int | float], ...], bool, bool]
"""The key of the cache of containers: name, requests, init container, restartable."""


def _form(container: _Container, *, init: bool) -> _ContainerForm:
    requests = container.resources.requests if container.resources else None
    sidecar = init and container.restart_policy == "Always"
    return container.name, tuple((requests or {}).items()), init, sidecar


@lru_cache(_CACHED)
def _containers(forms: tuple[_ContainerForm, ...]) -> tuple[Container, ...]:
    return tuple(
        Container(name=name, requests=_requests(requests), init=init, restartable=restartable)
        for name, requests, init, restartable in forms
    )


def _requests(requests: Iterable[tuple[str, str | int | float]]) -> dict[str, int]:
    values: dict[str, int] = {}
    for resource, text in requests:
        try:
            values[resource] = milli_value(str(text))
        except QuantityError as error:
            raise ParseError(f"request for {resource}: {text!r}: {error}") from None
    return values


def _owner(metadata: _Metadata) -> Owner | None:
    """Return the owner that is the controller; other owners matter only for garbage collection."""
    controllers = (each for each in metadata.owner_references or () if each.controller)
    return next((Owner(intern(each.kind), intern(each.uid)) for each in controllers), None)
