"""Tables: what `kubectl get` shows. The server fills in the cells, so that every kubectl shows the same.

Columns and texts are those of k8s.io/kubernetes/pkg/printers/internalversion; a kind without columns of its own gets
its name and age.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from autoscaler.objects.targets import targets_line
from kube.selectors import LabelSelector, SelectorError
from playground.apiserver.encoding import Form
from playground.apiserver.objects import Object, child, name_of
from playground.apiserver.resource_types import ResourceType

_WIDE: Final = 1
_NONE: Final = "<none>"
_UNKNOWN: Final = "<unknown>"


@dataclass(frozen=True, slots=True)
class _Row:
    """An object and the moment at which it is shown."""

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
    priority: int = 0
    type: str = "string"
    format: str = ""


def table_of(
    kind: ResourceType,
    objects: Iterable[Object],
    form: Form,
    *,
    metadata: Object,
    include: str,
    now: datetime.datetime,
) -> Object:
    """A meta.k8s.io Table with a row for each object.

    Args:
        kind: which decides on the columns.
        objects: the rows.
        form: the version that is wanted.
        metadata: the table's own.
        include: the object beside each row: "None", "Metadata" (the default, also for "") or "Object".
        now: from which ages are counted.
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
                "type": column.type,
                "format": column.format,
                "description": column.name,
                "priority": column.priority,
            }
            for column in columns
        ],
        "rows": rows,
    }


def partial_metadata(obj: Object, form: Form) -> Object:
    """The object without all but its metadata."""
    return {"kind": "PartialObjectMetadata", "apiVersion": form.api_version, "metadata": obj["metadata"]}


