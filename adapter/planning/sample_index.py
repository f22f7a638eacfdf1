"""Finding the samples that one request wants among very many that are in memory.

A merged answer, or that of a short rule, can have a hundred thousand samples, of which each request wants a few. So a
answer that is kept is indexed by the labels that requests say the values of: the namespace's label, and those that
selectors equal. A merged answer for objects is indexed by their namespaces and names together. Where an answer is long,
making an index of it and looking at many samples one by one is done in threads, so that the loop goes on. An answer
that follows another one is indexed by what was asked of that one before anybody gets it, so nobody waits.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from adapter.prometheus import Sample, Vector
from adapter.turns import leaving_turns
from kube.selectors import LabelSelector, Operator

# Up to so many samples are looked at one by one, rather than indexed.
_SHORT = 16
# What takes looking at more of them than this, some 0.3 ms, is done in a thread.
_FEW = 500
# An index takes up to 150 bytes for each sample, so there are no more than these of one answer.
_MAX_LABELS = 4
_ONE_OF = (Operator.EQUALS, Operator.DOUBLE_EQUALS, Operator.IN)

_Made = TypeVar("_Made")
_Labels = tuple[tuple[str, str], ...]
# By value; the position itself where there is only one. A list for each of very many values would take ten times the
# memory, and have the garbage collector go through all of it.
_Positions = Mapping[str, int | list[int]]

ObjectLabels = tuple[str, str]
"""The labels with objects' namespaces and names; the former is "" for objects that are cluster-scoped."""
ObjectSamples = Mapping[str, Mapping[str, Sample | list[Sample]]]
"""Each object's sample by namespace and name, or all of its samples where it has several."""


class SampleIndex:
    """Some samples, by the values of the labels that are asked for. The samples found keep their order."""

    def __init__(self, samples: Sequence[Sample]) -> None:
        self._samples = samples
        self._by_label: dict[str, _Positions] = {}
        self._objects: dict[ObjectLabels, ObjectSamples] = {}
        self._asked: set[str] = set()
        # The labels that there are, once a client has thought of another.
        self._labels: frozenset[str] | None = None
        self._making = asyncio.Lock()

    async def matching(self, labels: _Labels, selector: LabelSelector) -> tuple[Sample, ...]:
        """The samples that have these labels, and that a selector matches."""
        found: Sequence[Sequence[int]] = (range(len(self._samples)),)
        for label, values in _exact(labels, selector):
            size = sum(map(len, found))
            if size <= _SHORT:
                break
            positions = await self._positions(label)
            if positions:
                self._asked.add(label)
            if positions is not None:
                having = [_several(positions[value]) for value in values if value in positions]
                found = having if sum(map(len, having)) < size else found
        wanted = functools.partial(_pick, self._samples, found, labels, selector)
        return await asyncio.to_thread(wanted) if sum(map(len, found)) > _FEW else wanted()

    @property
    def asked(self) -> tuple[str, ...]:
        """The labels that indexes were used of."""
        return tuple(self._asked)

    @property
    def object_labels(self) -> tuple[ObjectLabels, ...]:
        """The labels of the objects that it was indexed by."""
        return tuple(self._objects)

    async def prepare(self, labels: Iterable[str], objects: Iterable[ObjectLabels] = ()) -> None:
        """Make the indexes of some labels, and by some objects."""
        for label in labels:
            await self._positions(label)
        for object_labels in objects:
            await self.objects(object_labels)

    async def objects(self, labels: ObjectLabels) -> ObjectSamples:
        """The samples by object."""
        known = self._objects.get(labels)
        if known is not None:
            return known
        async with self._making:
            if labels not in self._objects:
                make = functools.partial(_by_object, self._samples, *labels)
                is_long = len(self._samples) > _FEW
                self._objects[labels] = await asyncio.to_thread(make) if is_long else make()
            return self._objects[labels]

    async def _positions(self, label: str) -> _Positions | None:
        """Where in the samples each value of a label is; None where there are indexes enough."""
        known = self._known(label)
        if known is not None:
            return known
        async with self._making:
            known = self._known(label)
            if known is not None:
                return known
            if len(self._by_label) >= _MAX_LABELS:
                return None
            made = await self._make(_by_value, label)
            if made:
                self._by_label[label] = made
            else:
                self._labels = await self._make(_labels)
            return made

    async def _make(self, make: Callable[..., _Made], *arguments: str) -> _Made:
        """What is made of all samples, in a thread where they are many."""
        if len(self._samples) <= _FEW:
            return make(self._samples, *arguments)
        return await asyncio.to_thread(make, self._samples, *arguments)

    def _known(self, label: str) -> _Positions | None:
        """What is known of a label already; one that no sample has takes no place of an index."""
        if self._labels is not None and label not in self._labels:
            return {}
        return self._by_label.get(label)


