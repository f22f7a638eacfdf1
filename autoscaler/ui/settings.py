"""The settings of one HPA, as its page lists them: from its spec, its annotations, or the controller's flags."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from autoscaler.core.config import Config, Pause, PodSelection
from autoscaler.core.model import HPA, ScalingRules
from kube.values.durations import format_duration

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
    behavior = spec.behavior
    default = f"{effective.tolerance:g}", _source(overrides.tolerance)
    down = _tolerance(None if behavior is None else behavior.scale_down, default)
    up = _tolerance(None if behavior is None else behavior.scale_up, default)
    yield "tolerance", f"{down[0]} down ({down[1]}), {up[0]} up ({up[1]})"
    window = format_duration(effective.downscale_stabilization_ms / 1000)
    window = f"{window} ({_source(overrides.downscale_stabilization_ms)})"
    if behavior is None:
        yield "scale up", "without behavior, a sync at most doubles the replicas, or goes to 4"
        yield "scale down", f"stabilization window {window}"
    else:
        yield "scale up", _rules(behavior.scale_up, window="0s")
        yield "scale down", _rules(behavior.scale_down, window=window)
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


def _tolerance(rules: ScalingRules | None, default: tuple[str, str]) -> tuple[str, str]:
    """Return a tolerance and where it is from."""
    if rules is None or rules.tolerance is None:
        return default
    return f"{rules.tolerance.quantity.as_float():g}", "behavior"


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
