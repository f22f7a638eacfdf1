"""Field selectors: `metadata.name=web-0,metadata.namespace!=test`.

metrics.k8s.io knows the two fields that every kind of Kubernetes' has. The errors are the API server's.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from kube.fields import quote

__all__ = ["FieldSelector", "FieldSelectorError"]

_TERM = re.compile(r"\s*([^=!]*?)\s*(==|!=|=)\s*(.*?)\s*")
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
        for part in filter(None, text.split(",")):
            found = _TERM.fullmatch(part)
            if found is None:
                raise FieldSelectorError(f"invalid selector: '{text}'; can't understand '{part}'")
            field, operator, value = found.groups()
            if field not in (_NAME, _NAMESPACE):
                raise FieldSelectorError(
                    f"{quote(field)} is not a known field selector: only {quote(_NAME)}, {quote(_NAMESPACE)}"
                )
            terms.append((field, operator != "!=", value))
        return cls(tuple(terms))

    def exact_name(self) -> str | None:
        """The only name that it can match; None where it asks for none."""
        return next((value for field, equal, value in self.terms if field == _NAME and equal), None)

    def matches(self, *, name: str, namespace: str) -> bool:
        """Tell whether an object fulfils it; the namespace of one at the root is ""."""
        return all(((name if field == _NAME else namespace) == value) == equal for field, equal, value in self.terms)
