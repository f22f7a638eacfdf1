"""Names of HPAs in the outputs: NAMESPACE/NAME, and of further specs of an HPA what they change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from autoscaler.core.model import HPA
from kube.values.quantity import Quantity

_SHOWN: Final = 3
_DEFAULTS: Final = {
    "scaleUp.stabilizationWindowSeconds": "0",
    "scaleUp.policies": "Pods 4 in 15s or Percent 100 in 15s",
    "scaleUp.selectPolicy": "Max",
    "scaleDown.policies": "Percent 100 in 15s",
    "scaleDown.selectPolicy": "Max",
}
"""Of the API server, if there is a behavior."""


def named(hpas: Sequence[HPA]) -> dict[str, HPA]:
    """Return {name: HPA}; the first of each NAMESPACE/NAME has it as its name, and the others their changes."""
    found: dict[str, HPA] = {}
    for hpa in hpas:
        name = key = str(hpa.key)
        if key in found:
            name = changes(found[key], hpa) or f"{key} again"
        number, free = 1, name
        while free in found:
            number += 1
            free = f"{name} #{number}"
        found[free] = hpa
    return found


def changes(first: HPA, second: HPA) -> str:
    """Return what the second HPA changes: `target 85, scaleDown.stabilizationWindowSeconds 900`; "" if nothing."""
    texts = [f"{name} {after or 'removed'}" for name, _, after in changed_fields(first, second)]
    eager = second.overrides.eager
    if eager is not None and first.overrides.eager is not eager:
        texts.append("eager" if eager else "not eager")
    elif first.overrides != second.overrides:
        texts.append("other annotations")
    if not texts and first.spec != second.spec:
        texts.append("another spec")
    more = f" and {len(texts) - _SHOWN} more" if len(texts) > _SHOWN else ""
    return ", ".join(texts[:_SHOWN]) + more


def changed_fields(first: HPA, second: HPA) -> list[tuple[str, str | None, str | None]]:
    """Return (name, value before, value after) of the fields that differ; None: not set."""
    before, after = (_DEFAULTS | dict(_leaves(msgspec.to_builtins(hpa.spec, enc_hook=str))) for hpa in (first, second))
    names = {**before, **after}
    return [(name, before.get(name), after.get(name)) for name in names if before.get(name) != after.get(name)]


def _leaves(spec: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield (name, value) of what may differ between the specs of a scale target."""
    several = len(spec["metrics"]) > 1
    for metric in spec["metrics"]:
        (source,) = (value for value in metric.values() if isinstance(value, Mapping))
        name = source.get("metric", source).get("name", "")
        target = source.get("target", {})
        percent = "%" if "averageUtilization" in target else ""
        values = [str(value) for key, value in target.items() if key != "type"]
        yield f"{name} target" if several else "target", "".join(values) + percent
        yield f"metric {name}", f"of type {metric['type']}"
    for name in ("minReplicas", "maxReplicas"):
        yield name, str(spec.get(name))
    for direction, rules in (spec.get("behavior") or {}).items():
        for name, value in (rules or {}).items():
            policies = value if isinstance(value, list | tuple) else ()
            text = " or ".join(f"{each['type']} {each['value']} in {each['periodSeconds']}s" for each in policies)
            if name == "tolerance":  # 0.02, not the canonical 20m
                text = f"{Quantity.parse(value).as_float():g}"
            yield f"{direction}.{name}", text or str(value)
