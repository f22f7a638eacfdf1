"""The parameters that every list request of Kubernetes may have, and that are checked also where they change nothing.

Errors are those of metav1.ListOptions' conversion in k8s.io/apimachinery.
"""

from __future__ import annotations

import re

from adapter.content.tables import INCLUDED
from adapter.security.request_info import Query
from adapter.serving.field_selector import FieldSelector, FieldSelectorError
from kube.fields import invalid, quote
from kube.status import bad_request

__all__ = ["check_numbers", "check_requested_name", "field_selector", "included_object"]

_INTEGER = re.compile(r"[+-]?[0-9]+")
_MAX_DIGITS = 20
_INT64 = range(-(2**63), 2**63)


def check_numbers(query: Query) -> None:
    """Refuse a `limit` or `timeoutSeconds` that is no number. Raises StatusError 400."""
    for parameter in ("limit", "timeoutSeconds"):
        if parameter not in query:
            continue
        text = query.get(parameter)
        if _INTEGER.fullmatch(text) is None:
            raise bad_request(f"strconv.ParseInt: parsing {quote(text)}: invalid syntax")
        if len(text.lstrip("+-0")) > _MAX_DIGITS or int(text) not in _INT64:
            raise bad_request(f"strconv.ParseInt: parsing {quote(text)}: value out of range")


def field_selector(query: Query) -> FieldSelector:
    """The `fieldSelector`. Raises StatusError 400 where it is none."""
    try:
        return FieldSelector.parse(query.get("fieldSelector"))
    except FieldSelectorError as error:
        raise bad_request(str(error)) from error


def included_object(query: Query) -> str:
    """What a client wants beside each row of a table: `includeObject`. Raises StatusError 400 for anything unknown."""
    text = query.get("includeObject")
    if text and text not in INCLUDED:
        why = invalid("includeObject", text, "must be 'Metadata', 'Object', 'None', or empty")
        raise bad_request(f"Unable to convert to Table as requested: {why}")
    return text or INCLUDED[0]


def check_requested_name(query: Query, name: str) -> None:
    """Refuse a `fieldSelector` for anything but the name that the path has already. Raises StatusError 400."""
    selector = field_selector(query)
    if selector.terms and selector.exact_name() != name:
        raise bad_request("fieldSelector metadata.name doesn't match requested name")
