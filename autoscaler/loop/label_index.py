"""Finding by labels without looking at everything: pods by selector, and selectors by pod.

Both directions come up at every step of every HPA. Nearly every selector demands that some label equals a value; such a
pair is the selector's anchor (kube.label_index). Objects are indexed by their (key, value) pairs and selectors by their
anchor, so only what shares the pair is looked at, also where thousands of pods and HPAs share a namespace.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

from autoscaler.core.model import HPAKey
from autoscaler.core.observation import Pod
from kube.label_index import NO_ANCHOR, LabelIndex, Pair, anchor, pairs
from kube.selectors import LabelSelector

_A = TypeVar("_A")
_B = TypeVar("_B")
_C = TypeVar("_C")


class PodIndex(LabelIndex["Pod"]):
    """The pods of a cluster by their labels; fed by a store's `on_change`."""


@dataclass(frozen=True, slots=True)
class _Claim:
    selector: LabelSelector
    target: str


class SelectorIndex:
    """The selectors of the HPAs' targets, to find HPAs that fight over a pod."""

    def __init__(self) -> None:
        self._claims: dict[HPAKey, _Claim] = {}
        # Those without an anchor are under their namespace and two empty texts, which are no label.
        self._by_anchor: dict[Pair, dict[HPAKey, _Claim]] = {}

    def put(self, key: HPAKey, selector: LabelSelector, *, target: str) -> None:
        """An HPA's target, named KIND/NAMESPACE/NAME, has this selector now."""
        claim = _Claim(selector, target)
        if self._claims.get(key) == claim:
            return
        self.drop(key)
        self._claims[key] = claim
        self._by_anchor.setdefault((key.namespace, *anchor(selector)), {})[key] = claim

    def drop(self, key: HPAKey) -> None:
        """An HPA is gone."""
        claim = self._claims.pop(key, None)
        if claim is not None:
            _remove(self._by_anchor, (key.namespace, *anchor(claim.selector)), key)

    def clear(self) -> None:
        """Begin anew."""
        self._claims.clear()
        self._by_anchor.clear()

    def others(self, key: HPAKey, pods: Iterable[Pod], *, target: str | None = None) -> dict[str, LabelSelector]:
        """{key as text: selector} of the other HPAs that may select one of these pods of the key's namespace.

        With `target` only of those that have this target.
        """
        anchors = {(key.namespace, *NO_ANCHOR)}.union(*(pairs(key.namespace, pod) for pod in pods))
        return {
            str(other): claim.selector
            for one in anchors
            for other, claim in self._by_anchor.get(one, {}).items()
            if other != key and target in (None, claim.target)
        }


def _remove(index: dict[_A, dict[_B, _C]], outer: _A, inner: _B) -> None:
    """Take an entry out of an index, and leave no empty part behind."""
    part = index.get(outer, {})
    part.pop(inner, None)
    if not part:
        index.pop(outer, None)
