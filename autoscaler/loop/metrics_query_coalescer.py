"""Concurrent queries to the metrics APIs, coalesced into fewer requests.

HPAs with the same query, such as one for an External metric, share one request. Queries that differ only in one value
of their pod selectors, `app=a` and `app=b`, become one request for `app in (a,b)`, and each HPA gets its own pods of
the response. Each gets exactly what its own query would return. If that is not certain, the HPA's own query is sent:

    the coalesced query fails                      the error's text is about other pods
    none of an HPA's pods is in the response       the server decides whether no value is an error
    the response has pods that were not selected   a new pod whose labels are not known yet, or the server ignores
                                                   selectors

After a failed attempt the query is not coalesced for a while. "Concurrent" means within one pass of the event loop:
nothing waits for more queries.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from cachetools import TTLCache

from autoscaler.core.observation import MetricResponse, PodsResponse, ResourceResponse
from autoscaler.loop.pod_owners import PodIndex, restrict_to_pods
from autoscaler.settings import DEFAULTS, CoalescingSettings
from kube.cache.label_index import requires_value
from kube.values.selectors import LabelSelector, Operator, Requirement

_Fetch: TypeAlias = "Callable[[LabelSelector], Awaitable[MetricResponse]]"
_Waiters: TypeAlias = "list[tuple[LabelSelector, asyncio.Future[MetricResponse | None]]]"

_MAX_CACHED: Final = 10_000
"""Bounds memory, since namespaces and metrics come and go."""


@dataclass(frozen=True, slots=True)
class MetricsQuery:
    """A query without its pod selector. Equal queries can be coalesced."""

    namespace: str
    path: str
    """API, metric and described object."""
    metric_selector: str = ""


class MetricsQueryCoalescer:
    """Merges concurrent metric queries that differ only in pod selector into one request.

    Args:
        pods: the pods of the cluster, to split responses; None: only equal queries are coalesced.
        settings: see CoalescingSettings.
        clock: the current time in seconds; only differences matter.
    """

    def __init__(
        self,
        pods: PodIndex | None,
        *,
        settings: CoalescingSettings = DEFAULTS.coalescing,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._pods = pods
        self._waiters: dict[MetricsQuery, _Waiters] = {}
        self._not_merged: TTLCache[tuple[str, str], bool] = TTLCache(_MAX_CACHED, settings.backoff_seconds, timer=clock)

    async def fetch(self, query: MetricsQuery, selector: LabelSelector, fetch: _Fetch) -> MetricResponse:
        """Return the response to a query.

        Args:
            query: what is queried.
            selector: the pods.
            fetch: sends the request for a pod selector; returns errors, does not raise them.
        """
        waiters = self._waiters.get(query)
        if waiters is not None:
            future: asyncio.Future[MetricResponse | None] = asyncio.get_running_loop().create_future()
            waiters.append((selector, future))
            return await future or await fetch(selector)
        # The first caller sends the request for all callers in this pass of the event loop.
        waiters = self._waiters[query] = []
        responses: Mapping[LabelSelector, MetricResponse] = {}
        try:
            try:
                await asyncio.sleep(0)
            finally:
                del self._waiters[query]
            responses = await self._fetch_all(query, dict.fromkeys((selector, *(each for each, _ in waiters))), fetch)
        finally:
            # Also if this caller was cancelled: the others then send their own requests.
            for each, future in waiters:
                if not future.done():
                    future.set_result(responses.get(each))
        return responses.get(selector) or await fetch(selector)

    async def _fetch_all(
        self, query: MetricsQuery, selectors: Iterable[LabelSelector], fetch: _Fetch
    ) -> Mapping[LabelSelector, MetricResponse]:
        """Return the responses to coalesced requests; callers without one send their own."""
        distinct = tuple(selectors)
        if len(distinct) == 1:
            return {distinct[0]: await fetch(distinct[0])}
        if self._pods is None or (query.namespace, query.path) in self._not_merged:
            return {}
        groups = _groups(self._pods, query.namespace, distinct, self._settings)
        groups = [group for group in groups if len(group) >= self._settings.min_selectors]
        parts = await asyncio.gather(*(self._fetch_merged(query, group, fetch, self._pods) for group in groups))
        return {selector: response for part in parts for selector, response in part.items()}

    async def _fetch_merged(
        self, query: MetricsQuery, selectors: list[LabelSelector], fetch: _Fetch, pods: PodIndex
    ) -> dict[LabelSelector, MetricResponse]:
        """Send one request for several selectors; return the responses that are certain."""
        key = query.namespace, query.path
        merged = merge(selectors)
        response = await fetch(merged)
        known = {pod.name for pod in pods.matching(query.namespace, merged)}
        if not isinstance(response, ResourceResponse | PodsResponse) or not response.pods.keys() <= known:
            self._not_merged[key] = True
            return {}
        parts: dict[LabelSelector, MetricResponse] = {}
        for selector in selectors:
            part = restrict_to_pods(response, pods.matching(query.namespace, selector))
            if part.pods:
                parts[selector] = part
        if not parts:
            self._not_merged[key] = True
        return parts


def _groups(
    pods: PodIndex, namespace: str, selectors: Iterable[LabelSelector], settings: CoalescingSettings
) -> list[list[LabelSelector]]:
    """Group selectors that can be merged, with a limit for selectors and pods."""
    by_form: dict[tuple[object, ...], list[list[LabelSelector]]] = {}
    counts: dict[tuple[object, ...], int] = {}
    for selector in selectors:
        form = _form(selector)
        if form is None:
            continue
        groups = by_form.setdefault(form, [[]])
        more = len(pods.matching(namespace, selector))
        is_full = len(groups[-1]) == settings.max_selectors or counts.get(form, 0) + more > settings.max_pods
        if groups[-1] and is_full:
            groups.append([])
        counts[form] = more + (counts[form] if groups[-1] else 0)
        groups[-1].append(selector)
    return [group for groups in by_form.values() for group in groups]


def merge(selectors: Iterable[LabelSelector]) -> LabelSelector:
    """Return a selector for the union of what selectors of one form select. It may select more if two keys differ."""
    columns = zip(*(selector.requirements for selector in selectors), strict=True)
    return LabelSelector(tuple(map(_either, columns)))


def _either(requirements: tuple[Requirement, ...]) -> Requirement:
    first = requirements[0]
    if not requires_value(first):
        return first
    values = tuple(sorted({requirement.values[0] for requirement in requirements}))
    return Requirement(first.key, Operator.EQUALS if len(values) == 1 else Operator.IN, values)


def _form(selector: LabelSelector) -> tuple[object, ...] | None:
    """Return what selectors must have in common to be merged; None: this one cannot be merged."""
    if selector.nothing or not any(map(requires_value, selector.requirements)):
        return None
    return tuple(each.key if requires_value(each) else each for each in selector.requirements)
