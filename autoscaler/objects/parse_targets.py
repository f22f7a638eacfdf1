"""What an HPA scales and counts, from Kubernetes JSON into the model: scales, workloads and pods.

A cluster has many pods, and those of one workload differ in little but their names. So what they have in common is kept
once: labels, and containers with their requests, are the same objects for pods that come one after another.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final, TypeAlias

from autoscaler.core.observation import Container, Owned, Owner, Pod, ReadyCondition, Scale
from autoscaler.objects import wire
from autoscaler.objects.fields import ParseError, convert, once, optional_time_ms, quantity, what_is
from kube.selectors import LabelSelector, Operator, Requirement, SelectorError

_Form: TypeAlias = tuple[str, tuple[tuple[str, str | int | float], ...], bool, bool]
"""A container in its JSON form: name, requests, whether it is an init container, whether it is restartable."""

_KEPT: Final = 1024
_NOT_CONVERTIBLE: Final = (
    "received an object from a /scale endpoint which was not convertible to autoscaling Scale: "
    "failed to parse target selector"
)


def parse_scale(raw: Mapping[str, Any]) -> Scale:
    """The scale subresource (autoscaling/v1 Scale).

    Raises:
        ParseError: a field has the wrong type, or the selector is none that a metav1.LabelSelector could be.
    """
    scale = convert(raw, wire.Scale, what_is("Scale", raw))
    status = scale.status or wire.ScaleStatus()
    return Scale(
        spec_replicas=scale.spec.replicas if scale.spec else 0,
        status_replicas=status.replicas,
        selector=_converted(status.selector),
        target_uid=scale.metadata.uid if scale.metadata else "",
    )


def parse_workload(raw: Mapping[str, Any]) -> Scale:
    """The scale of a Deployment or a StatefulSet, as its scale subresource shows it.

    Raises:
        ParseError: a field has the wrong type or is missing, or the selector is not valid.
    """
    what = what_is("workload", raw)
    workload = convert(raw, wire.Workload, what)
    try:
        selector = LabelSelector.from_object(raw["spec"]["selector"])
    except SelectorError as error:
        raise ParseError(f"{what}: spec.selector: {error}") from None
    return Scale(
        spec_replicas=workload.spec.replicas,
        status_replicas=workload.status.replicas if workload.status else 0,
        selector=str(selector),
        target_uid=workload.metadata.uid,
    )


def parse_pod(raw: Mapping[str, Any]) -> Pod:
    """One pod.

    Raises:
        ParseError: a field has the wrong type or is not a quantity or time.
    """
    what = what_is("Pod", raw)
    pod = convert(raw, wire.Pod, what)
    status = pod.status or wire.PodStatus()
    ready = next((each for each in status.conditions or () if each.type == "Ready"), None)
    pod_level = pod.spec.resources
    return Pod(
        name=pod.metadata.name,
        namespace=once(pod.metadata.namespace),
        labels=_labels(tuple((pod.metadata.labels or {}).items())),
        phase=once(status.phase),
        deleted=pod.metadata.deletion_timestamp is not None,
        start_ms=optional_time_ms(status.start_time, f"{what}: status.startTime"),
        ready=None
        if ready is None
        else ReadyCondition(
            status=once(ready.status),
            last_transition_ms=optional_time_ms(ready.last_transition_time, f"{what}: status.conditions") or 0,
        ),
        containers=_containers(pod.spec, what),
        requests=_pod_requests(pod_level.requests, what) if pod_level else None,
        overhead=_pod_requests(pod.spec.overhead, what),
        owner=_owner(pod.metadata),
    )


def parse_owned(raw: Mapping[str, Any]) -> Owned:
    """Any object, or its metadata alone.

    Raises:
        ParseError: a field of the metadata has the wrong type.
    """
    metadata = convert(raw, wire.Owned, what_is("object", raw)).metadata
    return Owned(metadata.uid, _owner(metadata))


@lru_cache(_KEPT)
def _converted(selector: str) -> str:
    """A scale's selector, as it is after client-go has made a metav1.LabelSelector of it and a text again.

    Upstream: scale.convertToScale, metav1.ParseToLabelSelector
    """
    try:
        parsed = LabelSelector.parse(selector)
    except SelectorError as error:
        raise ParseError(f'{_NOT_CONVERTIBLE}: couldn\'t parse the selector string "{selector}": {error}') from None
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
    return str(LabelSelector(tuple(sorted([*equal.values(), *others], key=lambda each: each.key))))


@lru_cache(_KEPT)
def _labels(labels: tuple[tuple[str, str], ...]) -> Mapping[str, str]:
    return dict(labels)


def _containers(spec: wire.PodSpec, what: str) -> tuple[Container, ...]:
    forms = (
        *(_form(each, init=False) for each in spec.containers or ()),
        *(_form(each, init=True) for each in spec.init_containers or ()),
    )
    try:
        return _containers_of(forms)
    except ParseError as error:
        raise ParseError(f"{what}: {error}") from None


def _form(container: wire.Container, *, init: bool) -> _Form:
    requests = container.resources.requests if container.resources else None
    sidecar = init and container.restart_policy == "Always"
    return container.name, tuple((requests or {}).items()), init, sidecar


@lru_cache(_KEPT)
def _containers_of(forms: tuple[_Form, ...]) -> tuple[Container, ...]:
    return tuple(
        Container(name=name, requests=_requests(requests), init=init, restartable=restartable)
        for name, requests, init, restartable in forms
    )


def _pod_requests(requests: Mapping[str, str | int | float] | None, what: str) -> Mapping[str, int] | None:
    try:
        return _requests(requests.items()) if requests else None
    except ParseError as error:
        raise ParseError(f"{what}: {error}") from None


def _requests(requests: Iterable[tuple[str, str | int | float]]) -> dict[str, int]:
    return {resource: quantity(text, f"request for {resource}").milli_value() for resource, text in requests}


def _owner(metadata: wire.Metadata) -> Owner | None:
    """The controller, the one owner that looks after the object; other owners only share in its end."""
    controllers = (each for each in metadata.owner_references or () if each.controller)
    return next((Owner(once(each.kind), once(each.uid)) for each in controllers), None)
