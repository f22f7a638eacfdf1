"""Settings that decisions depend on: the defaults of the flags, which an HPA's annotations can override."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Mode(StrEnum):
    """How the controller applies its decisions.

        mode      scale, status   events                              metrics and decision log
        act       written         written                             yes
        dry-run   no              written, WouldRescale for a scale   yes
        shadow    no              no                                  yes, and a comparison with the built-in controller

    The mode is a flag of the process. An annotation can restrict it for one HPA, never widen it.
    """

    ACT = "act"
    DRY_RUN = "dry-run"
    SHADOW = "shadow"

    def allows(self, other: Mode) -> bool:
        """Return True if `other` writes nothing that this mode does not write."""
        order = (Mode.SHADOW, Mode.DRY_RUN, Mode.ACT)
        return order.index(other) <= order.index(self)


class Pause(StrEnum):
    """The directions in which an HPA must not scale, even if its replicas are outside minReplicas and maxReplicas."""

    NONE = "none"
    ALL = "all"
    SCALE_IN = "scale-in"
    SCALE_OUT = "scale-out"

    def forbids(self, *, current: int, desired: int) -> bool:
        """Return True if scaling from `current` to `desired` replicas is forbidden."""
        if desired > current:
            return self in (Pause.ALL, Pause.SCALE_OUT)
        return desired < current and self in (Pause.ALL, Pause.SCALE_IN)


class PodSelection(StrEnum):
    """Which pods count as the target's."""

    SELECTOR = "selector"
    """All pods that the target's selector matches, as in Kubernetes."""
    OWNER = "owner"
    """The matching pods that the target owns, directly or through a ReplicaSet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fallback:
    """The replica count to use while metrics are unavailable."""

    replicas: int
    """The minimum while metrics fail, within the HPA's bounds; it never lowers the current count."""
    failure_threshold: int = 3
    """Used after this many reconciliations in a row in which a metric failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Settings for one HPA in addition to its spec; the defaults are kube-controller-manager's."""

    tolerance: float = 0.1
    """The deviation of a ratio from 1 that is ignored, unless the HPA's behavior sets a tolerance."""
    downscale_stabilization_ms: int = 300_000
    cpu_initialization_period_ms: int = 300_000
    initial_readiness_delay_ms: int = 30_000
    scale_to_zero: bool = True
    """The feature HPAScaleToZero: on by default from Kubernetes 1.37 on, off in 1.36."""
    paused: Pause = Pause.NONE
    fallback: Fallback | None = None
    pod_selection: PodSelection = PodSelection.SELECTOR
