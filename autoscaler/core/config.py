"""What decisions on an HPA depend on beside its spec: what the flags say for all, and annotations for one."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Pause(StrEnum):
    """In which directions an HPA may not scale at the moment, for whatever reason: its bounds do not count either."""

    NONE = "none"
    ALL = "all"
    SCALE_IN = "scale-in"
    SCALE_OUT = "scale-out"

    def forbids(self, *, current: int, desired: int) -> bool:
        """Whether the way from the current to the desired number of replicas is closed."""
        if desired > current:
            return self in (Pause.ALL, Pause.SCALE_OUT)
        return desired < current and self in (Pause.ALL, Pause.SCALE_IN)


class PodSelection(StrEnum):
    """Which pods count as the target's."""

    SELECTOR = "selector"
    """All that its selector matches, as in Kubernetes."""
    OWNER = "owner"
    """Of those, the ones that it owns, directly or through a ReplicaSet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fallback:
    """What to hold on to while metrics are unavailable."""

    replicas: int
    """At least so many, within the HPA's bounds; never fewer than there are."""
    failure_threshold: int = 3
    """From so many steps in a row on in which a metric failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """What decisions on an HPA depend on beside its spec; the defaults are kube-controller-manager's.

    The flags say it for every HPA, and an HPA's own annotations for itself (`AnnotationOverrides.applied_to`).
    """

    tolerance: float = 0.1
    """How far a ratio may be from 1 without effect, where the HPA sets no tolerance of its own."""
    downscale_stabilization_ms: int = 300_000
    cpu_initialization_period_ms: int = 300_000
    initial_readiness_delay_ms: int = 30_000
    scale_to_zero: bool = True
    """The HPAScaleToZero feature: on by default from Kubernetes 1.37 on, off in 1.36."""
    paused: Pause = Pause.NONE
    fallback: Fallback | None = None
    pod_selection: PodSelection = PodSelection.SELECTOR


class Mode(StrEnum):
    """What becomes of a decision."""

    ACT = "act"
    DRY_RUN = "dry-run"
    SHADOW = "shadow"

    def allows(self, other: Mode) -> bool:
        """Whether the other mode writes nothing that this one does not."""
        order = (Mode.SHADOW, Mode.DRY_RUN, Mode.ACT)
        return order.index(other) <= order.index(self)
