"""The objects that rules are read from, and what is kept of each: enough to read it again with other servers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import structs

from adapter.catalog.rule_states import Reason
from adapter.prometheus.options import PrometheusOptions
from adapter.rules.objects import (
    CLUSTER_METRIC_RULE,
    CONFIG_MAP,
    METRIC_RULE,
    RuleObject,
    Tenancy,
    read_object,
    unreadable,
)

_log = logging.getLogger(__name__)

RULES_LABEL = "milliscale.io/rules=true"
"""Selects the ConfigMaps that have rules."""

MAX_BYTES = 1024 * 1024
MAX_TOTAL_BYTES = 8 * 1024 * 1024
"""The JSON that is kept of the objects of a namespace, and of all namespaces. Read, it takes up to 20 times as much."""

ALWAYS_BYTES = 32 * 1024
"""What is kept of a namespace's objects whatever others have."""

Servers = Mapping[str, PrometheusOptions]


class StoredObject(msgspec.Struct, frozen=True, gc=False):
    """An object, without what changes often and makes no difference, such as its status and resourceVersion.

    `content` is the JSON of the kept fields, by name, empty if there was no room for it; `metadata` that of the kept
    metadata.
    """

    metadata: bytes
    content: bytes

    def object(self, kind: str) -> dict[str, Any]:
        """Return the object's JSON, with the fields that were kept."""
        return {"kind": kind, "metadata": msgspec.json.decode(self.metadata), **msgspec.json.decode(self.content)}


@dataclass(frozen=True, slots=True)
class ObjectSource:
    """A kind of objects that have rules.

    Attributes:
        kind: the kind.
        path: the collection's path.
        fields: the top-level fields that are kept; `spec` for most kinds.
        read: returns the rules of an object, see adapter.rules.objects.read_object; most objects are one RuleObject.
        label_selector: only these objects are read.
        annotations: keep the annotations, too.
        part: returns the part of an object's JSON that matters, in the same form; None to ignore the object.
    """

    kind: str
    path: str
    fields: tuple[str, ...]
    read: Callable[[Mapping[str, Any], Servers, Tenancy], Sequence[RuleObject]]
    label_selector: str = ""
    annotations: bool = False
    part: Callable[[Mapping[str, Any]], Mapping[str, Any] | None] = lambda item: item

    def view(self, item: Mapping[str, Any], *, has_room: bool = True) -> StoredObject | None:
        """Return what is kept of an object's JSON, which may be anything; without room, only what identifies it."""
        part = self.part(item)
        metadata = part.get("metadata") if part is not None else None
        if part is None or not isinstance(metadata, dict):
            return None
        names = ("namespace", "name", "uid", "creationTimestamp", "generation")
        kept = {name: metadata[name] for name in names if name in metadata}
        if not has_room:
            return StoredObject(msgspec.json.encode(kept), b"")
        if self.annotations:
            kept["annotations"] = metadata.get("annotations")
        content = {name: part[name] for name in self.fields if name in part}
        return StoredObject(msgspec.json.encode(kept), msgspec.json.encode(content))


def read_stored(source: ObjectSource, stored: StoredObject, servers: Servers, tenancy: Tenancy) -> Sequence[RuleObject]:
    """Return the rules of an object. It does not raise."""
    if not stored.content:
        obj = {"kind": source.kind, "metadata": msgspec.json.decode(stored.metadata)}
        why = (
            f"it is not read: the objects with rules of its namespace have more than {MAX_BYTES // 1024} KiB, or those"
        )
        why = f"{why} of all namespaces more than {MAX_TOTAL_BYTES // 1024} KiB"
        return (structs.replace(unreadable(obj, source.kind, why), reason=Reason.TOO_MANY_RULES.value),)
    obj = stored.object(source.kind)
    try:
        return [_limited(one, tenancy) for one in source.read(obj, servers, tenancy)]
    except Exception as error:  # noqa: BLE001  (an object that triggers a bug in its reader must not end the process)
        _log.exception("a %s cannot be read", source.kind)
        return (unreadable(obj, source.kind, f"it cannot be read: {error!r}"),)


def _limited(one: RuleObject, tenancy: Tenancy) -> RuleObject:
    """Return an object without its rules if they alone are too many: a ConfigMap can have thousands."""
    if one.name.namespace in ("", tenancy.own_namespace) or len(one.rules) <= tenancy.max_rules:
        return one
    error = f"it has {len(one.rules)} rules, and a namespace can have {tenancy.max_rules}"
    return structs.replace(one, rules=(), error=error, reason=Reason.TOO_MANY_RULES.value)


def _read_one(obj: Mapping[str, Any], servers: Servers, tenancy: Tenancy) -> Sequence[RuleObject]:
    return (read_object(obj, servers=servers, tenancy=tenancy),)


METRIC_RULES = ObjectSource(METRIC_RULE, "/apis/milliscale.io/v1/metricrules", ("spec",), _read_one)
CLUSTER_METRIC_RULES = ObjectSource(
    CLUSTER_METRIC_RULE, "/apis/milliscale.io/v1/clustermetricrules", ("spec",), _read_one
)
CONFIG_MAPS = ObjectSource(CONFIG_MAP, "/api/v1/configmaps", ("data",), _read_one, label_selector=RULES_LABEL)
