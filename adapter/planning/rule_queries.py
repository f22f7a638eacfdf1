"""Asking Prometheus on behalf of a rule, and saying what went wrong in the words of the metrics APIs.

Clients learn which rule is affected and nothing of Prometheus itself. The log learns what Prometheus said: once when a
rule begins to fail, and once when it works again, not at every step of every autoscaler.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Sequence
from typing import Protocol

from adapter.catalog.rule_telemetry import RuleTelemetry
from adapter.catalog.values import to_milli
from adapter.planning.planner import Plan
from adapter.planning.sample_index import matching
from adapter.prometheus import (
    DEFAULT_DESTINATION,
    Destination,
    PrometheusBadAnswer,
    PrometheusBusy,
    PrometheusError,
    PrometheusQueryError,
    PrometheusResultError,
    PrometheusTimeout,
    Sample,
    Scalar,
    Vector,
)
from adapter.rules import AnyRule, Policy
from kube import status
from kube.deadlines import NO_DEADLINE, Deadline
from kube.status import StatusError
from kube.tasks import all_of

_log = logging.getLogger(__name__)

_SHOWN_QUERY = 500
# What is said of a rule can have the request's words in it, so this many remarks of this length are said and kept.
_MAX_REMARKS = 8
_SHOWN_REMARK = 500
# How many parts of one divided query are asked at a time.
_AT_ONCE = 4


class InstantQueries(Protocol):
    """Where queries are evaluated; see PrometheusServers.instant."""

    async def instant(
        self, query: str, *, deadline: Deadline = NO_DEADLINE, destination: Destination = DEFAULT_DESTINATION
    ) -> Vector | Scalar:
        """Evaluate a query now."""


class RuleQueries:
    """Evaluates the rules' queries."""

    def __init__(self, prometheus: InstantQueries, *, telemetry: RuleTelemetry) -> None:
        """`telemetry` counts queries that fail, and samples that no Quantity can hold."""
        self._prometheus = prometheus
        self._telemetry = telemetry
        self._failing: set[str] = set()
        self._said: dict[str, set[str]] = {}

    async def carry_out(self, rule: AnyRule, plan: Plan, *, deadline: Deadline) -> Vector | Scalar | None:
        """Evaluate the queries of a plan, and take what counts of the result; None when it has no single values.

        Raises:
            StatusError: as for `ask`.
        """
        if plan.too_long:
            self.say_once(
                rule,
                "the query for this many objects is longer than the server is said to take, and of a form that cannot"
                " be divided; aggregate it with by (<<.GroupBy>>)",
            )
        if len(plan.queries) == 1:
            result = await self.ask(rule, plan.queries[0], deadline=deadline)
        else:
            results = await self._ask_all(rule, plan.queries, deadline=deadline)
            vectors = [result for result in results if isinstance(result, Vector)]
            samples = tuple(sample for vector in vectors for sample in vector.samples)
            result = Vector(samples, seconds=sum(vector.seconds for vector in vectors))
        if not plan.filters:
            return result
        if isinstance(result, Vector):
            return await matching(result, plan.labels, plan.selector)
        return Vector(()) if plan.labels or not plan.selector.matches({}) else result

    async def ask(self, rule: AnyRule, query: str, *, deadline: Deadline) -> Vector | Scalar | None:
        """Evaluate a query of a rule; None when its result has no single values.

        Args:
            rule: whose query it is.
            query: PromQL.
            deadline: when the result is due.

        Raises:
            StatusError: 503 or 504 when Prometheus is away or slow, 500 when the query is wrong, 429 when too many
                queries of the namespace wait.
        """
        try:
            result = await self._prometheus.instant(query, deadline=deadline, destination=rule.destination)
        except PrometheusBusy as error:
            raise _status(rule, error) from error  # which is not the rule's fault
        except PrometheusResultError as error:
            self._failed(rule, query, error)
            return None
        except PrometheusError as error:
            self._failed(rule, query, error)
            raise _status(rule, error) from error
        if rule.key in self._failing:
            self._failing.discard(rule.key)
            _log.info("%s: the query works again", rule)
        return result

    async def _ask_all(
        self, rule: AnyRule, queries: tuple[str, ...], *, deadline: Deadline
    ) -> list[Vector | Scalar | None]:
        """Evaluate several queries, a few at a time; the first that fails ends the others."""
        free = asyncio.Semaphore(_AT_ONCE)

        async def one(query: str) -> Vector | Scalar | None:
            async with free:
                return await self.ask(rule, query, deadline=deadline)

        return await all_of(one(query) for query in queries)

    def milli(self, rule: AnyRule, sample: Sample | Scalar) -> int | None:
        """A sample's value in thousandths, by the rule's policy; None, counted and logged once, where it has none.

        Raises:
            StatusError: 503 when the rule makes such a value an error.
        """
        milli = to_milli(sample.value)
        if milli:
            return milli
        unusual = math.isnan(sample.value)
        if milli is not None and not unusual:
            return milli
        match rule.values.nan if unusual else rule.values.inf:
            case Policy.ZERO:
                return 0
            case Policy.ERROR:
                what = "not a number" if unusual else "infinite or too large"
                raise status.service_unavailable(f"a value is {what}, which {rule} makes an error")
        self._telemetry.left_out(rule.key)
        what = "that is not a number" if unusual else "that is infinite or too large for a quantity"
        self.say_once(rule, f"left out a sample {what}")
        return None

    def handed_out(self, group: str, ages: Sequence[float]) -> None:
        """Note the ages of values that go out, in seconds."""
        self._telemetry.handed_out(group, ages)

    def say_once(self, rule: AnyRule, remark: str) -> None:
        """Warn of something that a rule's answers have, once for this rule, and of a few things for each."""
        said = self._said.setdefault(rule.key, set())
        shown = remark[:_SHOWN_REMARK]
        if shown not in said and len(said) < _MAX_REMARKS:
            said.add(shown)
            _log.warning("%s: %s", rule, shown)

    def _failed(self, rule: AnyRule, query: str, error: PrometheusError) -> None:
        level = logging.DEBUG if rule.key in self._failing else logging.WARNING
        self._failing.add(rule.key)
        self._telemetry.query_failed(rule.key)
        _log.log(level, "%s: %s (the query was %s)", rule, error, query[:_SHOWN_QUERY])


def _status(rule: AnyRule, error: PrometheusError) -> StatusError:
    match error:
        case PrometheusBusy():
            message = "Too many queries for this namespace are waiting, please try again later."
            return status.too_many_requests(message, retry_after=1)
        case PrometheusTimeout():
            return status.timeout(f"Timeout: Prometheus did not answer in time for {rule}")
        case PrometheusQueryError():
            return status.internal_error("unable to fetch metrics")
        case PrometheusBadAnswer():
            return status.service_unavailable(f"Prometheus gave an unusable answer for {rule}")
        case _:
            return status.service_unavailable(f"Prometheus is not available for {rule}")
