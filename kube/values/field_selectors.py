"""Field selectors: `metadata.name=web-0,metadata.namespace!=test`.

metrics.k8s.io supports metadata.name and metadata.namespace. Error messages are the API server's.
Upstream: fields.ParseSelector
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from kube.values.fields import quote

_ESCAPABLE = "\\,="
# Terms are between commas; a comma after a backslash is part of a value.
_TERMS = re.compile(r"(?:[^\\,]|\\.|\\\Z)+", re.DOTALL)
_TERM = re.compile(r"(.*?)(!=|==|=)(.*)", re.DOTALL)
_SPECIAL = re.compile(r"\\(.?)|[,=]", re.DOTALL)
_NAME, _NAMESPACE = "metadata.name", "metadata.namespace"


class FieldSelectorError(ValueError):
    """Invalid field selector, or a field that is not supported; with Kubernetes' message."""


@dataclass(frozen=True, slots=True)
class FieldSelector:
    """A conjunction of (field, whether it must be equal, value); without terms it selects everything."""

    terms: tuple[tuple[str, bool, str], ...] = ()

    @classmethod
    def parse(cls, text: str) -> FieldSelector:
        """Parse a selector.

        Raises:
            FieldSelectorError: with Kubernetes' message.
        """
        terms = []
        for part in sorted(_TERMS.findall(text)):
            field, operator, value = _split(part, text)
            value = _unescape(value)
            if field or value:
                terms.append((field, operator != "!=", value))
        for field, _, _ in terms:
            if field not in (_NAME, _NAMESPACE):
                raise FieldSelectorError(
                    f"{quote(field)} is not a known field selector: only {quote(_NAME)}, {quote(_NAMESPACE)}"
                )
        return cls(tuple(terms))

    def exact_name(self) -> str | None:
        """Return the only name that it can match; None if it requires none."""
        return next((value for field, equal, value in self.terms if field == _NAME and equal), None)

    def matches(self, *, name: str, namespace: str) -> bool:
        """Return whether it selects an object; the namespace of a cluster-scoped one is ""."""
        return all(((name if field == _NAME else namespace) == value) == equal for field, equal, value in self.terms)


def _split(term: str, text: str) -> tuple[str, str, str]:
    """Return field, operator and value of a term; spaces belong to field and value."""
    found = _TERM.fullmatch(term)
    if found is None:
        raise FieldSelectorError(f"invalid selector: '{text}'; can't understand '{term}'")
    return found[1], found[2], found[3]


def _unescape(value: str) -> str:
    """Return a value without the backslashes before backslashes, commas and equals signs."""

    def unescaped(found: re.Match[str]) -> str:
        if found[0][0] != "\\":
            raise FieldSelectorError(f"invalid field selector: unescaped character in value: {ord(found[0])}")
        if not found[1] or found[1] not in _ESCAPABLE:
            raise FieldSelectorError(f"invalid field selector: invalid escape sequence: {found[0]}")
        return found[1]

    return _SPECIAL.sub(unescaped, value)