@dataclass(frozen=True, slots=True)
class IndexedVector(Vector):
    """A vector that many requests take their samples of."""

    index: SampleIndex = field(kw_only=True, compare=False, repr=False)


def asked_of(vector: object) -> tuple[str, ...]:
    """The labels that an answer was searched by, if it is one that is indexed."""
    return vector.index.asked if isinstance(vector, IndexedVector) else ()


def objects_of(vector: object) -> tuple[ObjectLabels, ...]:
    """The labels of the objects that an answer was indexed by, if it is one that is indexed."""
    return vector.index.object_labels if isinstance(vector, IndexedVector) else ()


async def indexed(vector: Vector, labels: Iterable[str] = (), objects: Iterable[ObjectLabels] = ()) -> Vector:
    """A vector as it is worth keeping: indexed where it is long or of objects, and for these labels at once."""
    wanted = tuple(objects)
    if len(vector.samples) <= _SHORT and not wanted:
        return vector
    index = SampleIndex(vector.samples)
    await index.prepare(labels, wanted)
    return IndexedVector(vector.samples, vector.memory, seconds=vector.seconds, index=index)


async def by_object(vector: Vector, labels: ObjectLabels) -> ObjectSamples:
    """The samples of a vector by the objects that they are of."""
    index = vector.index if isinstance(vector, IndexedVector) else SampleIndex(vector.samples)
    return await index.objects(labels)


async def matching(vector: Vector, labels: _Labels, selector: LabelSelector) -> Vector:
    """What of a vector counts.

    Args:
        vector: the samples.
        labels: what a sample's labels must be.
        selector: what must match them beside.
    """
    if isinstance(vector, IndexedVector):
        found = await vector.index.matching(labels, selector)
    elif len(vector.samples) > _FEW:
        found = await asyncio.to_thread(_filter, vector.samples, labels, selector)
    else:
        found = _filter(vector.samples, labels, selector)
    return Vector(found, seconds=vector.seconds)


def _by_object(samples: Iterable[Sample], namespace_label: str, name_label: str) -> ObjectSamples:
    found: dict[str, dict[str, Sample | list[Sample]]] = {}
    for sample in leaving_turns(samples):
        labels = sample.labels
        by_name = found.setdefault(labels.get(namespace_label, "") if namespace_label else "", {})
        name = labels.get(name_label, "")
        known = by_name.setdefault(name, sample)
        if isinstance(known, list):
            known.append(sample)
        elif known is not sample:
            by_name[name] = [known, sample]
    return found


def _several(positions: int | list[int]) -> Sequence[int]:
    return positions if isinstance(positions, list) else (positions,)


def _pick(
    samples: Sequence[Sample], found: Sequence[Sequence[int]], labels: _Labels, selector: LabelSelector
) -> tuple[Sample, ...]:
    """What counts of the samples at some positions, in their order."""
    positions = found[0] if len(found) == 1 else sorted(itertools.chain.from_iterable(found))
    return _filter((samples[position] for position in positions), labels, selector)


def _filter(samples: Iterable[Sample], labels: _Labels, selector: LabelSelector) -> tuple[Sample, ...]:
    return tuple(
        sample
        for sample in leaving_turns(samples)
        if all(sample.labels.get(label) == value for label, value in labels) and selector.matches(sample.labels)
    )


def _exact(labels: _Labels, selector: LabelSelector) -> Iterator[tuple[str, Sequence[str]]]:
    """The labels of which the values are said, with these."""
    for label, value in labels:
        yield label, (value,)
    for requirement in selector.requirements:
        if requirement.operator in _ONE_OF:
            yield requirement.key, requirement.values


def _labels(samples: Sequence[Sample]) -> frozenset[str]:
    found: set[str] = set()
    for sample in leaving_turns(samples):
        found.update(sample.labels)
    return frozenset(found)


def _by_value(samples: Sequence[Sample], label: str) -> _Positions:
    found: dict[str, int | list[int]] = {}
    for position, sample in enumerate(leaving_turns(samples)):
        value = sample.labels.get(label)
        if value is None:
            continue
        known = found.setdefault(value, position)
        if isinstance(known, list):
            known.append(position)
        elif known != position:
            found[value] = [known, position]
    return found
