"""Indexes of objects by selector and of selectors by object, which avoid a scan of a namespace.

Nearly every selector requires that some label equals a value; that pair is the selector's anchor. Objects are indexed
by their (key, value) pairs and selectors by their anchor, so only those with the same pair are compared. An object with
more than 64 labels is compared with each selector instead, because its pairs would take too much memory.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
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


class Namespaced(Hashable, Protocol):
    """The key of an object with a namespace."""

    @property
    def namespace(self) -> str:
        """The namespace."""


T = TypeVar("T", bound=Labelled)
K = TypeVar("K", bound=Namespaced)
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


@dataclass(frozen=True, slots=True)
class _Entry:
    selector: LabelSelector
    target: str


class SelectorIndex(Generic[K]):
    """The selectors of objects, to find those that select the same. Upstream: selectors.BiMultimap."""

    def __init__(self) -> None:
        self._entries: dict[K, _Entry] = {}
        # Selectors without an anchor are stored under their namespace and NO_ANCHOR, which is not a valid label.
        self._by_anchor: dict[Pair, dict[K, _Entry]] = {}

    def put(self, key: K, selector: LabelSelector, *, target: str) -> None:
        """Set the selector of a key; `target` names the object that the selector was read from."""
        entry = _Entry(selector, target)
        if self._entries.get(key) == entry:
            return
        self.drop(key)
        self._entries[key] = entry
        self._by_anchor.setdefault((key.namespace, *anchor(selector)), {})[key] = entry

    def drop(self, key: K) -> None:
        """Remove the selector of a key."""
        entry = self._entries.pop(key, None)
        if entry is not None:
            discard(self._by_anchor, (key.namespace, *anchor(entry.selector)), key)

    def clear(self) -> None:
        """Remove all selectors."""
        self._entries.clear()
        self._by_anchor.clear()

    def matching(self, namespace: str, labelled: Labelled) -> list[K]:
        """Return the keys of a namespace whose selectors select an object."""
        anchors = pairs(namespace, labelled) | {(namespace, *NO_ANCHOR)}
        found = [item for one in anchors for item in self._by_anchor.get(one, {}).items()]
        return [key for key, entry in found if entry.selector.matches(labelled.labels)]

    def others(self, key: K, objects: Iterable[Labelled], *, target: str | None = None) -> dict[str, LabelSelector]:
        """Return {key as text: selector} of other keys that may select one of these objects of the key's namespace.

        With `target`, only selectors of this target.
        """
        anchors = {(key.namespace, *NO_ANCHOR)}.union(*(pairs(key.namespace, each) for each in objects))
        return {
            str(other): entry.selector
            for one in anchors
            for other, entry in self._by_anchor.get(one, {}).items()
            if other != key and target in (None, entry.target)
        }


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
