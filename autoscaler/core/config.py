"""Settings that decisions depend on: the defaults of the flags, and what an HPA's annotations override.

An annotation `milliscale.io/...` replaces a flag for one HPA; the HPA's spec takes precedence over both. Users who can
edit an HPA can set its annotations, so overrides are limited: the mode by the process' mode, the stabilization window
by the API's maximum. An invalid annotation is ignored and reported; the HPA is still reconciled.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from functools import partial
from typing import Any, Final, TypeVar

from kube.values.durations import DurationError, format_duration, parse_duration


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


PREFIX: Final = "milliscale.io/"
MAX_STABILIZATION_WINDOW_MS: Final = 3600 * 1000
"""The longest stabilization window that Kubernetes' validation allows in an HPA's spec."""

_WINDOW: Final = "downscale-stabilization"
_WINDOW_MS: Final = "downscale_stabilization_ms"
_REPLICAS: Final = "fallback-replicas"
_THRESHOLD: Final = "fallback-failure-threshold"
_MAX_INT32: Final = 2**31 - 1
_HOUR: Final = 3600.0
_MAX_SHOWN_CHARACTERS: Final = 40
_MAX_UNKNOWN: Final = 5

_E = TypeVar("_E", bound=StrEnum)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnotationOverrides:
    """The settings of one HPA; None: the flag's value."""

    mode: Mode | None = None
    sync_period: float | None = None
    """Seconds."""
    tolerance: float | None = None
    downscale_stabilization_ms: int | None = None
    cpu_initialization_period_ms: int | None = None
    initial_readiness_delay_ms: int | None = None
    paused: Pause = Pause.NONE
    fallback: Fallback | None = None
    pod_selection: PodSelection = PodSelection.SELECTOR
    eager: bool | None = None
    problems: tuple[str, ...] = ()
    """One sentence for each annotation that is ignored or limited."""

    def apply_to(self, config: Config) -> Config:
        """Return the flags' `config` with this HPA's overrides."""
        values = {each.name: getattr(self, each.name, None) for each in fields(Config)}
        return replace(config, **{name: value for name, value in values.items() if value is not None})


# --- parsers of values: each raises a ValueError with advice ---------------------------------------------------------


def _one_of(kind: type[_E], text: str) -> _E:
    try:
        return kind(text)
    except ValueError:
        raise ValueError(f"write one of {', '.join(kind)}") from None


def _integer(least: int, most: int, text: str) -> int:
    number = int(text) if text.isascii() and text.isdigit() and len(text) <= len(str(_MAX_INT32)) else -1
    if not least <= number <= most:
        raise ValueError(f"write a whole number from {least} to {most}")
    return number


def _duration(least: float, most: float, text: str) -> float:
    seconds = _seconds(text)
    if not least <= seconds <= most:
        bounds = f"from {format_duration(least)} to {format_duration(most)}"
        raise ValueError(f"write a duration {bounds}, such as 30s or 1m30s")
    return seconds


def _seconds(text: str) -> float:
    """Parse a duration; -1 if it is invalid."""
    try:
        return parse_duration(text)
    except DurationError:
        return -1.0


def _window_ms(text: str) -> int:
    seconds = _seconds(text)
    return round((seconds if seconds >= 0 else _duration(0.0, _HOUR, text)) * 1000)


def _milliseconds(text: str) -> int:
    return round(_duration(0.0, 24 * _HOUR, text) * 1000)


def _tolerance(text: str) -> float:
    try:
        number = float(text) if text.isascii() and "_" not in text else math.nan
    except ValueError:
        number = math.nan
    if not 0 <= number <= 1:
        raise ValueError("write a number from 0 to 1, such as 0.05")
    return number


def _boolean(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError("write true or false")
    return text == "true"


def _shortened(text: str) -> str:
    return text if len(text) <= _MAX_SHOWN_CHARACTERS else f"{text[:_MAX_SHOWN_CHARACTERS]}..."


_PARSERS: Final[Mapping[str, tuple[str, Callable[[str], Any]]]] = {
    "mode": ("mode", partial(_one_of, Mode)),
    "sync-period": ("sync_period", partial(_duration, 1.0, _HOUR)),
    "tolerance": ("tolerance", _tolerance),
    _WINDOW: (_WINDOW_MS, _window_ms),
    "cpu-initialization-period": ("cpu_initialization_period_ms", _milliseconds),
    "initial-readiness-delay": ("initial_readiness_delay_ms", _milliseconds),
    "paused": ("paused", partial(_one_of, Pause)),
    _REPLICAS: ("replicas", partial(_integer, 1, _MAX_INT32)),
    _THRESHOLD: ("failure_threshold", partial(_integer, 1, 1000)),
    "pod-selection": ("pod_selection", partial(_one_of, PodSelection)),
    "eager": ("eager", _boolean),
}
"""{annotation: (field of AnnotationOverrides or Fallback, parser)}"""


def parse_annotations(annotations: Mapping[str, str]) -> AnnotationOverrides:
    """Return the overrides in an HPA's annotations. Invalid ones are in `problems`; nothing is raised."""
    ours = {name.removeprefix(PREFIX): text for name, text in annotations.items() if name.startswith(PREFIX)}
    if not ours:
        return AnnotationOverrides()
    unknown = sorted(ours.keys() - _PARSERS.keys())
    problems = [
        f"annotation {PREFIX}{_shortened(name)} is unknown and ignored; known: {', '.join(_PARSERS)}"
        for name in unknown[:_MAX_UNKNOWN]
    ]
    if len(unknown) > _MAX_UNKNOWN:  # each is a line in the log and an event
        problems.append(f"{len(unknown) - _MAX_UNKNOWN} further annotations {PREFIX}... are unknown and ignored")
    values: dict[str, Any] = {}
    for name, (field, parse) in _PARSERS.items():
        if name in ours:
            try:
                values[field] = parse(ours[name].strip())
            except ValueError as error:
                problems.append(f'annotation {PREFIX}{name}: "{_shortened(ours[name])}" is ignored: {error}')
    if values.get(_WINDOW_MS, 0) > MAX_STABILIZATION_WINDOW_MS:
        # Limited, not ignored: the flag's shorter window would scale down sooner than the spec of the HPA allows.
        values[_WINDOW_MS] = MAX_STABILIZATION_WINDOW_MS
        most = format_duration(MAX_STABILIZATION_WINDOW_MS / 1000)
        limit = f'"{_shortened(ours[_WINDOW])}" counts as {most}, the longest window that the API allows'
        problems.append(f"annotation {PREFIX}{_WINDOW}: {limit}")
    fallback = {name: values.pop(name) for name in ("replicas", "failure_threshold") if name in values}
    if "replicas" in fallback:
        values["fallback"] = Fallback(**fallback)
    elif fallback and _REPLICAS not in ours:
        problems.append(f"annotation {PREFIX}{_THRESHOLD} is ignored: it needs {PREFIX}{_REPLICAS} beside it")
    return AnnotationOverrides(**values, problems=tuple(problems))
