"""What the autoscaler keeps in memory of the objects that it watches: HPAs and pods, of all namespaces.

An object that cannot be understood is left out, with a line in the log; the others are not affected. An HPA that is
understood but not valid is kept as such, so that it can be told.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from autoscaler.core.annotations import AnnotationOverrides
from autoscaler.core.model import HPA, KUBERNETES, HPAApi, InvalidHPA, Spec
from autoscaler.core.observation import Pod
from autoscaler.objects.apitypes import DecodeError
from autoscaler.objects.defaults import default_hpa
from autoscaler.objects.fields import ParseError, once
from autoscaler.objects.parse import parse_hpa, parse_invalid_hpa
from autoscaler.objects.parse_targets import parse_pod
from autoscaler.objects.validation import validate_hpa

_log = logging.getLogger(__name__)

PODS = "/api/v1/pods"
FOREIGN_MANAGER = "kube-controller-manager"
"""How Kubernetes' own controller calls itself where it writes."""


@dataclass(frozen=True, slots=True)
class TrackedHPA:
    """An HPA, and the metadata that a status update must repeat."""

    hpa: HPA
    metadata: bytes
    """As served, without managedFields: the API server keeps those itself where they are absent. As JSON, which takes a
    third of what the objects take."""
    api: HPAApi = KUBERNETES
    metrics: Sequence[Mapping[str, Any]] = ()
    """`spec.metrics` as they are written, where the status has to say them (`autoscaler.objects.targets`)."""
    foreign_write_time: str = ""
    """When Kubernetes' own controller last wrote the status, as served; empty: it never did, or others have written all
    of it since."""

    @property
    def reconcile_trigger(self) -> tuple[str, Spec, AnnotationOverrides]:
        """What makes it worth another look at once when it changes."""
        return self.hpa.uid, self.hpa.spec, self.hpa.overrides


@dataclass(frozen=True, slots=True)
class RefusedHPA:
    """An HPA that is not valid, and the metadata that a status update must repeat."""

    hpa: InvalidHPA
    metadata: bytes
    """As of a TrackedHPA."""
    api: HPAApi

    @property
    def reconcile_trigger(self) -> tuple[str, str, AnnotationOverrides]:
        """What makes it worth another look at once when it changes."""
        return self.hpa.uid, self.hpa.problem, self.hpa.overrides


def track_hpa(
    raw: Mapping[str, Any], *, api: HPAApi = KUBERNETES, scale_to_zero: bool = True
) -> TrackedHPA | RefusedHPA | None:
    """What to keep of an HPA's JSON; None if it is no HPA.

    Args:
        raw: the object, which may be anything.
        api: where it was read. Of an API that is not built into the API server an HPA gets here the defaults and the
            checks that the API server makes for its own.
        scale_to_zero: whether the feature HPAScaleToZero is on, which the checks depend on.
    """
    try:
        metadata = msgspec.json.encode(
            {name: value for name, value in raw["metadata"].items() if name != "managedFields"}
        )
        raw = {**raw, "apiVersion": api.api_version}  # the items of a list may come without
        if api.built_in:
            return _understood(raw, metadata, api)
        try:
            complete = default_hpa(raw)
            problems = validate_hpa(complete, scale_to_zero=scale_to_zero)
        except DecodeError as error:
            problems = [str(error)]
        if problems:
            return RefusedHPA(parse_invalid_hpa(raw, "; ".join(dict.fromkeys(problems))), metadata, api)
        return _understood(complete, metadata, api, complete["spec"]["metrics"])
    except ParseError as error:
        _log.warning("this HPA is left alone: %s", error)
        return None


def _understood(
    raw: Mapping[str, Any], metadata: bytes, api: HPAApi, metrics: Sequence[Mapping[str, Any]] = ()
) -> TrackedHPA | RefusedHPA:
    """A complete HPA; one whose spec is nothing that is known here is told so, rather than forgotten."""
    try:
        return TrackedHPA(
            parse_hpa(raw), metadata, api, metrics, _foreign_write_time(raw["metadata"].get("managedFields"))
        )
    except ParseError as error:
        return RefusedHPA(parse_invalid_hpa(raw, str(error)), metadata, api)


def _foreign_write_time(managed_fields: object) -> str:
    """The time of the entry that FOREIGN_MANAGER has for the status."""
    entries = managed_fields if isinstance(managed_fields, list) else []
    for entry in entries:
        if isinstance(entry, dict) and (entry.get("manager"), entry.get("subresource")) == (FOREIGN_MANAGER, "status"):
            return once(str(entry.get("time", "")))
    return ""


def track_pod(raw: Mapping[str, Any]) -> Pod | None:
    """What to keep of a pod's JSON; None if it is no pod."""
    try:
        return parse_pod(raw)
    except ParseError as error:
        _log.warning("this pod is not counted: %s", error)
        return None
