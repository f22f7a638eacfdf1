"""Field selectors: `metadata.name=web-0,metadata.namespace!=test`.

metrics.k8s.io knows the two fields that every kind of Kubernetes' has. The errors are the API server's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kube.fields import quote

_OPERATORS = ("!=", "==", "=")
_ESCAPABLE = "\\,="
_NAME, _NAMESPACE = "metadata.name", "metadata.namespace"


class FieldSelectorError(ValueError):
    """A text is no field selector, or names a field that cannot be selected; the message is Kubernetes'."""


@dataclass(frozen=True, slots=True)
class FieldSelector:
    """A conjunction; without terms it selects everything. A term is the field, whether it must be equal, the value."""

    terms: tuple[tuple[str, bool, str], ...] = ()

    @classmethod
    def parse(cls, text: str) -> FieldSelector:
        """Read a selector's text.

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
        """The only name that it can match; None where it asks for none."""
        return next((value for field, equal, value in self.terms if field == _NAME and equal), None)

    def matches(self, *, name: str, namespace: str) -> bool:
        """Tell whether an object fulfils it; the namespace of one at the root is ""."""
        return all(((name if field == _NAME else namespace) == value) == equal for field, equal, value in self.terms)


def _terms(text: str) -> Iterator[str]:
    """What is between the commas, of which those after a backslash are part of a value; nothing that is empty."""
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
    """Field, operator and value of a term of a selector; spaces belong to the field and the value."""
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
