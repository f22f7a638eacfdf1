"""Settings of a single HPA: its annotations `milliscale.io/...`, read once when the HPA changes.

Each setting that is also a flag takes the flag's place for this HPA, no more: what the HPA's own spec says
(`behavior.scaleDown.stabilizationWindowSeconds`, a tolerance there) still goes before it. Whoever may edit an HPA may
write them, so none can do more than the HPA's spec could, or than the process may do: the mode is restricted by the
process' own (`Reconciler.configured_mode_of`), the stabilization window by what the API allows. An annotation that is
misspelt or has an impossible value is ignored and told of; it never keeps the HPA from being reconciled.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, TypeVar

from autoscaler.core.config import Config, Fallback, Mode, Pause, PodSelection
from kube.durations import DurationError, format_duration, parse_duration

PREFIX: Final = "milliscale.io/"

_MODE: Final = "mode"
_SYNC_PERIOD: Final = "sync-period"
_TOLERANCE: Final = "tolerance"
_DOWNSCALE_STABILIZATION: Final = "downscale-stabilization"
_CPU_INITIALIZATION_PERIOD: Final = "cpu-initialization-period"
_INITIAL_READINESS_DELAY: Final = "initial-readiness-delay"
_PAUSED: Final = "paused"
_FALLBACK_REPLICAS: Final = "fallback-replicas"
_FALLBACK_THRESHOLD: Final = "fallback-failure-threshold"
_POD_SELECTION: Final = "pod-selection"
_KNOWN: Final = (
    _MODE,
    _SYNC_PERIOD,
    _TOLERANCE,
    _DOWNSCALE_STABILIZATION,
    _CPU_INITIALIZATION_PERIOD,
    _INITIAL_READINESS_DELAY,
    _PAUSED,
    _FALLBACK_REPLICAS,
    _FALLBACK_THRESHOLD,
    _POD_SELECTION,
)

MAX_STABILIZATION_WINDOW_MS: Final = 3600 * 1000
"""The longest stabilization window that an HPA can have; Kubernetes' validation says so of the one in its spec."""

_MAX_INT32: Final = 2**31 - 1
_HOUR: Final = 3600.0
_SHOWN: Final = 40

_T = TypeVar("_T")
_E = TypeVar("_E", bound=StrEnum)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnotationOverrides:
    """The settings of one HPA; None: what the flags say."""

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
    problems: tuple[str, ...] = ()
    """What is wrong with annotations, one sentence for each that is ignored or counts for less than it says."""

    def apply_to(self, config: Config) -> Config:
        """What decisions on this HPA depend on, where the flags say `config`."""

        def chosen(own: _T | None, flag: _T) -> _T:
            return flag if own is None else own

        return replace(
            config,
            tolerance=chosen(self.tolerance, config.tolerance),
            downscale_stabilization_ms=chosen(self.downscale_stabilization_ms, config.downscale_stabilization_ms),
            cpu_initialization_period_ms=chosen(self.cpu_initialization_period_ms, config.cpu_initialization_period_ms),
            initial_readiness_delay_ms=chosen(self.initial_readiness_delay_ms, config.initial_readiness_delay_ms),
            paused=self.paused,
            fallback=self.fallback,
            pod_selection=self.pod_selection,
        )


