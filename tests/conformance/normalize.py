"""Check normalize.jsonl: stabilization, rate limits and their history."""

from __future__ import annotations

from typing import Any

from autoscaler.core.history import History, Recommendation, ScaleEvent, store_scale_event
from autoscaler.core.model import Behavior
from autoscaler.core.stabilization import (
    NormalizationArg,
    normalize_desired_replicas,
    normalize_desired_replicas_with_behaviors,
)
from autoscaler.core.status import Conditions
from autoscaler.objects.hpa import default_hpa, parse_hpa
from tests.conformance.comparison import difference
from tests.conformance.observed import milliseconds


def check(case: dict[str, Any]) -> str | None:
    """Return the differences of our result from the recorded one; None if they are equal."""
    expected: dict[str, Any] = dict(case["output"])
    actual = _store(case) if case["kind"] == "store_scale_event" else _normalize(case)
    if case.get("platformDependent"):
        for key in [key for key, value in expected.items() if value in (-(2**31), -(2**63))]:
            del expected[key], actual[key]
    return difference(expected, actual)


def _normalize(case: dict[str, Any]) -> dict[str, Any]:
    given = case["input"]
    arg = NormalizationArg(
        proposed_replicas=given["desiredReplicas"],
        current_replicas=given["currentReplicas"],
        min_replicas=given["minReplicas"],
        max_replicas=given["maxReplicas"],
        downscale_stabilization_ms=milliseconds(given["downscaleStabilisationWindowSeconds"]),
        history=History(
            recommendations=tuple(
                Recommendation(each["value"], -milliseconds(each["ageSeconds"])) for each in given["recommendations"]
            ),
            scale_up_events=_events(given["scaleUpEvents"]),
            scale_down_events=_events(given["scaleDownEvents"]),
        ),
        now_ms=0,
    )
    behavior = _behavior(given)
    if behavior is None:
        normalized = normalize_desired_replicas(arg)
    else:
        normalized = normalize_desired_replicas_with_behaviors(arg, behavior)
    conditions = Conditions((), now_ms=0)
    conditions.set_normalized(normalized)
    result = {
        "desiredReplicas": normalized.desired_replicas,
        "stabilizedReplicas": normalized.stabilized_replicas,
        "conditions": [
            {"type": each.type, "status": each.status, "reason": each.reason, "message": each.message}
            for each in conditions.all
        ],
        "recommendations": [
            {"value": each.replicas, "ageSeconds": -each.time_ms / 1000} for each in normalized.recommendations
        ],
    }
    if case["kind"] == "normalize_behaviors":
        result["scaleUpLimit"] = normalized.scale_up_limit.replicas
        result["scaleDownLimit"] = normalized.scale_down_limit and normalized.scale_down_limit.replicas
    return result


def _store(case: dict[str, Any]) -> dict[str, Any]:
    given = case["input"]
    history = store_scale_event(
        History(scale_up_events=_events(given["scaleUpEvents"]), scale_down_events=_events(given["scaleDownEvents"])),
        behavior=_behavior(given),
        previous_replicas=given["previousReplicas"],
        new_replicas=given["newReplicas"],
        now_ms=0,
    )
    return {
        "scaleUpEvents": _shown(history.scale_up_events),
        "scaleDownEvents": _shown(history.scale_down_events),
    }


def _behavior(given: dict[str, Any]) -> Behavior | None:
    """Parse the behavior as a user wrote it, so that our defaults are checked, too."""
    if given["behavior"] is None:
        return None
    spec = {"scaleTargetRef": {"kind": "Deployment", "name": "web"}, "maxReplicas": 1, "behavior": given["behavior"]}
    behavior = parse_hpa(default_hpa({"metadata": {}, "spec": spec})).spec.behavior
    defaulted = parse_hpa(default_hpa({"metadata": {}, "spec": {**spec, "behavior": given["behaviorDefaulted"]}}))
    assert behavior == defaulted.spec.behavior
    return behavior


def _events(events: list[dict[str, Any]]) -> tuple[ScaleEvent, ...]:
    return tuple(ScaleEvent(each["change"], -milliseconds(each["ageSeconds"]), each["outdated"]) for each in events)


def _shown(events: tuple[ScaleEvent, ...]) -> list[dict[str, Any]]:
    return [{"change": each.change, "ageSeconds": -each.time_ms / 1000, "outdated": each.outdated} for each in events]
