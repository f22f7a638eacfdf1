"""What the autoscaler keeps in memory of the objects that it watches: HPAs and pods, of all namespaces.

An object that cannot be understood is left out, with a line in the log; the others are not affected.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from autoscaler.parse import ParseError, parse_hpa, parse_pod

if TYPE_CHECKING:
    from collections.abc import Mapping

    from autoscaler.model import HPA, Pod

__all__ = ["HPAS", "PODS", "TrackedHPA", "track_hpa", "track_pod"]

_log = logging.getLogger(__name__)

HPAS = "/apis/autoscaling/v2/horizontalpodautoscalers"
PODS = "/api/v1/pods"


@dataclass(frozen=True, slots=True)
class TrackedHPA:
    """An HPA, and the metadata that a status update must repeat."""

    hpa: HPA
    metadata: Mapping[str, Any]
    """As served, without managedFields: the API server keeps those itself where they are absent."""


def track_hpa(raw: Mapping[str, Any]) -> TrackedHPA | None:
    """What to keep of an HPA's JSON; None if it is no HPA."""
    try:
        hpa = parse_hpa(raw)
    except ParseError as error:
        _log.warning("this HPA is left alone: %s", error)
        return None
    return TrackedHPA(hpa, {name: value for name, value in raw["metadata"].items() if name != "managedFields"})


def track_pod(raw: Mapping[str, Any]) -> Pod | None:
    """What to keep of a pod's JSON; None if it is no pod."""
    try:
        return parse_pod(raw)
    except ParseError as error:
        _log.warning("this pod is not counted: %s", error)
        return None
