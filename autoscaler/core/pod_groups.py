"""Which pods' metric values can be reckoned with.

A pod that has just started burns cpu without serving anybody; a pod that is not ready, or of which nothing is known,
must not count like one that is. The groups and their timing rules are those of Kubernetes 1.36. Only cpu depends on
readiness, since only cpu is known to be unusual at the start.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from autoscaler.core.observation import Pod, PodSample


@dataclass(frozen=True, slots=True, kw_only=True)
class PodTiming:
    """What decides whether a pod's cpu value can be trusted yet (milliseconds)."""

    now_ms: int
    cpu_initialization_period_ms: int
    initial_readiness_delay_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PodGroups:
    """The selected pods by the use that can be made of them: names, in listing order."""

    ready: tuple[str, ...] = ()
    unready: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    """No value for them in the metrics API's answer."""
    ignored: tuple[str, ...] = ()
    """Deleted or failed."""


def group_pods(
    pods: Iterable[Pod], samples: Mapping[str, PodSample], *, resource: str | None, timing: PodTiming
) -> PodGroups:
    """Sort `pods` by what can be made of their `samples` of `resource` (None: a custom metric)."""
    ready: list[str] = []
    unready: list[str] = []
    missing: list[str] = []
    ignored: list[str] = []
    for pod in pods:
        sample = samples.get(pod.name)
        if pod.deleted or pod.phase == "Failed":
            ignored.append(pod.name)
        elif pod.phase == "Pending":
            unready.append(pod.name)
        elif sample is None:
            missing.append(pod.name)
        elif resource == "cpu" and _is_starting(pod, sample, timing):
            unready.append(pod.name)
        else:
            ready.append(pod.name)
    return PodGroups(ready=tuple(ready), unready=tuple(unready), missing=tuple(missing), ignored=tuple(ignored))


def is_ready(pod: Pod) -> bool:
    """Whether the pod counts where only serving pods do; a deleted one still does."""
    return pod.phase == "Running" and pod.ready is not None and pod.ready.status == "True"


def _is_starting(pod: Pod, sample: PodSample, timing: PodTiming) -> bool:
    """Whether a pod's cpu is still that of its start, so that it says nothing about the load."""
    if pod.ready is None or pod.start_ms is None:
        return True
    not_ready = pod.ready.status == "False"
    if pod.start_ms + timing.cpu_initialization_period_ms > timing.now_ms:
        return not_ready or sample.timestamp_ms < pod.ready.last_transition_ms + sample.window_ms
    never_was_ready = pod.start_ms + timing.initial_readiness_delay_ms > pod.ready.last_transition_ms
    return not_ready and never_was_ready
