"""The parameters of every Kubernetes list request, which are validated even if they have no effect here.

Errors are those of metav1.ListOptions' conversion in k8s.io/apimachinery.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from adapter.content.documents import INCLUDED
from kube.api import status
from kube.api.status import bad_request
from kube.security.request_info import Query
from kube.values.field_selectors import FieldSelector, FieldSelectorError
from kube.values.fields import invalid, quote

_INTEGER = re.compile(r"[+-]?[0-9]+")
_MAX_DIGITS = 20
_INT64 = range(-(2**63), 2**63)
_MATCHES = ("Exact", "NotOlderThan", "")
_MATCH = "resourceVersionMatch"
_ANY_FIELDS = FieldSelector.parse("")


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


def check_list(query: Query) -> None:
    """Refuse contradictory parameters, as the API server does for every list. Raises StatusError 422."""
    forbidden = "FieldValueForbidden"
    causes = []
    match, version = query.get(_MATCH), query.get("resourceVersion")
    if match and not version:
        causes.append((_MATCH, forbidden, f"{_MATCH} is forbidden unless resourceVersion is provided"))
    if match and query.get("continue"):
        causes.append((_MATCH, forbidden, f"{_MATCH} is forbidden when continue is provided"))
    if match not in _MATCHES:
        supported = ", ".join(map(quote, _MATCHES))
        causes.append((_MATCH, "FieldValueNotSupported", f"{quote(match)}: supported values: {supported}"))
    if match == "Exact" and version == "0":
        causes.append((_MATCH, forbidden, f'{_MATCH} "exact" is forbidden for resourceVersion "0"'))
    if "sendInitialEvents" in query:
        causes.append(("sendInitialEvents", forbidden, "sendInitialEvents is forbidden for list"))
    if causes:
        raise _invalid_options(causes)


def field_selector(query: Query) -> FieldSelector:
    """Return the `fieldSelector`. Raises StatusError 400 if it is invalid."""
    text = query.get("fieldSelector")
    if not text:
        return _ANY_FIELDS
    try:
        return FieldSelector.parse(text)
    except FieldSelectorError as error:
        raise bad_request(str(error)) from error


def included_object(query: Query) -> str:
    """Return `includeObject`: how much of its object a row includes. Raises StatusError 400 for other values."""
    text = query.get("includeObject")
    if text and text not in INCLUDED:
        why = invalid("includeObject", text, "must be 'Metadata', 'Object', 'None', or empty")
        raise bad_request(f"Unable to convert to Table as requested: {why}")
    return text or INCLUDED[0]


def check_requested_name(query: Query, name: str) -> None:
    """Refuse a `fieldSelector` for another name than the path's. Raises StatusError 400."""
    selector = field_selector(query)
    if selector.terms and selector.exact_name() != name:
        raise bad_request("fieldSelector metadata.name doesn't match requested name")


def _invalid_options(causes: Sequence[tuple[str, str, str]]) -> status.StatusError:
    """Return the error for invalid parameters; a cause is (parameter, reason, message)."""
    words = {"FieldValueForbidden": "Forbidden", "FieldValueNotSupported": "Unsupported value"}
    described = [(field, reason, f"{words[reason]}: {text}") for field, reason, text in causes]
    each = [f"{field}: {text}" for field, _, text in described]
    all_of_them = each[0] if len(each) == 1 else f"[{', '.join(each)}]"
    return status.invalid(
        f'ListOptions.meta.k8s.io "" is invalid: {all_of_them}',
        details={
            "group": "meta.k8s.io",
            "kind": "ListOptions",
            "causes": [{"reason": reason, "message": text, "field": field} for field, reason, text in described],
        },
    )
