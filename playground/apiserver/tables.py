"""Tables: what `kubectl get hpa,deployments,pods,metricrules` shows; other kinds have their name and age.

Upstream: k8s.io/kubernetes/pkg/printers/internalversion.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from autoscaler.core.status import targets_line
from autoscaler.objects.hpa import track_hpa
from playground.apiserver.encoding import Form
from playground.apiserver.objects import Object, child, name_of
from playground.apiserver.resource_types import ResourceType

_UNKNOWN: Final = "<unknown>"


@dataclass(frozen=True, slots=True)
class _Row:
    """An object and the current time."""

    obj: Object
    now: datetime.datetime

    def part(self, *path: str) -> Object:
        return child(self.obj, *path)

    def since(self, text: str | None) -> str:
        if not text:
            return _UNKNOWN
        return human_duration((self.now - datetime.datetime.fromisoformat(text)).total_seconds())


@dataclass(frozen=True, slots=True)
class _Column:
    name: str
    cell: Callable[[_Row], Any]
    format: str = ""
    priority: int = 0
    """Columns of priority 1 are shown with `-o wide` only."""


def table_of(
    kind: ResourceType,
    objects: Iterable[Object],
    form: Form,
    *,
    metadata: Object,
    include: str,
    now: datetime.datetime,
) -> Object:
    """Return a meta.k8s.io Table with a row per object.

    Args:
        kind: decides on the columns.
        objects: the rows.
        form: the requested version.
        metadata: of the table.
        include: the object in each row: "None", "Metadata" (the default, also for "") or "Object".
        now: the current time, for ages.
    """
    columns = _COLUMNS.get(kind.kind, _DEFAULT_COLUMNS)
    rows = []
    for obj in objects:
        row: Object = {"cells": [column.cell(_Row(obj, now)) for column in columns]}
        if include == "Object":
            row["object"] = obj
        elif include != "None":
            row["object"] = partial_metadata(obj, form)
        rows.append(row)
    return {
        "kind": "Table",
        "apiVersion": form.api_version,
        "metadata": metadata,
        "columnDefinitions": [
            {
                "name": column.name,
                "type": "string",
                "format": column.format,
                "description": column.name,
                "priority": column.priority,
            }
            for column in columns
        ],
        "rows": rows,
    }


def partial_metadata(obj: Object, form: Form) -> Object:
    """Return the metadata of an object."""
    return {"kind": "PartialObjectMetadata", "apiVersion": form.api_version, "metadata": obj["metadata"]}


def human_duration(seconds: float) -> str:
    """Return an age. Upstream: k8s.io/apimachinery/pkg/util/duration.HumanDuration, which has larger units, too."""
    whole = max(int(seconds), 0)
    if whole < 120:
        return f"{whole}s"
    minutes, rest = divmod(whole, 60)
    return f"{minutes}m{rest}s" if minutes < 10 and rest else f"{minutes}m"


def _field(*path: str, default: Any = "") -> Callable[[_Row], Any]:
    """Return a cell with the value at a path."""

    def cell(row: _Row) -> Any:
        value = row.part(*path[:-1]).get(path[-1])
        return default if value is None else value

    return cell


def _age(row: _Row) -> str:
    return row.since(row.part("metadata").get("creationTimestamp"))


def _last_seen(row: _Row) -> str:
    return row.since(row.obj.get("lastTimestamp") or row.obj.get("eventTime"))


def _about(row: _Row) -> str:
    about = row.part("involvedObject")
    return f"{str(about.get('kind', '')).lower()}/{about.get('name')}"


def _ready_replicas(row: _Row) -> str:
    return f"{row.part('status').get('readyReplicas', 0)}/{row.part('spec').get('replicas', 1)}"


def _ready_containers(row: _Row) -> str:
    statuses = row.part("status").get("containerStatuses") or []
    ready = sum(1 for status in statuses if status.get("ready"))
    return f"{ready}/{len(row.part('spec').get('containers') or [])}"


def _pod_status(row: _Row) -> str:
    if row.part("metadata").get("deletionTimestamp"):
        return "Terminating"
    status = row.part("status")
    for container in status.get("containerStatuses") or []:
        waiting = child(container, "state", "waiting").get("reason")
        if waiting:
            return str(waiting)
    return str(status.get("reason") or status.get("phase") or "Unknown")


def _restarts(row: _Row) -> str:
    return str(sum(status.get("restartCount", 0) for status in row.part("status").get("containerStatuses") or []))


def _hpa_reference(row: _Row) -> str:
    target = row.part("spec", "scaleTargetRef")
    return f"{target.get('kind')}/{target.get('name')}"


def _hpa_targets(row: _Row) -> str:
    hpa = track_hpa(row.obj)
    return _UNKNOWN if hpa is None else targets_line(hpa.spec.metrics, hpa.status.current_metrics)


def _min_pods(row: _Row) -> str:
    value = row.part("spec").get("minReplicas")
    return "<unset>" if value is None else str(value)


def _ready_condition(field: str) -> Callable[[_Row], Any]:
    """Return a cell with a field of the condition Ready."""

    def cell(row: _Row) -> Any:
        conditions = row.part("status").get("conditions") or []
        return next((condition.get(field, "") for condition in conditions if condition.get("type") == "Ready"), "")

    return cell


def _first_metric(row: _Row) -> str:
    return next(iter(row.part("status").get("metrics") or []), "")


_NAME: Final = _Column("Name", lambda row: name_of(row.obj), format="name")
_AGE: Final = _Column("Age", _age)
_DEFAULT_COLUMNS: Final = (_NAME, _AGE)

# Those of the CustomResourceDefinitions in manifests/crds.
_METRIC_RULE_COLUMNS: Final = (
    _NAME,
    _Column("Type", _field("spec", "type")),
    _Column("Metric", _first_metric),
    _Column("Ready", _ready_condition("status")),
    _Column("Reason", _ready_condition("reason")),
    _Column("Value", _field("status", "value")),
    _Column("Series", _field("status", "series"), priority=1),
    _Column("Query Time", _field("status", "queryDuration"), priority=1),
    _Column("Message", _ready_condition("message"), priority=1),
    _AGE,
)

_COLUMNS: Final[dict[str, tuple[_Column, ...]]] = {
    "ClusterMetricRule": _METRIC_RULE_COLUMNS,
    "Deployment": (
        _NAME,
        _Column("Ready", _ready_replicas),
        _Column("Up-to-date", _field("status", "updatedReplicas", default=0)),
        _Column("Available", _field("status", "availableReplicas", default=0)),
        _AGE,
    ),
    "Event": (
        _Column("Last Seen", _last_seen),
        _Column("Type", _field("type")),
        _Column("Reason", _field("reason")),
        _Column("Object", _about),
        _Column("Message", _field("message")),
    ),
    "HorizontalPodAutoscaler": (
        _NAME,
        _Column("Reference", _hpa_reference),
        _Column("Targets", _hpa_targets),
        _Column("MinPods", _min_pods),
        _Column("MaxPods", _field("spec", "maxReplicas")),
        _Column("Replicas", _field("status", "currentReplicas", default=0)),
        _AGE,
    ),
    "MetricRule": _METRIC_RULE_COLUMNS,
    "Pod": (
        _NAME,
        _Column("Ready", _ready_containers),
        _Column("Status", _pod_status),
        _Column("Restarts", _restarts),
        _AGE,
    ),
}
