"""What is known about a rule: the series that it found, the metrics that it makes of them, and what is wrong.

A rule that cannot be listed, or whose series cannot be used now, keeps its last metrics. Rules of objects have limits,
because their authors are not trusted; of rules of the file the series are stored, for reports and for the next version.

Rules can have tens of thousands of series, so metrics are made in a worker thread that releases the GIL regularly.
"""

from __future__ import annotations

import asyncio
import enum
import logging
import re
import sys
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, TypeVar

import msgspec
from msgspec import structs

from adapter.catalog.inventory import (
    CustomSource,
    ExternalSource,
    LabelMeanings,
    Source,
    custom_query_source,
    custom_uses,
    external_query_source,
    external_sources,
    label_meanings,
    with_forecasts,
)
from adapter.gil import releasing_gil
from adapter.prometheus import (
    PrometheusAccessError,
    PrometheusError,
    PrometheusPartialResponse,
    PrometheusQueryError,
    Series,
)
from adapter.rules import AnyRule, QueryRule, Rule, ScheduleRule
from adapter.rules.naming import NAMESPACES
from kube.api.client import KubeError
from kube.api.mapping import NoMatchError, ResourceLookup
from kube.api.status import StatusError

_log = logging.getLogger(__name__)

T = TypeVar("T")

# Fewer series take less than 2 ms and are processed without a thread.
_FEW = 200
# Each metric takes memory here, and a line in the discovery of every client of the cluster. Those of one rule are
# replaced together, in some 40 ms.
_MAX_METRICS = 5_000
_MAX_METRICS_OF_TENANT = 200
_MAX_NAMES_OF_TENANT = 2_000
_MAX_SERIES_NAME = 1_024
# Of a metric, in bytes of JSON. Names stand in the discovery documents, which every client of the cluster reads.
_MAX_NAME = 253

_PARTIAL: Final = "Prometheus could read only a part of the series; the adapter's log and its pages say why"
_NO_ACCESS: Final = (
    "Prometheus refuses the adapter's credentials, or the adapter has none; its log and its pages say why"
)
_ADDRESS: Final = re.compile(
    r"""\b[a-z][a-z+]*://[^\s"'`)\]]+|\[[0-9a-f:.%]*:[0-9a-f:.%]*\](?::\d+)?|\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b"""
    r"""|(?<![\w:.-])[a-z][a-z0-9-]*(?:\.[a-z0-9-]+)*:\d{2,5}(?![\w:])|(?<![\w:.-])[a-z0-9-]+(?:\.[a-z0-9-]+){2,}\b""",
    re.IGNORECASE,
)


class Reason(enum.StrEnum):
    """Why an object's rules are served or not: the reasons of the condition Ready that need no query for a value."""

    READY = "Ready"
    PENDING = "Pending"
    INVALID = "Invalid"
    CONFLICT = "Conflict"
    TOO_MANY_RULES = "TooManyRules"
    TOO_MANY_METRICS = "TooManyMetrics"
    QUERY_FAILED = "QueryFailed"
    PROMETHEUS_UNAVAILABLE = "PrometheusUnavailable"


class Problem(NamedTuple):
    """What is wrong with a rule or an object."""

    reason: Reason
    message: str


NOT_LISTED = Problem(Reason.PENDING, "its series are not listed yet")
"""The problem of a rule whose series have to be listed."""


class RuleState(msgspec.Struct, frozen=True, gc=False):
    """A rule, and its metrics."""

    rule: AnyRule
    """The rule."""
    sources: tuple[Source, ...] = ()
    """Its metrics, in the order of its series; those of the last list that succeeded."""
    problem: Problem | None = None
    """What is wrong; None: nothing is."""
    made: int = 0
    """The number of its metrics, also while there is no room for them, and `sources` is empty."""
    series: tuple[Series, ...] = ()
    """The series, of a rule of the file."""
    meanings: LabelMeanings | None = None
    """The resources that the labels of `series` name; None if the rule does not need them."""
    listed_at: float | None = None
    """When a rule of the file was last listed with success, in seconds since the epoch; None: not yet."""

    @property
    def failure(self) -> str:
        """Why the last list failed; "" if it did not."""
        return "" if self.problem is None or self.problem is NOT_LISTED else self.problem.message


