"""The compared fields of two statuses."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from tests.e2e.fuzz.allowed import Difference, neutral
from tests.e2e.fuzz.cases import Phase


def is_parked(status: Mapping[str, Any]) -> bool:
    """Whether an HPA has seen that its target is not there."""
    return any('"parked" not found' in each.get("message", "") for each in status.get("conditions") or ())


def fields_of(status: Mapping[str, Any], namespace: str) -> Iterator[tuple[str, Any]]:
    """The fields of a status, without times and what only one of the APIs has."""
    yield "currentReplicas", status.get("currentReplicas") or 0
    yield "desiredReplicas", status.get("desiredReplicas") or 0
    yield "lastScaleTime", status.get("lastScaleTime") is not None
    for condition in status.get("conditions") or ():
        for key in ("status", "reason", "message"):
            yield f"{condition['type']}.{key}", neutral(condition.get(key, ""), namespace)
    for index, metric in enumerate(status.get("currentMetrics") or ()):
        for path, value in _leaves(metric):
            yield f"currentMetrics[{index}]{path}", value


def _leaves(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        for key, each in sorted(value.items()):
            for path, leaf in _leaves(each):
                yield f".{key}{path}", leaf
    elif value not in (None, {}):
        yield "", json.dumps(value) if isinstance(value, list) else value


def differing(name: str, number: int, theirs: dict[str, Any], ours: dict[str, Any], state: Phase) -> list[Difference]:
    """The fields that are not the same."""
    return [
        Difference(name, number, key, theirs.get(key), ours.get(key), state)
        for key in (*theirs, *(ours.keys() - theirs.keys()))
        if theirs.get(key) != ours.get(key)
    ]
