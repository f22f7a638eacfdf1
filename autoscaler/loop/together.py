"""Questions to the metrics APIs that several HPAs ask in the same moment, asked once.

HPAs with the same question (an External or Object metric, say) get the same answer. HPAs that want the same metric of
different pods differ in their selectors, mostly in one value: `app=a` and `app=b` are asked as `app in (a,b)`, and of
the answer each HPA is given its own pods. What each gets is what its own question would have brought, and where that is
not certain its own question is asked after all:

    the common question fails           the words of the failure are about the wrong pods
    none of an HPA's pods is answered   "no value" may be an answer or an error, as the server likes
    the answer has a pod that was not   it is new, and nobody knows yet whose it is, or the server does not heed
    asked for                           selectors, and would answer each HPA with all pods

A server that cannot answer common questions is left alone with them for a while. "The same moment" is one pass of the
event loop: nobody waits for others to come.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from cachetools import TTLCache

from autoscaler.core.observation import (
    ExternalResponse,
    MetricError,
    MetricResponse,
    ObjectResponse,
    PodsResponse,
    ResourceResponse,
)
from autoscaler.loop.label_index import PodIndex
from autoscaler.loop.pod_owners import restrict_to_pods
from kube.selectors import LabelSelector, Operator, Requirement

_Fetch: TypeAlias = "Callable[[LabelSelector], Awaitable[MetricResponse]]"
_Waiting: TypeAlias = "list[tuple[LabelSelector, asyncio.Future[MetricResponse | None]]]"

_WORTH: Final = 4
"""From so many HPAs on their selectors become one."""
_MOST_SELECTORS: Final = 50
_MOST_PODS: Final = 500
"""Servers put the pods' names into a query, of which many a proxy takes 8 KiB only."""
_REST_SECONDS: Final = 60.0
"""How long a server is not asked common questions after one that it could not answer."""
_MOST_RESTING: Final = 10_000
"""Namespaces come and go, and metrics; of more than so many the first are asked again early."""


@dataclass(frozen=True, slots=True)
class Topic:
    """What a question is about, the pods aside: only questions on the same topic can be asked together."""

    namespace: str
    path: str
    """Of the request, or as good as that: which API, which kind of metric, its name and what else it is about."""
    metric_selector: str = ""