class _UnusableRuleError(ValueError):
    """A rule of an object that cannot make its metrics; the message says why, and what to change."""


def problem_of(error: PrometheusError, *, limited: bool) -> Problem:
    """Return the reason and the message for a list of series that failed; `limited`: of a rule of an object."""
    if not limited:
        return Problem(Reason.PROMETHEUS_UNAVAILABLE, str(error))
    reason = Reason.QUERY_FAILED if isinstance(error, PrometheusQueryError) else Reason.PROMETHEUS_UNAVAILABLE
    return Problem(reason, message_of(error))


def message_of(error: PrometheusError) -> str:
    """Return an error of Prometheus for the status of an object, which the authors of rules read.

    Why credentials are refused is for operators: it may name accounts and roles of a cloud. So is what a part of the
    server says, which has addresses.
    """
    if isinstance(error, PrometheusPartialResponse):
        return _PARTIAL
    return _NO_ACCESS if isinstance(error, PrometheusAccessError) else without_addresses(str(error))


def without_addresses(message: str) -> str:
    """Return a message of a server without addresses, such as those of the stores that Thanos cannot reach."""
    return _ADDRESS.sub("ADDRESS", message)


async def after_list(
    state: RuleState, found: tuple[Series, ...] | Problem, mapper: ResourceLookup, *, limited: bool
) -> RuleState:
    """Return the state of a rule after a list; that of a rule without a seriesQuery finds nothing.

    After a failure the rule keeps its last metrics, if they are not of another version of the rule.

    Args:
        state: the state before. If nothing has changed, the new one has the same `sources`.
        found: the series, or why they cannot be listed.
        mapper: the cluster's resources.
        limited: it is a rule of an object.
    """
    rule = state.rule
    if isinstance(found, Problem):
        problem = found
    else:
        try:
            return await (_limited(rule, found, mapper) if limited else _made(state, found, mapper))
        except _UnusableRuleError as error:
            problem = Problem(Reason.INVALID, str(error))
        except (KubeError, StatusError) as error:
            problem = Problem(Reason.PENDING, f"the resources of the cluster cannot be listed: {error}")
        except Exception as error:  # noqa: BLE001  (a rule that triggers a bug must not end the process)
            _log.exception("%s cannot be used", rule.key)
            problem = Problem(Reason.INVALID, f"it cannot be used: {error!r}")
    # Also if it makes too many now: pods choose the names of their series.
    is_of_another = bool(state.sources) and state.sources[0].rule != rule
    return RuleState(rule, problem=problem) if is_of_another else structs.replace(state, problem=problem)


async def with_series_of(rule: Rule, before: RuleState) -> RuleState:
    """Return the state of a rule of the file with the series of one that has the same list and resources.

    It sends no request: the API server may be down.
    """
    return await _in_thread(len(before.series), lambda: _of_series(rule, before.series, before.meanings))


async def _made(before: RuleState, found: tuple[Series, ...], mapper: ResourceLookup) -> RuleState:
    """Return the state of a rule with the metrics that it makes of series, or the metric of a short rule.

    Raises:
        KubeError, StatusError: discovery of the API server's resources failed.
    """
    rule = before.rule
    if not isinstance(rule, Rule):
        sources = await _named(rule, mapper)
        return RuleState(rule, before.sources if before.sources == sources else sources, made=len(sources))
    # The regular expressions of a namespace's rule may take long.
    size = len(found) if not rule.namespace else sys.maxsize
    meanings = None
    if rule.external and rule.resources.namespaced:
        meanings = await label_meanings(rule.resources, (), mapper)
    elif not rule.external:
        labels = await _in_thread(size, lambda: _labels_of(found))
        meanings = await label_meanings(rule.resources, labels, mapper)
    if before.meanings == meanings and await _in_thread(size, lambda: found == before.series):
        return structs.replace(before, problem=None)
    return await _in_thread(size, lambda: _of_series(rule, found, meanings))