def parse_annotations(annotations: Mapping[str, str]) -> AnnotationOverrides:
    """The settings in an HPA's annotations; those without our prefix are not looked at. Never fails."""
    ours = {name.removeprefix(PREFIX): text for name, text in annotations.items() if name.startswith(PREFIX)}
    if not ours:
        return AnnotationOverrides()
    problems = [_unknown(name) for name in sorted(ours) if name not in _KNOWN]

    def read(name: str, parse: Callable[[str], _T]) -> _T | None:
        if name not in ours:
            return None
        try:
            return parse(ours[name].strip())
        except ValueError as error:
            problems.append(f"annotation {PREFIX}{name}: {_shown(ours[name])} is ignored: {error}")
            return None

    window_ms = read(_DOWNSCALE_STABILIZATION, _window)
    if window_ms is not None and window_ms > MAX_STABILIZATION_WINDOW_MS:
        # Not ignored: the shorter window of the flag would take replicas away sooner than was asked for.
        text, most = _shown(ours[_DOWNSCALE_STABILIZATION]), format_duration(MAX_STABILIZATION_WINDOW_MS / 1000)
        limit = f"{text} counts as {most}, the longest window that the API allows"
        problems.append(f"annotation {PREFIX}{_DOWNSCALE_STABILIZATION}: {limit}")
        window_ms = MAX_STABILIZATION_WINDOW_MS
    replicas = read(_FALLBACK_REPLICAS, _whole(1, _MAX_INT32))
    threshold = read(_FALLBACK_THRESHOLD, _whole(1, 1000))
    if threshold is not None and _FALLBACK_REPLICAS not in ours:
        needed = f"it needs {PREFIX}{_FALLBACK_REPLICAS} beside it"
        problems.append(f"annotation {PREFIX}{_FALLBACK_THRESHOLD} is ignored: {needed}")
    return AnnotationOverrides(
        mode=read(_MODE, _one_of(Mode)),
        sync_period=read(_SYNC_PERIOD, _duration(1.0, _HOUR)),
        tolerance=read(_TOLERANCE, _tolerance),
        downscale_stabilization_ms=window_ms,
        cpu_initialization_period_ms=read(_CPU_INITIALIZATION_PERIOD, _milliseconds),
        initial_readiness_delay_ms=read(_INITIAL_READINESS_DELAY, _milliseconds),
        paused=read(_PAUSED, _one_of(Pause)) or Pause.NONE,
        fallback=None if replicas is None else _fallback(replicas, threshold),
        pod_selection=read(_POD_SELECTION, _one_of(PodSelection)) or PodSelection.SELECTOR,
        problems=tuple(problems),
    )


# --- the forms of values: each raises a ValueError that says what to write instead ---------------------------------


def _one_of(kind: type[_E]) -> Callable[[str], _E]:
    def parse(text: str) -> _E:
        try:
            return kind(text)
        except ValueError:
            raise ValueError(f"write one of {', '.join(kind)}") from None

    return parse


def _whole(least: int, most: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        number = int(text) if text.isascii() and text.isdigit() and len(text) <= len(str(_MAX_INT32)) else -1
        if not least <= number <= most:
            raise ValueError(f"write a whole number from {least} to {most}")
        return number

    return parse


def _duration(least: float, most: float) -> Callable[[str], float]:
    def parse(text: str) -> float:
        try:
            seconds = parse_duration(text)
        except DurationError:
            seconds = -1.0
        if not least <= seconds <= most:
            bounds = f"from {format_duration(least)} to {format_duration(most)}"
            raise ValueError(f"write a duration {bounds}, such as 30s or 1m30s")
        return seconds

    return parse


def _window(text: str) -> int:
    try:
        seconds = parse_duration(text)
    except DurationError:
        seconds = -1.0
    return round(seconds * 1000) if seconds >= 0 else round(_duration(0.0, _HOUR)(text) * 1000)


def _milliseconds(text: str) -> int:
    return round(_duration(0.0, 24 * _HOUR)(text) * 1000)


def _tolerance(text: str) -> float:
    try:
        number = float(text) if text.isascii() and "_" not in text else math.nan
    except ValueError:
        number = math.nan
    if not 0 <= number <= 1:
        raise ValueError("write a number from 0 to 1, such as 0.05")
    return number


def _fallback(replicas: int, threshold: int | None) -> Fallback:
    return (
        Fallback(replicas=replicas) if threshold is None else Fallback(replicas=replicas, failure_threshold=threshold)
    )


def _unknown(name: str) -> str:
    return f"annotation {PREFIX}{_cut(name)} is unknown and ignored; known: {', '.join(_KNOWN)}"


def _shown(text: str) -> str:
    return f'"{_cut(text)}"'


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
