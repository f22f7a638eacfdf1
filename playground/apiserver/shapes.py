"""The JSON types of the fields that the server looks into; a body with others is refused before anything trips over it.

A real API server decodes into Go types and refuses what does not fit. Here only what is read is declared, kind by kind;
everything else passes as it came. As in Go, any field may be missing or null.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from kube.status import bad_request
from playground.apiserver.objects import Object
from playground.apiserver.rbac import PolicyRule
from playground.apiserver.resource_types import RESOURCE_TYPES, ResourceType

_JsonObject = dict[str, Any]


class _Shape(msgspec.Struct, rename="camel"):
    """Some of an object's fields."""


class _Owner(_Shape):
    kind: str | None = None
    uid: str | None = None


class _Metadata(_Shape):
    name: str | None = None
    generate_name: str | None = None
    namespace: str | None = None
    uid: str | None = None
    resource_version: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    finalizers: list[str] | None = None
    owner_references: list[_Owner] | None = None


class _Condition(_Shape):
    type: str | None = None
    status: str | None = None


class _Status(_Shape):
    phase: str | None = None
    replicas: int | None = None
    conditions: list[_Condition] | None = None
    current_metrics: list[_JsonObject] | None = None
    container_statuses: list[_JsonObject] | None = None


class _Port(_Shape):
    port: int | None = None
    container_port: int | None = None


class _Container(_Shape):
    name: str | None = None
    ports: list[_Port] | None = None


class _PodSpec(_Shape):
    containers: list[_Container] | None = None
    node_name: str | None = None
    termination_grace_period_seconds: int | None = None


class _PodTemplate(_Shape):
    metadata: _Metadata | None = None
    spec: _PodSpec | None = None


class _WorkloadSpec(_Shape):
    replicas: int | None = None
    selector: _JsonObject | None = None
    template: _PodTemplate | None = None


class _ServiceSpec(_Shape):
    type: str | None = None
    external_name: str | None = None
    selector: dict[str, str] | None = None
    ports: list[_Port] | None = None


class _ServiceReference(_Shape):
    namespace: str | None = None
    name: str | None = None
    port: int | None = None


class _ApiServiceSpec(_Shape):
    group: str | None = None
    version: str | None = None
    group_priority_minimum: int | None = None
    version_priority: int | None = None
    service: _ServiceReference | None = None
    ca_bundle: str | None = None
    insecure_skip_tls_verify: bool | None = msgspec.field(default=None, name="insecureSkipTLSVerify")


class _AggregationRule(_Shape):
    cluster_role_selectors: list[_JsonObject] | None = None


class _RoleRef(_Shape):
    kind: str | None = None
    name: str | None = None


class _Subject(_Shape):
    kind: str | None = None
    name: str | None = None
    namespace: str | None = None


# What each kind has beside metadata, spec and status, or instead of the latter two's general shapes.
_FIELDS: Final[dict[str, dict[str, Any]]] = {
    "APIService": {"spec": _ApiServiceSpec},
    "ClusterRole": {"rules": list[PolicyRule], "aggregationRule": _AggregationRule},
    "ClusterRoleBinding": {"roleRef": _RoleRef, "subjects": list[_Subject]},
    "ConfigMap": {"data": dict[str, str], "binaryData": dict[str, str]},
    "Deployment": {"spec": _WorkloadSpec},
    "Pod": {"spec": _PodSpec},
    "ReplicaSet": {"spec": _WorkloadSpec},
    "Role": {"rules": list[PolicyRule]},
    "RoleBinding": {"roleRef": _RoleRef, "subjects": list[_Subject]},
    "Service": {"spec": _ServiceSpec},
    "StatefulSet": {"spec": _WorkloadSpec},
}


def _shape_of(kind: str) -> type[msgspec.Struct]:
    fields = {"metadata": _Metadata, "spec": _JsonObject, "status": _Status, **_FIELDS.get(kind, {})}
    return msgspec.defstruct(kind, [(name, type_ | None, None) for name, type_ in fields.items()])


_SHAPES: Final = {kind.kind: _shape_of(kind.kind) for kind in RESOURCE_TYPES}


def check_shape(kind: ResourceType, obj: Object) -> None:
    """Refuse an object in which a field has a type that it cannot have.

    Raises:
        StatusError: 400, with the path of the field.
    """
    try:
        msgspec.convert(obj, _SHAPES[kind.kind])
    except msgspec.ValidationError as error:
        raise bad_request(
            f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: {error}'
        ) from error
