"""Field selectors: `metadata.name=web-0,metadata.namespace!=test`.

metrics.k8s.io supports metadata.name and metadata.namespace. Error messages are the API server's.
Upstream: fields.ParseSelector
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kube.values.fields import quote

_OPERATORS = ("!=", "==", "=")
_ESCAPABLE = "\\,="
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
        for part in sorted(_terms(text)):
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


def _terms(text: str) -> Iterator[str]:
    """Yield the non-empty terms between commas; a comma after a backslash is part of a value."""
    start, escaped = 0, False
    for position, character in enumerate(text):
        if escaped:
            escaped = False
        elif character == "\\":
            escaped = True
        elif character == ",":
            if position > start:
                yield text[start:position]
            start = position + 1
    if start < len(text):
        yield text[start:]


def _split(term: str, text: str) -> tuple[str, str, str]:
    """Return field, operator and value of a term; spaces belong to field and value."""
    for position in range(len(term)):
        for operator in _OPERATORS:
            if term.startswith(operator, position):
                return term[:position], operator, term[position + len(operator) :]
    raise FieldSelectorError(f"invalid selector: '{text}'; can't understand '{term}'")


def _unescape(value: str) -> str:
    characters = iter(value)
    read = []
    for character in characters:
        if character == "\\":
            escaped = next(characters, "")
            if not escaped or escaped not in _ESCAPABLE:
                raise FieldSelectorError(f"invalid field selector: invalid escape sequence: \\{escaped}")
            read.append(escaped)
        elif character in _ESCAPABLE:
            raise FieldSelectorError(f"invalid field selector: unescaped character in value: {ord(character)}")
        else:
            read.append(character)
    return "".join(read)
