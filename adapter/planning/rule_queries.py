"""Query Prometheus on behalf of rules, and turn failures into the errors of the metrics APIs.

Errors for clients name the rule but contain nothing from Prometheus. Prometheus' error is logged: once when a rule
begins to fail, and once when it works again.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from adapter.catalog.inventory import CustomSource
from adapter.content.values import to_milli
from adapter.planning.coalescer import MetricsQueryCoalescer
from adapter.planning.metric_queries import ExternalQuery, MetricQuery, ObjectsQuery, Plan, SelectorNotSupported
from adapter.planning.vectors import IndexedVector, InstantQueries, ObjectSamples, matching
from adapter.prometheus import (
    PrometheusBadResponse,
    PrometheusBusy,
    PrometheusError,
    PrometheusPartialResponse,
    PrometheusQueryError,
    PrometheusResultError,
    PrometheusSlow,
    PrometheusTimeout,
    Sample,
    Vector,
)
from adapter.promql import as_vector
from adapter.rules import AnyRule, Policy
from adapter.rules.schedule_spec import Activation
from adapter.telemetry import RuleTelemetry
from kube.aio.tasks import all_of
from kube.api import status
from kube.api.status import StatusError, bad_request

_T = TypeVar("_T")
_log = logging.getLogger(__name__)

_SHOWN_QUERY = 500
# Warnings can quote the request, so their number and length are limited for each rule.
_MAX_WARNINGS = 8
_SHOWN_WARNING = 500
# Rules in objects come and go; the state of deleted ones is dropped when there are this many.
_MAX_RULES = 20_000
# Queries of one plan in flight.
_CONCURRENCY = 4


_USUAL_STEP_SECONDS = 15.0
_FEWEST_STEPS = 4
_MOST_STEPS = 120


class RuleQueries:
    """Evaluates the rules' queries: from a coalesced result, or planned and executed for the request alone."""

    def __init__(
        self,
        prometheus: InstantQueries,
        *,
        telemetry: RuleTelemetry,
        coalescer: MetricsQueryCoalescer | None = None,
        logs: bool = True,
    ) -> None:
        """`telemetry` counts failed queries, and samples that no Quantity can hold; `logs`: log both, too."""
        self._prometheus = prometheus
        self._telemetry = telemetry
        self._coalescer = coalescer
        self._logs = logs
        self._failing: set[str] = set()
        self._warned: dict[str, set[str]] = {}

    async def evaluate(
        self,
        query: MetricQuery,
        deadline: float,
        *,
        coalesced: Callable[[IndexedVector], Awaitable[_T | None]],
        alone: Callable[[Vector | None], Awaitable[_T]],
    ) -> _T:
        """Evaluate the query of a request: from the cached coalesced result, or else planned and executed alone.

        Args:
            query: the query.
            deadline: of the request.
            coalesced: reads what the request needs from the coalesced result; returns None if it is not there.
            alone: reads it from the request's own result, None if that has no single values.

        Raises:
            QueryError: the rule can make no query for the request.
            StatusError: 400 for a selector that PromQL cannot express; others as for `query`.
        """
        vector = None if self._coalescer is None else await self._coalescer.cached(query, deadline)
        found = None if vector is None else await coalesced(vector)
        return await alone(await self.execute(query, deadline)) if found is None else found

    async def objects(self, query: ObjectsQuery, deadline: float) -> ObjectSamples | None:
        """Return the samples of objects by name, in the order of labels; None if the result is no vector.

        Raises:
            QueryError, StatusError: as for `evaluate`.
        """

        async def coalesced(vector: IndexedVector) -> ObjectSamples | None:
            return vector.index.objects(query.index, query.namespace)

        async def alone(result: Vector | None) -> ObjectSamples | None:
            return by_name(query.source, query.namespace, result)

        return await self.evaluate(query, deadline, coalesced=coalesced, alone=alone)

    async def execute(self, query: MetricQuery, deadline: float) -> Vector | None:
        """Plan a request, execute its queries, and return the samples, None if they have no single values.

        Raises:
            QueryError, StatusError: as for `evaluate`.
        """
        try:
            plan = query.plan()
        except SelectorNotSupported as error:
            raise bad_request(str(error)) from error
        result = await self._execute_plan(query.source.rule, plan, deadline)
        if result is not None and self._coalescer is not None:
            self._coalescer.sent_alone(query, result.seconds)
        return result

    async def recently_active(self, query: ExternalQuery, activation: Activation, deadline: float) -> Vector:
        """Return the samples that were at the threshold of the rule's activation, or above it, during its `for`.

        Raises:
            QueryError, StatusError: as for `evaluate`.
        """
        plan = query.plan()
        queries = tuple(recently_active_query(text, activation) for text in plan.queries)
        result = await self._execute_plan(query.source.rule, replace(plan, queries=queries), deadline)
        if result is None or result.is_scalar:
            raise self.failure(query.source.rule, "the query must make a vector")
        return result

    async def _execute_plan(self, rule: AnyRule, plan: Plan, deadline: float) -> Vector | None:
        if plan.too_long:
            self.warn_once(
                rule,
                "the query for this many objects is longer than maxQueryBytes, and its form does not allow to split it;"
                " aggregate it with by (<<.GroupBy>>)",
            )
        if len(plan.queries) == 1:
            result = await self.query(rule, plan.queries[0], deadline=deadline)
        else:
            results = await self._query_all(rule, plan.queries, deadline)
            vectors = [result for result in results if result is not None]
            samples = tuple(sample for vector in vectors for sample in vector.samples)
            result = Vector(samples, seconds=sum(vector.seconds for vector in vectors))
        if plan.value_labels is not None and result is not None:
            result = _only_value(result, plan.value_labels)
        return None if result is None else await matching(result, plan.labels, plan.selector)

    async def query(self, rule: AnyRule, query: str, *, deadline: float = math.inf) -> Vector | None:
        """Evaluate a query of a rule; None if its result has no single values.

        Raises:
            StatusError: 503 or 504 when Prometheus is unavailable or slow, 500 when the query is invalid, 429 when too
            many queries of the namespace wait.
        """
        try:
            result = await self._prometheus.instant(query, deadline=deadline, destination=rule.destination)
        except (PrometheusBusy, PrometheusSlow) as error:
            raise _status(rule, error) from error  # nothing was sent, or it may be another query's fault
        except PrometheusResultError as error:
            self._failed(rule, query, error)
            return None
        except PrometheusError as error:
            self._failed(rule, query, error)
            raise _status(rule, error) from error
        if rule.key in self._failing:
            self._failing.discard(rule.key)
            if self._logs:
                _log.info("%s: the query works again", rule)
        return result

    async def _query_all(self, rule: AnyRule, queries: tuple[str, ...], deadline: float) -> list[Vector | None]:
        """Evaluate several queries, a few at a time; the first failure cancels the others."""
        free = asyncio.Semaphore(_CONCURRENCY)

        async def one(query: str) -> Vector | None:
            async with free:
                return await self.query(rule, query, deadline=deadline)

        return await all_of(one(query) for query in queries)

    def milli(self, rule: AnyRule, value: float) -> int | None:
        """Convert a sample's value to milli-units by the rule's policy; None if it is left out (counted, logged once).

        Raises:
            StatusError: 503 if the rule's policy is `error`.
        """
        milli = to_milli(value)
        if milli:
            return milli
        nan = math.isnan(value)
        if milli is not None and not nan:
            return milli
        match (rule.nan or Policy.ZERO) if nan else rule.inf:
            case Policy.ZERO:
                return 0
            case Policy.ERROR:
                what = "not a number" if nan else "infinite or too large"
                raise status.service_unavailable(f"a value is {what}, which {rule} makes an error")
        self._telemetry.left_out[rule.key,] += 1
        what = "that is not a number" if nan else "that is infinite or too large for a quantity"
        self.warn_once(rule, f"left out a sample {what}")
        return None

    def observe_freshness(self, group: str, ages: Sequence[float]) -> None:
        """Observe the ages of the values in a response, in seconds."""
        self._telemetry.observe_freshness(group, ages)

    def failure(self, rule: AnyRule, problem: str) -> StatusError:
        """Return the error of a request whose rule is wrong, and log the problem once."""
        self.warn_once(rule, problem)
        return status.internal_error(f"unable to fetch metrics: {rule}: {problem}")

    def warn_once(self, rule: AnyRule, warning: str) -> None:
        """Log a warning once, and at most a few per rule."""
        if len(self._warned) > _MAX_RULES:
            self._warned.clear()
        warned = self._warned.setdefault(rule.key, set())
        shown = warning[:_SHOWN_WARNING]
        if self._logs and shown not in warned and len(warned) < _MAX_WARNINGS:
            warned.add(shown)
            _log.warning("%s: %s", rule, shown)

    def _failed(self, rule: AnyRule, query: str, error: PrometheusError) -> None:
        level = logging.DEBUG if rule.key in self._failing else logging.WARNING
        if len(self._failing) > _MAX_RULES:
            self._failing.clear()
        self._failing.add(rule.key)
        self._telemetry.query_errors[rule.key,] += 1
        if self._logs:
            _log.log(level, "%s: %s (the query was %s)", rule, error, query[:_SHOWN_QUERY])


