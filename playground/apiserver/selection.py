"""Which objects a list or a watch is about: label selectors, and the few field selectors that each kind has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from kube.mapping import GroupResource
from kube.selectors import LabelSelector, SelectorError
from kube.status import bad_request
from playground.apiserver.objects import Object, labels_of
from playground.apiserver.resource_types import ResourceType

_COMMON_FIELDS: Final = ("metadata.name", "metadata.namespace")
_FIELDS: Final[dict[GroupResource, tuple[str, ...]]] = {
    GroupResource("", "events"): (
        "involvedObject.apiVersion",
        "involvedObject.fieldPath",
        "involvedObject.kind",
        "involvedObject.name",
        "involvedObject.namespace",
        "involvedObject.resourceVersion",
        "involvedObject.uid",
        "reason",
        "reportingComponent",
        "source",
        "type",
    ),
    GroupResource("", "namespaces"): ("status.phase",),
    GroupResource("", "nodes"): ("spec.unschedulable",),
    GroupResource("", "pods"): (
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "status.phase",
        "status.podIP",
    ),
    GroupResource("", "secrets"): ("type",),
    GroupResource("", "services"): ("spec.clusterIP", "spec.type"),
    GroupResource("apps", "replicasets"): ("status.replicas",),
}


@dataclass(frozen=True, slots=True)
class _FieldTerm:
    path: tuple[str, ...]
    value: str
    equal: bool

    def matches(self, obj: Object) -> bool:
        value: Any = obj
        for key in self.path:
            value = value.get(key) if isinstance(value, dict) else None
        text = "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
        return (text == self.value) is self.equal


@dataclass(frozen=True, slots=True)
class Selection:
    """Labels and fields that an object must have."""

    labels: LabelSelector
    fields: tuple[_FieldTerm, ...]

    @classmethod
    def parse(cls, kind: ResourceType, query: Mapping[str, str], *, name: str = "") -> Selection:
        """Read the query parameters; `name` narrows it to one object.

        Raises:
            StatusError: 400, a selector is malformed or selects by a field that this kind cannot be selected by.
        """
        try:
            labels = LabelSelector.parse(query.get("labelSelector", ""))
        except SelectorError as error:
            raise bad_request(f"unable to parse requirement: {error}") from error
        terms = [_field_term(kind, term) for term in query.get("fieldSelector", "").split(",") if term]
        if name:
            terms.append(_FieldTerm(("metadata", "name"), name, equal=True))
        return cls(labels, tuple(terms))

    @property
    def everything(self) -> bool:
        """Whether nothing is demanded."""
        return self.labels.empty and not self.fields

    def matches(self, obj: Object) -> bool:
        """Whether an object is selected."""
        return self.labels.matches(labels_of(obj)) and all(term.matches(obj) for term in self.fields)


def _field_term(kind: ResourceType, term: str) -> _FieldTerm:
    operator = next((operator for operator in ("!=", "==", "=") if operator in term), None)
    if operator is None:
        raise bad_request(f"invalid selector: '{term}'; can't understand '{term}'")
    key, _, value = term.partition(operator)
    known = _FIELDS.get(kind.group_resource)
    if key not in (*_COMMON_FIELDS, *(known or ())):
        # Two texts, because kinds with fields of their own check by themselves upstream.
        common = ", ".join(f'"{name}"' for name in _COMMON_FIELDS)
        only = f'"{key}" is not a known field selector: only {common}'
        raise bad_request(f"field label not supported: {key}" if known else only)
    path = ("source", "component") if key == "source" else tuple(key.split("."))
    return _FieldTerm(path, value, equal=operator != "!=")
