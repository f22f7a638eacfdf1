"""An index of objects by their labels, which avoids a scan of a namespace.

Nearly every selector requires that some label equals a value; that pair is the selector's anchor. Objects are indexed
by their (key, value) pairs, so only those with the anchor are compared. An object with more than 64 labels is compared
with each selector instead, because its pairs would take too much memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, Protocol, TypeVar

from kube.cache.store import Key
from kube.values.selectors import LabelSelector, Operator, Requirement

_MAX_PAIRS = 64

Pair = tuple[str, str, str]
"""Namespace, label key, label value."""

NO_ANCHOR = ("", "")
"""The anchor of a selector that requires no value; not a valid label."""


class Labelled(Protocol):
    """An object with labels."""

    @property
    def labels(self) -> Mapping[str, str]:
        """The labels."""


T = TypeVar("T", bound=Labelled)
_A = TypeVar("_A")
_B = TypeVar("_B")
_C = TypeVar("_C")


class LabelIndex(Generic[T]):
    """The objects of one kind by namespace and labels, updated by a store's `on_change`."""

    def __init__(self) -> None:
        self._by_namespace: dict[str, dict[str, T]] = {}
        self._by_pair: dict[Pair, dict[str, T]] = {}

    def apply(self, key: Key, old: T | None, new: T | None) -> None:
        """Apply the change of one object; see `on_change` of kube.cache.store.Store."""
        namespace, name = key
        if new is None:
            discard(self._by_namespace, namespace, name)
        else:
            self._by_namespace.setdefault(namespace, {})[name] = new
        before, after = _indexed(namespace, old), _indexed(namespace, new)
        for pair in before - after:
            discard(self._by_pair, pair, name)
        if new is not None:
            for pair in after:
                self._by_pair.setdefault(pair, {})[name] = new

    def matching(self, namespace: str, selector: LabelSelector) -> tuple[T, ...]:
        """Return the objects of a namespace that a selector selects."""
        wanted = anchor(selector)
        others: Mapping[str, T] = {}
        if wanted == NO_ANCHOR:
            objects = self._by_namespace.get(namespace, {})
        else:
            objects = self._by_pair.get((namespace, *wanted), {})
            others = self._by_pair.get((namespace, *NO_ANCHOR), {})
        if not selector.nothing and len(selector.requirements) == (wanted != NO_ANCHOR):
            found = tuple(objects.values())  # the anchor is the only requirement
        else:
            found = tuple(one for one in objects.values() if selector.matches(one.labels))
        return (*found, *(one for one in others.values() if selector.matches(one.labels)))

    def knows(self, namespace: str, name: str) -> bool:
        """Return whether an object with this name exists."""
        return name in self._by_namespace.get(namespace, {})

    @property
    def namespaces(self) -> tuple[str, ...]:
        """The namespaces with objects."""
        return tuple(self._by_namespace)


def pairs(namespace: str, labelled: Labelled | None) -> set[Pair]:
    """Return the label pairs of an object; nothing for None."""
    return set() if labelled is None else {(namespace, key, value) for key, value in labelled.labels.items()}


def _indexed(namespace: str, labelled: Labelled | None) -> set[Pair]:
    """Return the pairs that an object is stored under; NO_ANCHOR if it has too many."""
    many = labelled is not None and len(labelled.labels) > _MAX_PAIRS
    return {(namespace, *NO_ANCHOR)} if many else pairs(namespace, labelled)


def anchor(selector: LabelSelector) -> tuple[str, str]:
    """Return a (key, value) that the selector requires of every object; NO_ANCHOR if there is none."""
    return next(((each.key, each.values[0]) for each in selector.requirements if requires_value(each)), NO_ANCHOR)


def requires_value(requirement: Requirement) -> bool:
    """Return True if the label must have a certain value."""
    equals = requirement.operator in (Operator.EQUALS, Operator.DOUBLE_EQUALS)
    return equals or (requirement.operator is Operator.IN and len(requirement.values) == 1)


def discard(index: dict[_A, dict[_B, _C]], outer: _A, inner: _B) -> None:
    """Remove an entry of a nested index, and an inner index that becomes empty."""
    part = index.get(outer, {})
    part.pop(inner, None)
    if not part:
        index.pop(outer, None)