def _only_value(result: Vector, labels: tuple[tuple[str, str], ...]) -> Vector:
    """Return a result's first value, with these labels instead of its own."""
    samples = tuple(Sample(dict(labels), one.timestamp, one.value) for one in result.samples[:1])
    return Vector(samples, seconds=result.seconds)


def by_name(source: CustomSource, namespace: str, result: Vector | None) -> ObjectSamples | None:
    """Return the samples of a namespace's objects by name; None if the result is no vector.

    A query that does not use <<.LabelMatchers>> finds the series of all namespaces. A sample without the namespace's
    label counts for the request's namespace. `namespace` is "" for cluster-scoped objects.
    """
    if result is None or result.is_scalar:
        return None
    samples: dict[str, Sample | list[Sample]] = {}
    for sample in result.samples:
        name = sample.labels.get(source.resource_label)
        if name is None or (namespace and sample.labels.get(source.namespace_label, namespace) != namespace):
            continue
        known = samples.setdefault(name, sample)
        if isinstance(known, list):
            known.append(sample)
        elif known is not sample:
            samples[name] = [known, sample]
    return samples


def _status(rule: AnyRule, error: PrometheusError) -> StatusError:
    match error:
        case PrometheusBusy():
            message = "Too many queries for this namespace are waiting, please try again later."
            return status.too_many_requests(message)  # a retry would hold a worker of kube-controller-manager
        case PrometheusSlow():
            return status.timeout(f"Timeout: Prometheus takes too long for {rule}: {error}")
        case PrometheusTimeout():
            return status.timeout(f"Timeout: Prometheus did not answer in time for {rule}")
        case PrometheusQueryError():
            why = f": {error}" if rule.namespace else ""  # the team's own query
            return status.internal_error(f"unable to fetch metrics: the query of {rule} is refused{why}")
        case PrometheusPartialResponse():
            return status.service_unavailable(f"Prometheus could read only a part of the series for {rule}")
        case PrometheusBadResponse():
            return status.service_unavailable(f"Prometheus sent an unusable response for {rule}")
        case _:
            return status.service_unavailable(f"Prometheus is not available for {rule}")


