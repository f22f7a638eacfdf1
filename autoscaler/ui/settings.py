"""The settings of one HPA, as its page lists them: from its spec, its annotations, or the controller's flags."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from autoscaler.core.annotations import AnnotationOverrides
from autoscaler.core.config import Config, Pause, PodSelection
from autoscaler.core.model import HPA, ScalingRules
from kube.durations import format_duration
from kube.quantity import CanonicalQuantity

_ANNOTATION: Final = "annotation"
_FLAG: Final = "flag"
_SELECT: Final = {"Max": "the larger", "Min": "the smaller"}


def settings(hpa: HPA, config: Config, sync_period: float) -> Iterator[tuple[str, str]]:
    """Yield (name, text) of the settings in effect, with where each is from unless that is obvious.

    Args:
        hpa: an HPA whose spec is valid.
        config: the controller's flags.
        sync_period: the controller's, in seconds.
    """
    spec, overrides, effective = hpa.spec, hpa.overrides, hpa.overrides.apply_to(config)
    yield "bounds", f"{spec.min_replicas} to {spec.max_replicas}"
    tolerance = _source(overrides.tolerance)
    up, down = (spec.behavior.scale_up, spec.behavior.scale_down) if spec.behavior else (None, None)
    parts = [
        _tolerance("down", down and down.tolerance, effective.tolerance, tolerance),
        _tolerance("up", up and up.tolerance, effective.tolerance, tolerance),
    ]
    yield "tolerance", ", ".join(parts)
    window = f"{format_duration(effective.downscale_stabilization_ms / 1000)} ({_window_source(overrides)})"
    if up is None or down is None:
        yield "scale up", "without behavior, a sync at most doubles the replicas, or goes to 4"
        yield "scale down", f"stabilization window {window}"
    else:
        yield "scale up", _rules(up, window="0s")
        yield "scale down", _rules(down, window=window)
    period = overrides.sync_period or sync_period
    yield "sync period", f"{format_duration(period)} ({_source(overrides.sync_period)})"
    if effective.paused is not Pause.NONE:
        yield "paused", f"{effective.paused} ({_ANNOTATION})"
    if effective.fallback is not None:
        fallback = effective.fallback
        failures = f"after {fallback.failure_threshold} syncs with a failed metric"
        yield "fallback", f"at least {fallback.replicas} replicas {failures} ({_ANNOTATION})"
    if effective.pod_selection is not PodSelection.SELECTOR:
        yield "pods", f"selected by {effective.pod_selection} ({_ANNOTATION})"


def _source(override: object) -> str:
    return _FLAG if override is None else _ANNOTATION


def _window_source(overrides: AnnotationOverrides) -> str:
    return _source(overrides.downscale_stabilization_ms)


def _tolerance(direction: str, own: CanonicalQuantity | None, default: float, source: str) -> str:
    if own is not None:
        return f"{own.quantity.as_float():g} {direction} (behavior)"
    return f"{default:g} {direction} ({source})"


def _rules(rules: ScalingRules, *, window: str) -> str:
    """`window`: the one that counts unless the rules have one."""
    if rules.select_policy == "Disabled":
        return "disabled"
    if rules.stabilization_window_seconds is not None:
        window = format_duration(float(rules.stabilization_window_seconds))
    policies = [
        f"{each.value}{'%' if each.type == 'Percent' else ' pods' if each.value != 1 else ' pod'} "
        f"per {format_duration(float(each.period_seconds))}"
        for each in rules.policies
    ]
    most = " or ".join(policies)
    if len(policies) > 1:
        most += f", {_SELECT.get(rules.select_policy, rules.select_policy)}"
    return f"at most {most}; stabilization window {window}"
