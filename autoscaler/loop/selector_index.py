"""Indexes of pods by selector and of selectors by pod, which avoid a scan of all of them.

Every reconciliation needs both. Nearly every selector requires some label to equal a value, its anchor: pods are
indexed by their labels (`kube.label_index`) and selectors by their anchor, so only entries with the same pair are
compared.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from autoscaler.core.model import HPAKey
from autoscaler.core.observation import Pod
from kube.label_index import NO_ANCHOR, LabelIndex, Pair, anchor, discard, pairs
from kube.selectors import LabelSelector

PodIndex: TypeAlias = LabelIndex[Pod]
"""The pods of a cluster by their labels."""


@dataclass(frozen=True, slots=True)
class _Entry:
    selector: LabelSelector
    target: str


class SelectorIndex:
    """The selectors of the HPAs' targets, to find ambiguous selectors: HPAs that select the same pods."""

    def __init__(self) -> None:
        self._entries: dict[HPAKey, _Entry] = {}
        # Selectors without an anchor are under their namespace and NO_ANCHOR, which is no label.
        self._by_anchor: dict[Pair, dict[HPAKey, _Entry]] = {}

    def put(self, key: HPAKey, selector: LabelSelector, *, target: str) -> None:
        """Set the selector of an HPA's target, which is named KIND/NAMESPACE/NAME."""
        entry = _Entry(selector, target)
        if self._entries.get(key) == entry:
            return
        self.drop(key)
        self._entries[key] = entry
        self._by_anchor.setdefault((key.namespace, *anchor(selector)), {})[key] = entry

    def drop(self, key: HPAKey) -> None:
        """Remove an HPA."""
        entry = self._entries.pop(key, None)
        if entry is not None:
            discard(self._by_anchor, (key.namespace, *anchor(entry.selector)), key)

    def clear(self) -> None:
        """Remove all HPAs."""
        self._entries.clear()
        self._by_anchor.clear()

    def others(self, key: HPAKey, pods: Iterable[Pod], *, target: str | None = None) -> dict[str, LabelSelector]:
        """Return {key as text: selector} of other HPAs that may select one of these pods of the key's namespace.

        With `target`, only HPAs that scale this target.
        """
        anchors = {(key.namespace, *NO_ANCHOR)}.union(*(pairs(key.namespace, pod) for pod in pods))
        return {
            str(other): entry.selector
            for one in anchors
            for other, entry in self._by_anchor.get(one, {}).items()
            if other != key and target in (None, entry.target)
        }