class Together:
    """Asks.

    Args:
        pods: whose pods are whose; None: questions that differ are asked one by one.
        clock: the current time in seconds; only differences matter.
    """

    def __init__(self, pods: PodIndex | None, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._pods = pods
        self._waiting: dict[Topic, _Waiting] = {}
        self._resting: TTLCache[tuple[str, str], bool] = TTLCache(_MOST_RESTING, _REST_SECONDS, timer=clock)

    async def ask(self, topic: Topic, selector: LabelSelector, fetch: _Fetch) -> MetricResponse:
        """The answer to a question.

        Args:
            topic: what it is about.
            selector: of which pods.
            fetch: asks the server about the pods of a selector; it does not fail.
        """
        others = self._waiting.get(topic)
        if others is not None:
            future: asyncio.Future[MetricResponse | None] = asyncio.get_running_loop().create_future()
            others.append((selector, future))
            return await future or await fetch(selector)
        # The first who asks does so for all who come before the event loop is round.
        others = self._waiting[topic] = []
        answers: Mapping[LabelSelector, MetricResponse] = {}
        try:
            try:
                await asyncio.sleep(0)
            finally:
                del self._waiting[topic]
            answers = await self._answers(topic, dict.fromkeys((selector, *(each for each, _ in others))), fetch)
        finally:
            # Also if this one was cancelled: the others then ask for themselves.
            for each, future in others:
                if not future.done():
                    future.set_result(answers.get(each))
        return answers.get(selector) or await fetch(selector)

    async def _answers(
        self, topic: Topic, selectors: Iterable[LabelSelector], fetch: _Fetch
    ) -> Mapping[LabelSelector, MetricResponse]:
        """The answers that were got for all; who finds none has to ask."""
        distinct = tuple(selectors)
        if len(distinct) == 1:
            return {distinct[0]: await fetch(distinct[0])}
        if self._pods is None or (topic.namespace, topic.path) in self._resting:
            return {}
        groups = [group for group in self._groups(topic.namespace, distinct) if len(group) >= _WORTH]
        parts = await asyncio.gather(*(self._common(topic, group, fetch, self._pods) for group in groups))
        return {selector: answer for part in parts for selector, answer in part.items()}

    def _groups(self, namespace: str, selectors: Iterable[LabelSelector]) -> list[list[LabelSelector]]:
        """Selectors that can become one, not too many at once."""
        assert self._pods is not None
        by_form: dict[tuple[object, ...], list[list[LabelSelector]]] = {}
        pods: dict[tuple[object, ...], int] = {}
        for selector in selectors:
            form = _form(selector)
            if form is None:
                continue
            groups = by_form.setdefault(form, [[]])
            more = len(self._pods.matching(namespace, selector))
            if groups[-1] and (len(groups[-1]) == _MOST_SELECTORS or pods[form] + more > _MOST_PODS):
                groups.append([])
            pods[form] = more + (pods[form] if groups[-1] else 0)
            groups[-1].append(selector)
        return [group for groups in by_form.values() for group in groups]

    async def _common(
        self, topic: Topic, selectors: list[LabelSelector], fetch: _Fetch, pods: PodIndex
    ) -> dict[LabelSelector, MetricResponse]:
        """Ask one question for several; the answers of those for whom it is certain."""
        selected = union(selectors)
        answer = await fetch(selected)
        names = _names(answer)
        if names is None:
            self._rest(topic)
            return {}
        if not {pod.name for pod in pods.matching(topic.namespace, selected)}.issuperset(names):
            if all(pods.knows(topic.namespace, name) for name in names):
                self._rest(topic)
            return {}
        parts: dict[LabelSelector, MetricResponse] = {}
        for selector in selectors:
            part = restrict_to_pods(answer, pods.matching(topic.namespace, selector))
            if part is not None and _names(part):
                parts[selector] = part
        if not parts:
            self._rest(topic)
        return parts

    def _rest(self, topic: Topic) -> None:
        self._resting[topic.namespace, topic.path] = True


def union(selectors: Iterable[LabelSelector]) -> LabelSelector:
    """A selector of all that some selectors of the same form select; it may select more, where they differ twice."""
    columns = zip(*(selector.requirements for selector in selectors), strict=True)
    return LabelSelector(tuple(map(_either, columns)))


def _either(requirements: tuple[Requirement, ...]) -> Requirement:
    first = requirements[0]
    if not _demands_value(first):
        return first
    values = tuple(sorted({requirement.values[0] for requirement in requirements}))
    return Requirement(first.key, Operator.EQUALS if len(values) == 1 else Operator.IN, values)


def _form(selector: LabelSelector) -> tuple[object, ...] | None:
    """What selectors must have in common to become one; None: this one is for itself."""
    if selector.nothing or not any(map(_demands_value, selector.requirements)):
        return None
    return tuple(each.key if _demands_value(each) else each for each in selector.requirements)


def _demands_value(requirement: Requirement) -> bool:
    equals = requirement.operator in (Operator.EQUALS, Operator.DOUBLE_EQUALS)
    return equals or (requirement.operator is Operator.IN and len(requirement.values) == 1)


def _names(answer: MetricResponse) -> tuple[str, ...] | None:
    """The pods in an answer; None if it is a failure."""
    match answer:
        case PodsResponse(samples):
            return tuple(samples)
        case ResourceResponse(usages):
            return tuple(each.name for each in usages)
        case MetricError() | ObjectResponse() | ExternalResponse():
            return None