def human_duration(seconds: float) -> str:
    """A duration in two units at most, as k8s.io/apimachinery/pkg/util/duration.HumanDuration writes it."""
    whole = int(seconds)
    if whole < -1:
        return "<invalid>"
    minutes, hours, days = whole // 60, whole // 3600, whole // 86400
    if whole < 120:
        return f"{max(whole, 0)}s"
    if minutes < 10:
        return _two_units(minutes, "m", whole % 60, "s")
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return _two_units(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        return _two_units(days, "d", hours % 24, "h")
    if days < 730:
        return f"{days}d"
    if days < 2920:
        return _two_units(days // 365, "y", days % 365, "d")
    return f"{days // 365}y"


def _two_units(large: int, large_unit: str, small: int, small_unit: str) -> str:
    return f"{large}{large_unit}{small}{small_unit}" if small else f"{large}{large_unit}"


def _field(*path: str, default: Any = "") -> Callable[[_Row], Any]:
    """The value at a path, as it is."""

    def cell(row: _Row) -> Any:
        value = row.part(*path[:-1]).get(path[-1])
        return default if value is None else value

    return cell


def _age(row: _Row) -> str:
    return row.since(row.part("metadata").get("creationTimestamp"))


def _selector(row: _Row) -> str:
    try:
        return str(LabelSelector.from_object(row.part("spec").get("selector"))) or _NONE
    except SelectorError:
        return "<error>"


def _containers(field: str) -> Callable[[_Row], str]:
    def cell(row: _Row) -> str:
        containers = row.part("spec", "template", "spec").get("containers") or []
        return ",".join(str(container.get(field, "")) for container in containers)

    return cell


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
    return targets_line(row.part("spec").get("metrics") or [], row.part("status").get("currentMetrics") or [])


def _min_pods(row: _Row) -> str:
    value = row.part("spec").get("minReplicas")
    return "<unset>" if value is None else str(value)


def _service_ports(row: _Row) -> str:
    ports = row.part("spec").get("ports") or []
    return ",".join(f"{port.get('port')}/{port.get('protocol', 'TCP')}" for port in ports) or _NONE


def _external_ip(row: _Row) -> str:
    spec = row.part("spec")
    return str(spec.get("externalName") or _NONE) if spec.get("type") == "ExternalName" else _NONE


def _service_selector(row: _Row) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted(row.part("spec", "selector").items())) or _NONE


def _endpoints(row: _Row) -> str:
    shown = [
        f"{address.get('ip')}:{port.get('port')}"
        for subset in row.obj.get("subsets") or []
        for address in subset.get("addresses") or []
        for port in subset.get("ports") or []
    ]
    more = f" + {len(shown) - 3} more..." if len(shown) > 3 else ""
    return ",".join(shown[:3]) + more if shown else _NONE


def _last_seen(row: _Row) -> str:
    event = row.obj
    series = row.part("series").get("lastObservedTime")
    return row.since(series or event.get("lastTimestamp") or event.get("eventTime") or event.get("firstTimestamp"))


def _event_object(row: _Row) -> str:
    involved = row.part("involvedObject")
    return f"{str(involved.get('kind', '')).lower()}/{involved.get('name', '')}"


def _event_source(row: _Row) -> str:
    source = row.part("source")
    component = source.get("component") or row.obj.get("reportingComponent") or ""
    return ", ".join(filter(None, (component, source.get("host") or row.obj.get("reportingInstance"))))


def _node_status(row: _Row) -> str:
    conditions = row.part("status").get("conditions") or []
    ready = next((condition for condition in conditions if condition.get("type") == "Ready"), None)
    if ready is None:
        return "Unknown"
    return "Ready" if ready.get("status") == "True" else "NotReady"


def _api_service_target(row: _Row) -> str:
    service = row.part("spec", "service")
    return f"{service.get('namespace')}/{service.get('name')}" if service else "Local"


def _availability(row: _Row) -> str:
    conditions = row.part("status").get("conditions") or []
    found = next((condition for condition in conditions if condition.get("type") == "Available"), None)
    if found is None:
        return "Unknown"
    return "True" if found.get("status") == "True" else f"{found.get('status')} ({found.get('reason')})"


def _role(row: _Row) -> str:
    reference = row.part("roleRef")
    return f"{reference.get('kind')}/{reference.get('name')}"


_NAME: Final = _Column("Name", lambda row: name_of(row.obj), format="name")
_AGE: Final = _Column("Age", _age)
_DEFAULT_COLUMNS: Final = (_NAME, _AGE)
_WORKLOAD_WIDE: Final = (
    _Column("Containers", _containers("name"), _WIDE),
    _Column("Images", _containers("image"), _WIDE),
)
_BINDING: Final = (_NAME, _Column("Role", _role), _AGE)

_COLUMNS: Final[dict[str, tuple[_Column, ...]]] = {
    "APIService": (_NAME, _Column("Service", _api_service_target), _Column("Available", _availability), _AGE),
    "ClusterRole": (_NAME, _Column("Created At", _field("metadata", "creationTimestamp"), type="date")),
    "ClusterRoleBinding": _BINDING,
    "ConfigMap": (_NAME, _Column("Data", lambda row: len(row.part("data")) + len(row.part("binaryData"))), _AGE),
    "Deployment": (
        _NAME,
        _Column("Ready", _ready_replicas),
        _Column("Up-to-date", _field("status", "updatedReplicas", default=0)),
        _Column("Available", _field("status", "availableReplicas", default=0)),
        _AGE,
        *_WORKLOAD_WIDE,
        _Column("Selector", _selector, _WIDE),
    ),
    "Endpoints": (_NAME, _Column("Endpoints", _endpoints), _AGE),
    "Event": (
        _Column("Last Seen", _last_seen),
        _Column("Type", _field("type")),
        _Column("Reason", _field("reason")),
        _Column("Object", _event_object),
        _Column("Subobject", _field("involvedObject", "fieldPath"), _WIDE),
        _Column("Source", _event_source, _WIDE),
        _Column("Message", lambda row: str(row.obj.get("message", "")).strip()),
        _Column("First Seen", lambda row: row.since(row.obj.get("firstTimestamp") or row.obj.get("eventTime")), _WIDE),
        _Column("Count", lambda row: row.part("series").get("count") or row.obj.get("count") or 1, _WIDE),
        _Column("Name", lambda row: name_of(row.obj), _WIDE),
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
    "Lease": (_NAME, _Column("Holder", _field("spec", "holderIdentity")), _AGE),
    "Namespace": (_NAME, _Column("Status", _field("status", "phase")), _AGE),
    "Node": (
        _NAME,
        _Column("Status", _node_status),
        _Column("Roles", _field("metadata", "annotations", "kubernetes.io/role", default=_NONE)),
        _AGE,
        _Column("Version", _field("status", "nodeInfo", "kubeletVersion")),
    ),
    "Pod": (
        _NAME,
        _Column("Ready", _ready_containers),
        _Column("Status", _pod_status),
        _Column("Restarts", _restarts),
        _AGE,
        _Column("IP", _field("status", "podIP", default=_NONE), _WIDE),
        _Column("Node", _field("spec", "nodeName", default=_NONE), _WIDE),
    ),
    "PodDisruptionBudget": (
        _NAME,
        _Column("Min Available", _field("spec", "minAvailable", default="N/A")),
        _Column("Max Unavailable", _field("spec", "maxUnavailable", default="N/A")),
        _Column("Allowed Disruptions", _field("status", "disruptionsAllowed", default=0), type="integer"),
        _AGE,
    ),
    "ReplicaSet": (
        _NAME,
        _Column("Desired", _field("spec", "replicas", default=0), type="integer"),
        _Column("Current", _field("status", "replicas", default=0), type="integer"),
        _Column("Ready", _field("status", "readyReplicas", default=0), type="integer"),
        _AGE,
        *_WORKLOAD_WIDE,
        _Column("Selector", _selector, _WIDE),
    ),
    "Role": (_NAME, _Column("Created At", _field("metadata", "creationTimestamp"), type="date")),
    "RoleBinding": _BINDING,
    "Secret": (
        _NAME,
        _Column("Type", _field("type", default="Opaque")),
        _Column("Data", lambda row: len(row.part("data"))),
        _AGE,
    ),
    "Service": (
        _NAME,
        _Column("Type", _field("spec", "type")),
        _Column("Cluster-IP", _field("spec", "clusterIP", default=_NONE)),
        _Column("External-IP", _external_ip),
        _Column("Port(s)", _service_ports),
        _AGE,
        _Column("Selector", _service_selector, _WIDE),
    ),
    "StatefulSet": (_NAME, _Column("Ready", _ready_replicas), _AGE, *_WORKLOAD_WIDE),
}