def _labels_of(found: tuple[Series, ...]) -> frozenset[str]:
    """Return all labels of the series."""
    labels = set[str]()
    for series in releasing_gil(found):
        labels.update(series.labels)
    return frozenset(labels)


async def _named(rule: QueryRule | ScheduleRule, mapper: ResourceLookup) -> tuple[Source, ...]:
    """Return the metric of a rule that names it; none if the cluster has no such resource."""
    if isinstance(rule, ScheduleRule):
        return (ExternalSource(rule.metric, rule, "", ""),)
    if rule.external:
        return with_forecasts(rule, (external_query_source(rule),))
    try:
        return with_forecasts(rule, (await custom_query_source(rule, mapper),))
    except NoMatchError:
        return ()


def _of_series(rule: Rule, found: tuple[Series, ...], meanings: LabelMeanings | None) -> RuleState:
    series = releasing_gil(found)
    sources: tuple[Source, ...]
    if rule.external:
        sources = external_sources(rule, series, meanings)
    else:
        assert meanings is not None, "custom metrics need labels"
        sources = tuple(source for use in custom_uses(rule, series, meanings) for source in use.sources)
    sources = with_forecasts(rule, sources)
    return RuleState(rule, sources, made=len(sources), series=found, meanings=meanings)


async def _limited(rule: AnyRule, found: tuple[Series, ...], mapper: ResourceLookup) -> RuleState:
    """Return the state of a rule of an object; see `_made`. Its series are not stored.

    Raises:
        _UnusableRuleError: it makes no metric, or too many, or none with a name that a metric of an object can have.
    """
    if rule.namespace:  # its regular expressions may take a millisecond for each name
        found = tuple(series for series in found if len(series.name) <= _MAX_SERIES_NAME)
        if len(found) > _MAX_NAMES_OF_TENANT:
            raise _UnusableRuleError(
                f"its seriesQuery finds {len(found)} names of series, and can find {_MAX_NAMES_OF_TENANT}; narrow it"
            )
    made = sources = (await _made(RuleState(rule), found, mapper)).sources
    if rule.namespace:
        sources = tuple(source for source in sources if _is_in_a_namespace(source))
    named = tuple(source for source in sources if _is_name(source.metric))
    if sources and not named:
        raise _UnusableRuleError(
            f"the name of a metric can have {_MAX_NAME} bytes, all printable: {sources[0].metric[:40]!r}..."
        )
    limit = _MAX_METRICS_OF_TENANT if rule.namespace else _MAX_METRICS
    if len(named) > limit:
        raise _UnusableRuleError(
            f"it makes {len(named)} metrics, and can make {limit}; narrow its seriesQuery or its seriesFilters"
        )
    if not named and isinstance(rule, QueryRule):
        raise _UnusableRuleError(_why_none(rule, made))
    return RuleState(rule, named, made=len(named))


def _is_name(metric: str) -> bool:
    return metric.isprintable() and len(msgspec.json.encode(metric)) <= _MAX_NAME + len('""')


def _is_in_a_namespace(source: Source) -> bool:
    """Return whether a metric describes objects of a namespace, or the namespace itself."""
    return not isinstance(source, CustomSource) or source.info.namespaced or source.info.resource == NAMESPACES


def _why_none(rule: QueryRule, made: Iterable[Source]) -> str:
    for source in made:
        if isinstance(source, CustomSource):
            return f"{source.info.resource} are in no namespace; only a ClusterMetricRule can have a metric of them"
    return f"the cluster has no resource {rule.resource}"


async def _in_thread(size: int, work: Callable[[], T]) -> T:
    return work() if size <= _FEW else await asyncio.to_thread(work)
