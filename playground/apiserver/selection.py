"""Label and field selectors of lists and watches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kube.api.status import bad_request
from kube.values.selectors import LabelSelector, SelectorError
from playground.apiserver.objects import Object, labels_of


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
    """The labels and fields of selected objects. Every field can be selected, unlike upstream."""

    labels: LabelSelector
    fields: tuple[_FieldTerm, ...]

    @classmethod
    def parse(cls, query: Mapping[str, str], *, name: str = "") -> Selection:
        """Parse the query parameters; `name` selects a single object.

        Raises:
            StatusError: 400, a selector is malformed.
        """
        try:
            labels = LabelSelector.parse(query.get("labelSelector", ""))
        except SelectorError as error:
            raise bad_request(f"unable to parse requirement: {error}") from error
        terms = [_field_term(term) for term in query.get("fieldSelector", "").split(",") if term]
        if name:
            terms.append(_FieldTerm(("metadata", "name"), name, equal=True))
        return cls(labels, tuple(terms))

    @property
    def everything(self) -> bool:
        """True if all objects are selected."""
        return self.labels.empty and not self.fields

    def matches(self, obj: Object) -> bool:
        """Return whether an object is selected."""
        return self.labels.matches(labels_of(obj)) and all(term.matches(obj) for term in self.fields)


def _field_term(term: str) -> _FieldTerm:
    operator = next((operator for operator in ("!=", "==", "=") if operator in term), None)
    if operator is None:
        raise bad_request(f"invalid selector: '{term}'; can't understand '{term}'")
    key, _, value = term.partition(operator)
    return _FieldTerm(tuple(key.split(".")), value, equal=operator != "!=")
