"""The TARGETS column of `kubectl get hpa`: an HPA's metrics, each as "current/target".

kube-apiserver computes it for its own kind. A column of a custom resource can only show a field, so the controller
writes it into the status.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

_SHOWN: Final = 2
_UNKNOWN: Final = "<unknown>"
_NONE: Final = "<none>"


def targets_line(metrics: Sequence[Mapping[str, Any]], current: Sequence[Mapping[str, Any]]) -> str:
    """Return the line, in the words of kubectl's printers.

    Args:
        metrics: `spec.metrics` as served.
        current: `status.currentMetrics` as served; may be shorter.
    """
    texts = [_text(spec, current[index] if index < len(current) else {}) for index, spec in enumerate(metrics)]
    if not texts:
        return _NONE
    more = len(texts) - _SHOWN
    shown = ", ".join(texts[:_SHOWN])
    return f"{shown} + {more} more..." if more > 0 else shown


def _text(spec: Mapping[str, Any], status: Mapping[str, Any]) -> str:
    kind = str(spec.get("type"))
    field = kind[:1].lower() + kind[1:]
    source = spec.get(field) or {}
    target, current = source.get("target") or {}, (status.get(field) or {}).get("current") or {}
    is_resource = field in ("resource", "containerResource")
    prefix = f"{source.get('name')}: " if is_resource else ""
    if target.get("averageValue") is not None:
        suffix = " (avg)" if field in ("object", "external") else ""
        return f"{prefix}{current.get('averageValue', _UNKNOWN)}/{target['averageValue']}{suffix}"
    if is_resource:
        utilization, wanted = current.get("averageUtilization"), target.get("averageUtilization")
        shown = _UNKNOWN if utilization is None else f"{utilization}%"
        return f"{prefix}{shown}/{'<auto>' if wanted is None else f'{wanted}%'}"
    return f"{current.get('value', _UNKNOWN)}/{target.get('value')}"
