"""The objects that rules are decoded from, and what is stored of each: enough to decode it again with other servers."""

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
from adapter.settings import DEFAULTS, RuleObjectSettings

_log = logging.getLogger(__name__)

RULES_LABEL = "milliscale.io/rules=true"
"""Selects the ConfigMaps that have rules."""

ALWAYS_BYTES = 32 * 1024
"""The bytes that each namespace is guaranteed."""

Servers = Mapping[str, PrometheusOptions]


_IDENTITY = ("namespace", "name", "uid", "creationTimestamp", "generation")


@dataclass(frozen=True, slots=True)
class ObjectSource:
    """A kind of objects that have rules.

    Attributes:
        kind: the kind.
        path: the collection's path.
        fields: the top-level fields that are stored; `spec` for most kinds.
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

    def view(self, item: Mapping[str, Any], *, has_room: bool = True) -> bytes | None:
        """Return the JSON to store of an object, which may be anything; over the limit, only what identifies it.

        Left out is what changes often and makes no difference, such as its status and resourceVersion.
        """
        part = self.part(item)
        metadata = part.get("metadata") if part is not None else None
        if part is None or not isinstance(metadata, dict):
            return None
        names = (*_IDENTITY, "annotations") if self.annotations and has_room else _IDENTITY
        stored: dict[str, Any] = {"metadata": {name: metadata[name] for name in names if name in metadata}}
        if has_room:
            stored |= {name: part.get(name) for name in self.fields}
        return msgspec.json.encode(stored)


def read_stored(
    source: ObjectSource,
    stored: bytes,
    servers: Servers,
    tenancy: Tenancy,
    settings: RuleObjectSettings = DEFAULTS.rule_objects,
) -> Sequence[RuleObject]:
    """Return the rules of an object of which this JSON is stored. It does not raise."""
    obj = {"kind": source.kind, **msgspec.json.decode(stored)}
    if obj.keys().isdisjoint(source.fields):
        why = (
            f"it is not read: the objects with rules of its namespace have more than "
            f"{settings.namespace_bytes // 1024} KiB, or those of all namespaces more than "
            f"{settings.total_bytes // 1024} KiB"
        )
        return (structs.replace(unreadable(obj, source.kind, why), reason=Reason.TOO_MANY_RULES.value),)
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
