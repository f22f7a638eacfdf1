"""What the authors of a query need to know beside its value.

Which series exist, if it finds nothing; several values for one object, of which the metrics APIs can serve only one;
how old the newest sample is, how often there is one, and which rates have a range longer than needed.

Queries for these have the rule's destination. So they find only what the rule could find, and say nothing about the
series of other namespaces.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta

from adapter.catalog.inventory import CustomSource
from adapter.planning.rule_queries import by_name
from adapter.planning.sample_times import Selectors, read_ages
from adapter.planning.vectors import InstantQueries
from adapter.prometheus import Destination, PrometheusError, Sample, Vector
from adapter.promql import PromqlError, duration_text, label_text, matcher_sign, matchers, parse, selectors
from adapter.rules import QueryRule, Rule
from kube.values.fields import quote

# More names are left out, and so are longer ones.
_MAX_NAMES, _MAX_NAME = 10, 253


def added_matcher(destination: Destination) -> str:
    """Return the matcher that is added to the queries of a destination, such as `namespace="shop"`; "" for none."""
    tenant = destination.tenant
    return f"{label_text(tenant.label)}={quote(tenant.namespace)}" if tenant.label else ""


async def existing_series(
    prometheus: InstantQueries, names: Iterable[str], destination: Destination, *, deadline: float
) -> list[str]:
    """Return the names of which there are series now, of those that the destination may read.

    Raises:
        PrometheusError: the query failed.
    """
    if not (wanted := list(names)):
        return []
    query = f"count by (__name__) ({{__name__=~{quote('|'.join(map(re.escape, wanted)))}}})"
    result = await prometheus.instant(query, deadline=deadline, destination=destination)
    found = {one.labels.get("__name__") for one in result.samples}
    return [name for name in wanted if name in found]


async def what_exists(prometheus: InstantQueries, query: str, destination: Destination, *, deadline: float) -> str:
    """Return which of the names in a query have series now; "" if that is not known."""
    try:
        names = await asyncio.to_thread(_names, query)
        found = await existing_series(prometheus, names, destination, deadline=deadline)
    except (PromqlError, PrometheusError):
        return ""
    missing = [name for name in names if name not in found]
    parts = [f"{word} {', '.join(some)}" for word, some in (("series of", found), ("no series of", missing)) if some]
    matcher = added_matcher(destination)
    return f"there are {' and '.join(parts)}{matcher and f' with {matcher}'}" if parts else ""


def _names(query: str) -> list[str]:
    """Return the names of series that a query gives. Raises PromqlError."""
    found = [
        one.value
        for selector in selectors(parse(query))
        for one in matchers(selector)
        if one.name == "__name__" and matcher_sign(one) == "=" and 0 < len(one.value) <= _MAX_NAME
    ]
    return list(dict.fromkeys(found))[:_MAX_NAMES]


_SHOWN = 5


def several_values(source: CustomSource, namespace: str, result: Vector | None) -> str:
    """Return a sentence about the first object with several values, with the query that adds them up; "" for none."""
    for name, samples in (by_name(source, namespace, result) or {}).items():
        if isinstance(samples, list):
            return _sentence(source, f"{namespace}/{name}" if namespace else name, samples)
    return ""


def _sentence(source: CustomSource, of: str, samples: list[Sample]) -> str:
    labels = sorted(set().union(*(sample.labels for sample in samples)))
    different = [f"`{one}`" for one in labels if len({sample.labels.get(one) for sample in samples}) > 1]
    by = f", by {', '.join(different[:_SHOWN])}" if different else ""
    return (
        f"the query makes {len(samples)} values for {of}{by}; the first ({samples[0].value:.6g}) is taken, their sum is"
        f" {sum(sample.value for sample in samples):.6g}: aggregate them, as in {_aggregated(source)}"
    )


def _aggregated(source: CustomSource) -> str:
    """Return the rule's query with a sum around it."""
    if isinstance(source.rule, QueryRule):
        labels = filter(None, (source.namespace_label, source.resource_label))
        return f"sum by ({', '.join(map(label_text, labels))}) ({source.rule.query})"
    assert isinstance(source.rule, Rule), "a schedule makes no custom metric"
    return f"sum({source.rule.query.source}) by (<<.GroupBy>>)"


_RATES = frozenset({"rate", "increase"})
# A range of four scrapes has a rate even if one or two of them fail.
_ENOUGH_SCRAPES = 4
# A range that is less than twice as long is not worth a word.
_LONG = 2
# A rate over a range shows a part of a step after that part of the range.
_STEP_SHARE = 0.8


@dataclass(frozen=True, slots=True)
class SampleAge:
    """The age of the newest sample when the query was evaluated, and the interval between samples, in seconds.

    `interval` is 0 if it is not known. `advice` is on ranges that are longer than the interval needs; "" for none.
    """

    seconds: float
    interval: float
    advice: str = ""

    def __str__(self) -> str:
        every = f", one every {self.interval:g} s" if self.interval else ""
        return f"the newest sample was {self.seconds:.0f} s old{every}"


async def sample_age(
    prometheus: InstantQueries, query: str, destination: Destination, *, deadline: float
) -> SampleAge | None:
    """Query the times of the samples that a query reads; None if Prometheus does not say."""
    selectors = await asyncio.to_thread(Selectors.of, query)
    if selectors is None:
        return None
    try:
        result = await prometheus.instant(selectors.query, deadline=deadline, destination=destination)
    except PrometheusError:
        return None
    _, ages, interval = read_ages(result)
    return SampleAge(max(min(ages), 0.0), interval, _advice(selectors, interval)) if ages else None


def _advice(selectors: Selectors, interval: float) -> str:
    enough = timedelta(seconds=math.ceil(_ENOUGH_SCRAPES * interval))  # PromQL has no fractions of a second
    rates = [one for one in selectors.ranges if one[0] in _RATES and one[1] >= _LONG * enough > timedelta()]
    return "; ".join(
        f"{name}[{duration_text(one)}] needs {_words(_STEP_SHARE * one.total_seconds())} to show 80 % of a step;"
        f" the scrape interval is {interval:g} s: [{duration_text(enough)}] is enough"
        for name, one in dict.fromkeys(rates)
    )


def _words(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{seconds:.0f} s" if rest or not minutes else f"{minutes} minute{'s'[: minutes > 1]}"
