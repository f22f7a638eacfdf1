"""Finding by labels without looking at everything: pods by selector, and selectors by pod.

Both directions come up at every step of every HPA. Nearly every selector demands that some label equals a value; such a
pair is the selector's anchor. Objects are indexed by their (key, value) pairs and selectors by their anchor, so only
what shares the pair is looked at, also where thousands of pods and HPAs share a namespace.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from kube.selectors import Operator

if TYPE_CHECKING:
    from collections.abc import Iterable

    from autoscaler.model import HPAKey, Pod
    from kube.selectors import LabelSelector
    from kube.store import Key

__all__ = ["PodIndex", "SelectorIndex"]

_Pair: TypeAlias = tuple[str, str, str]
"""Namespace, label key, label value."""

_NO_ANCHOR = ("", "")

_A = TypeVar("_A")
_B = TypeVar("_B")
_C = TypeVar("_C")


class PodIndex:
    """The pods of a cluster by their labels; fed by a store's `on_change`."""

    def __init__(self) -> None:
        self._by_namespace: dict[str, dict[str, Pod]] = {}
        self._by_pair: dict[_Pair, dict[str, Pod]] = {}

    def apply(self, key: Key, old: Pod | None, new: Pod | None) -> None:
        """Take a change of one pod into account: `old` is what was told before, None if it is new; likewise `new`."""
        namespace, name = key
        if new is None:
            _remove(self._by_namespace, namespace, name)
        else:
            self._by_namespace.setdefault(namespace, {})[name] = new
        before, after = _pairs(namespace, old), _pairs(namespace, new)
        for pair in before - after:
            _remove(self._by_pair, pair, name)
        if new is not None:
            for pair in after:
                self._by_pair.setdefault(pair, {})[name] = new

    def matching(self, namespace: str, selector: LabelSelector) -> tuple[Pod, ...]:
        """The pods of a namespace that a selector selects."""
        anchor = _anchor(selector)
        if anchor == _NO_ANCHOR:
            pods = self._by_namespace.get(namespace, {})
        else:
            pods = self._by_pair.get((namespace, *anchor), {})
        return tuple(pod for pod in pods.values() if selector.matches(pod.labels))


@dataclass(frozen=True, slots=True)
class _Claim:
    selector: LabelSelector
    target: str


class SelectorIndex:
    """The selectors of the HPAs' targets, to find HPAs that fight over a pod."""

    def __init__(self) -> None:
        self._claims: dict[HPAKey, _Claim] = {}
        # Those without an anchor are under their namespace and two empty texts, which are no label.
        self._by_anchor: dict[_Pair, dict[HPAKey, _Claim]] = {}

    def put(self, key: HPAKey, selector: LabelSelector, *, target: str) -> None:
        """An HPA's target, named KIND/NAMESPACE/NAME, has this selector now."""
        claim = _Claim(selector, target)
        if self._claims.get(key) == claim:
            return
        self.drop(key)
        self._claims[key] = claim
        self._by_anchor.setdefault((key.namespace, *_anchor(selector)), {})[key] = claim

    def drop(self, key: HPAKey) -> None:
        """An HPA is gone."""
        claim = self._claims.pop(key, None)
        if claim is not None:
            _remove(self._by_anchor, (key.namespace, *_anchor(claim.selector)), key)

    def clear(self) -> None:
        """Begin anew."""
        self._claims.clear()
        self._by_anchor.clear()

    def others(self, key: HPAKey, pods: Iterable[Pod], *, target: str | None = None) -> dict[str, LabelSelector]:
        """{key as text: selector} of the other HPAs that may select one of these pods of the key's namespace.

        With `target` only of those that have this target.
        """
        anchors = {(key.namespace, *_NO_ANCHOR)}.union(*(_pairs(key.namespace, pod) for pod in pods))
        return {
            str(other): claim.selector
            for anchor in anchors
            for other, claim in self._by_anchor.get(anchor, {}).items()
            if other != key and target in (None, claim.target)
        }


def _remove(index: dict[_A, dict[_B, _C]], outer: _A, inner: _B) -> None:
    """Take an entry out of an index, and leave no empty part behind."""
    part = index.get(outer, {})
    part.pop(inner, None)
    if not part:
        index.pop(outer, None)


def _pairs(namespace: str, pod: Pod | None) -> set[_Pair]:
    return set() if pod is None else {(namespace, key, value) for key, value in pod.labels.items()}


def _anchor(selector: LabelSelector) -> tuple[str, str]:
    """A (key, value) that everything selected has, if the selector demands one; else two empty texts."""
    for requirement in selector.requirements:
        equals = requirement.operator in (Operator.EQUALS, Operator.DOUBLE_EQUALS)
        if equals or (requirement.operator is Operator.IN and len(requirement.values) == 1):
            return requirement.key, requirement.values[0]
    return _NO_ANCHOR