def recently_active_query(query: str, activation: Activation) -> str:
    """Return the query for the series that were at the threshold or above it during `for`, with their largest value.

    Prometheus evaluates the rule's query every 15 s, or for long times at 120 steps: a shorter peak may be missed.
    There is no state between requests, so all replicas agree, and a restart forgets nothing.
    """
    assert activation.for_ is not None, "without a time, only the present value counts"
    seconds = round(activation.for_)
    step = min(_USUAL_STEP_SECONDS, max(1.0, seconds / _FEWEST_STEPS))
    step = max(step, seconds / _MOST_STEPS)
    # The line break ends a comment.
    return f"max_over_time(({as_vector(query)}\n)[{seconds}s:{round(step)}s]) >= {_threshold(activation)}"


def activated_query(query: str, activation: Activation) -> str:
    """Return one query for the values that the adapter serves, for recorded load: 0 where a series is not active."""
    query = as_vector(query)
    active = f"({query}\n) >= {_threshold(activation)}"
    if activation.for_ is not None:
        active = f"clamp_min({query}\n, 0.001) and ({active} or {recently_active_query(query, activation)})"
    return f"({active}) or 0 * ({query}\n)"


def _threshold(activation: Activation) -> str:
    return f"{activation.threshold // 1000}.{activation.threshold % 1000:03}"
