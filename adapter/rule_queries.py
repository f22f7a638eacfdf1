"""Asking Prometheus on behalf of a rule, and saying what went wrong in the words of the metrics APIs.

Clients learn which rule is affected and nothing of Prometheus itself. The log learns what Prometheus said: once when a
rule begins to fail, and once when it works again, not at every step of every autoscaler.
"""

from __future__ import annotations

import logging
from typing import Protocol

from prometheus_client import CollectorRegistry, Counter

from adapter.prometheus import (
    PrometheusBadAnswer,
    PrometheusError,
    PrometheusQueryError,
    PrometheusResultError,
    PrometheusTimeout,
    Sample,
    Scalar,
    Vector,
)
from adapter.rules import Rule
from adapter.values import to_milli
from kube import status
from kube.status import StatusError

__all__ = ["InstantQueries", "RuleQueries"]

_log = logging.getLogger(__name__)

_SHOWN_QUERY = 500


class InstantQueries(Protocol):
    """Where queries are evaluated; see PrometheusClient.instant."""

    async def instant(self, query: str, *, timeout: float | None = None) -> Vector | Scalar:
        """Evaluate a query now."""


class RuleQueries:
    """Evaluates the rules' queries."""

    def __init__(self, prometheus: InstantQueries, *, registry: CollectorRegistry) -> None:
        """`registry` gets the counter of samples that no Quantity can hold."""
        self._prometheus = prometheus
        self._failing: set[str] = set()
        self._said: set[tuple[str, str]] = set()
        self._left_out = Counter(
            "milliscale_adapter_samples_left_out",
            "Samples that are infinite or too large for a quantity in milli-units, by rule.",
            ("rule",),
            registry=registry,
        )

    async def ask(self, rule: Rule, query: str, *, timeout: float | None) -> Vector | Scalar | None:
        """Evaluate a query of a rule; None when its result has no single values.

        Args:
            rule: whose query it is.
            query: PromQL.
            timeout: the seconds that are left, or None.

        Raises:
            StatusError: 503 or 504 when Prometheus is away or slow, 500 when the query is wrong.
        """
        try:
            result = await self._prometheus.instant(query, timeout=timeout)
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

    def milli(self, rule: Rule, sample: Sample | Scalar) -> int | None:
        """A sample's value in thousandths; None, counted and logged once, where it has none."""
        milli = to_milli(sample.value)
        if milli is None:
            self._left_out.labels(rule.key).inc()
            self.say_once(rule, "left out a sample that is infinite or too large for a quantity")
        return milli

    def say_once(self, rule: Rule, remark: str) -> None:
        """Warn of something that a rule's answers have, once for this rule."""
        if (rule.key, remark) not in self._said:
            self._said.add((rule.key, remark))
            _log.warning("%s: %s", rule, remark)

    def _failed(self, rule: Rule, query: str, error: PrometheusError) -> None:
        level = logging.DEBUG if rule.key in self._failing else logging.WARNING
        self._failing.add(rule.key)
        _log.log(level, "%s: %s (the query was %s)", rule, error, query[:_SHOWN_QUERY])


def _status(rule: Rule, error: PrometheusError) -> StatusError:
    match error:
        case PrometheusTimeout():
            return status.timeout(f"Timeout: Prometheus did not answer in time for {rule}")
        case PrometheusQueryError():
            return status.internal_error("unable to fetch metrics")
        case PrometheusBadAnswer():
            return status.service_unavailable(f"Prometheus gave an unusable answer for {rule}")
        case _:
            return status.service_unavailable(f"Prometheus is not available for {rule}")
