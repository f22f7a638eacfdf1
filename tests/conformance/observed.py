"""Parse the notation of the recorded cases for pods and times (seconds as numbers)."""

from __future__ import annotations

from typing import Any

from autoscaler.core.observation import Container, Pod, ReadyCondition


def milliseconds(seconds: float) -> int:
    """`seconds` (multiples of 0.05) in whole milliseconds."""
    return round(seconds * 1000)


def parse_pod(pod: dict[str, Any], template: dict[str, Any]) -> Pod:
    """The pod that `pod` (name, phase, times) and `template` (labels, containers, requests) describe together."""
    ready = pod.get("ready")
    start = pod.get("startTime")
    containers = [Container(name=each["name"], requests=each["requests"]) for each in template["containers"]]
    containers += [
        Container(name=each["name"], requests=each["requests"], init=True, restartable=each["restartable"])
        for each in template.get("initContainers") or []
    ]
    return Pod(
        name=pod["name"],
        namespace="default",
        labels=template["labels"],
        phase=pod["phase"],
        deleted=pod.get("deletionTimestamp") is not None,
        start_ms=None if start is None else milliseconds(start),
        ready=None
        if ready is None
        else ReadyCondition(status=ready["status"], last_transition_ms=milliseconds(ready["lastTransitionTime"])),
        containers=tuple(containers),
        requests=template.get("podRequests"),
    )
