"""The pod selectors of HPAs, indexed by their anchors (kube.cache.label_index), which avoids a scan of a namespace."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from autoscaler.core.model import HPAKey
from kube.cache.label_index import NO_ANCHOR, Labelled, Pair, anchor, discard, pairs
from kube.values.selectors import LabelSelector


@dataclass(frozen=True, slots=True)
class _Entry:
    selector: LabelSelector
    target: str


class SelectorIndex:
    """The selectors of HPAs, to find those that select the same. Upstream: selectors.BiMultimap."""

    def __init__(self) -> None:
        self._entries: dict[HPAKey, _Entry] = {}
        # Selectors without an anchor are stored under their namespace and NO_ANCHOR, which is not a valid label.
        self._by_anchor: dict[Pair, dict[HPAKey, _Entry]] = {}

    def put(self, key: HPAKey, selector: LabelSelector, *, target: str) -> None:
        """Set the selector of a key; `target` names the object that the selector was read from."""
        entry = _Entry(selector, target)
        if self._entries.get(key) == entry:
            return
        self.drop(key)
        self._entries[key] = entry
        self._by_anchor.setdefault((key.namespace, *anchor(selector)), {})[key] = entry

    def drop(self, key: HPAKey) -> None:
        """Remove the selector of a key."""
        entry = self._entries.pop(key, None)
        if entry is not None:
            discard(self._by_anchor, (key.namespace, *anchor(entry.selector)), key)

    def clear(self) -> None:
        """Remove all selectors."""
        self._entries.clear()
        self._by_anchor.clear()

    def others(
        self, key: HPAKey, objects: Iterable[Labelled], *, target: str | None = None
    ) -> dict[str, LabelSelector]:
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
