"""The past of what a request gets, by range queries of the rule's own query: one value at each time, the sum.

The names of a workload's pods change, so a query for pods is one for all names that the same workloads give. Prometheus
sums, and marks the series whose labels match, so that a response is short.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from adapter.catalog.inventory import CustomSource
from adapter.forecasts.registry import HistoryError
from adapter.planning.metric_queries import (
    ExternalQuery,
    MetricQuery,
    QueryError,
    SelectorNotSupported,
    custom_query,
)
from adapter.prometheus import (
    PrometheusAccessError,
    PrometheusError,
    PrometheusPartialResponse,
    PrometheusQueryError,
    PrometheusServers,
    PrometheusTimeout,
    RangeSeries,
)
from adapter.promql import alternation, as_vector, label_text
from adapter.rules import AnyRule, Policy, QueryRule, Rule
from kube.aio.fairness import for_namespace
from kube.values.fields import quote
from kube.values.selectors import EVERYTHING, LabelSelector

STEP_SECONDS: Final = 60
RANDOM_SUFFIX: Final = "-[bcdfghjklmnpqrstvwxz2456789]{5}"
"""Upstream: names.SimpleNameGenerator, with the alphabet of rand.String."""
HASH_SUFFIX: Final = "-[456789bcdf]{6,10}"
"""The decimal digits of a 32-bit hash in that alphabet. Upstream: rand.SafeEncodeString. One of 40,000 hashes has fewer
than six digits; the name of another workload that goes on so, as `web-db` does after `web`, mostly has."""
_SUFFIXES: Final = (f"{HASH_SUFFIX}{RANDOM_SUFFIX}", "-[0-9]+", RANDOM_SUFFIX)
_MAX_WORKLOADS: Final = 8
_CHUNK_POINTS: Final = 1440
"""A day. Servers allow 11,000 points, but limit the samples that are read, too."""
_LEAST_POINTS: Final = 90


@dataclass(frozen=True, slots=True)
class HistoryQuery:
    """PromQL, and which series of its result count: those with these labels that the selector matches."""

    text: str
    labels: tuple[tuple[str, str], ...]
    selector: LabelSelector = EVERYTHING


async def read_history(
    prometheus: PrometheusServers, query: MetricQuery, start: int, end: int, *, of_pods: bool, seconds: float = 300.0
) -> list[tuple[float, float]]:
    """Return (time, value) at each minute from `start` to `end`, without those of holes.

    Args:
        prometheus: the servers.
        query: the request, whose namespace's slots for queries are used.
        start: seconds since the epoch, a multiple of 60.
        end: likewise.
        of_pods: the request is for all pods of workloads, whose names change.
        seconds: for all queries together, so that a slow history does not keep others waiting.

    Raises:
        HistoryError: the rule makes no query whose past is that of the request, or Prometheus fails.
    """
    try:
        async with asyncio.timeout(seconds):
            return await _read(prometheus, query, start, end, of_pods=of_pods)
    except TimeoutError as error:
        raise HistoryError(f"reading it takes longer than {seconds:g} s") from error


async def _read(
    prometheus: PrometheusServers, request: MetricQuery, start: int, end: int, *, of_pods: bool
) -> list[tuple[float, float]]:
    # Parsing a long query takes some milliseconds.
    query = await asyncio.to_thread(history_query, request, of_pods=of_pods)
    destination = request.source.rule.destination
    found: list[tuple[float, float]] = []
    points = _CHUNK_POINTS
    while start <= end:
        last = min(start + (points - 1) * STEP_SECONDS, end)
        try:
            with for_namespace(request.namespace):
                result = await prometheus.range(
                    query.text, start=start, end=last, step=STEP_SECONDS, destination=destination
                )
        except (PrometheusTimeout, PrometheusQueryError) as error:  # the range may be too much at once
            points //= 2
            if points < _LEAST_POINTS:
                raise HistoryError(str(error)) from error
            continue
        except PrometheusError as error:
            raise HistoryError(_message_of(error)) from error
        # Series by a label that clients choose can be many.
        found += await asyncio.to_thread(_summed, query, result)
        start = last + STEP_SECONDS
    return found


def namespace_of(query: MetricQuery) -> str:
    """Return the namespace whose values a request gets; "" if all have the same, or the object is in none."""
    source, rule = query.source, query.source.rule
    if isinstance(query, ExternalQuery) and not rule.namespace:
        has_label = not isinstance(rule, Rule) or bool(rule.resources.namespaced)
        return query.namespace if source.namespace_label and has_label else ""
    return query.namespace


def history_query(query: MetricQuery, *, of_pods: bool) -> HistoryQuery:
    """Return the query for the history of a request. Long queries take some milliseconds to parse.

    Raises:
        HistoryError: see read_history.
    """
    source, rule, namespace = query.source, query.source.rule, query.namespace
    matches: list[tuple[str, str]] = []
    try:
        if isinstance(query, ExternalQuery):
            plan = query.plan()
            if plan.value_labels is not None:
                raise HistoryError("the metric is one value of several, whose history is not known")
            [text] = plan.queries
            matches = [(label, alternation([value])) for label, value in plan.labels]
        else:
            assert isinstance(source, CustomSource), "objects have custom metrics"
            pattern = pods_pattern(query.names) if of_pods else alternation(query.names)
            matches = object_labels(source, namespace, pattern)
            if isinstance(rule, QueryRule):
                text = rule.query
            else:
                assert isinstance(rule, Rule), "a schedule makes no custom metric"
                made = {"names": None, "pattern": pattern} if of_pods else {"names": query.names}
                text = custom_query(rule.query, source, namespace=namespace, selector=query.selector, **made)
    except (QueryError, SelectorNotSupported) as error:
        raise HistoryError(str(error)) from error
    return summed_query(as_vector(text), matches, rule, query.selector)


def summed_query(
    query: str, matches: Sequence[tuple[str, str]], rule: AnyRule, selector: LabelSelector, *, can_be_nan: bool = True
) -> HistoryQuery:
    """Return the query for the sum of the series that count, without samples that a rule leaves out or takes for 0."""
    marked, labels = marked_matches(query, matches)
    selector = selector if isinstance(rule, QueryRule) else EVERYTHING
    keys = dict.fromkeys([*(label for label, _ in labels), *(one.key for one in selector.requirements)])
    by = f"by ({', '.join(map(label_text, keys))})"
    if Policy.ERROR in (rule.nan, rule.inf):
        return HistoryQuery(f"sum {by} ({marked})", labels, selector)
    text = f"sum {by} ({marked} > -Inf < +Inf)"
    if can_be_nan and rule.nan is not Policy.MISSING:
        text += f" or 0 * count {by} ({marked})"  # all are NaN
    return HistoryQuery(text, labels, selector)


def _message_of(error: PrometheusError) -> str:
    """Return why there is no history, for the authors of rules: why credentials are refused is for operators."""
    if isinstance(error, PrometheusAccessError):
        return "Prometheus refuses the adapter's credentials"
    return "Prometheus' response is partial" if isinstance(error, PrometheusPartialResponse) else str(error)


def pods_pattern(names: Iterable[str]) -> str:
    """Return a regular expression of the names that the workloads of some pods give their pods.

    Raises:
        HistoryError: they are of too many workloads.
    """
    found: dict[str, None] = {}
    for name in names:
        suffix = next((one for one in _SUFFIXES if re.search(f".{one}$", name)), "")
        found[alternation([re.sub(f"{suffix}$", "", name) if suffix else name]) + suffix] = None
    if len(found) > _MAX_WORKLOADS:
        raise HistoryError(f"the selector matches pods of {len(found)} workloads, and can match {_MAX_WORKLOADS}")
    return "|".join(found)


def object_labels(source: CustomSource, namespace: str, pattern: str) -> list[tuple[str, str]]:
    """Return labels of a metric's objects, each with a regular expression; see rule_queries.by_name."""
    labels = [(source.resource_label, pattern)]
    if namespace and source.namespace_label:
        labels.append((source.namespace_label, f"({alternation([namespace])})?"))  # a series may have none
    return labels


def marked_matches(query: str, matches: Sequence[tuple[str, str]]) -> tuple[str, tuple[tuple[str, str], ...]]:
    """Return a query that marks the series whose labels match, and the labels that mark them."""
    text = f"({query}\n)"  # the query may end with a comment
    marks = []
    for number, (label, pattern) in enumerate(matches):
        text = f'label_replace({text}, "match_{number}", "1", {quote(label)}, {quote(pattern)})'
        marks.append((f"match_{number}", "1"))
    return text, tuple(marks)


def _summed(query: HistoryQuery, result: Iterable[RangeSeries]) -> list[tuple[float, float]]:
    """Return the sum of the series that count, at each time."""
    sums: dict[float, float] = {}
    for series in result:
        labels = series.labels
        if all(labels.get(label) == value for label, value in query.labels) and query.selector.matches(labels):
            for time, value in series.points:
                sums[time] = sums.get(time, 0.0) + value
    return [(time, value) for time, value in sums.items() if math.isfinite(value)]
