"""Why an object's metrics are served or not, and which other rule makes them instead."""

from __future__ import annotations

import re
from typing import Final

from adapter.catalog.catalog import Catalog
from adapter.catalog.rule_states import Problem, Reason
from adapter.prometheus import PrometheusAccessError, PrometheusError, PrometheusPartialResponse, PrometheusQueryError
from adapter.rule_objects.state import Entry
from adapter.rules.objects import Tenancy

_PARTIAL: Final = "Prometheus could read only a part of the series; the adapter's log and its pages say why"
_NO_ACCESS: Final = (
    "Prometheus refuses the adapter's credentials, or the adapter has none; its log and its pages say why"
)
_ADDRESS: Final = re.compile(
    r"""\b[a-z][a-z+]*://[^\s"'`)\]]+|\[[0-9a-f:.%]*:[0-9a-f:.%]*\](?::\d+)?|\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b"""
    r"""|(?<![\w:.-])[a-z][a-z0-9-]*(?:\.[a-z0-9-]+)*:\d{2,5}(?![\w:])|(?<![\w:.-])[a-z0-9-]+(?:\.[a-z0-9-]+){2,}\b""",
    re.IGNORECASE,
)


def reason_of(entry: Entry, catalog: Catalog, *, tenancy: Tenancy, share: int) -> tuple[Reason, str]:
    """Return the reason of an object's state, and a message for its author.

    Args:
        entry: the object.
        catalog: the metrics of the rules file and of all objects.
        tenancy: how many rules and metrics a namespace can have.
        share: how many metrics it can have, because of those of all namespaces.
    """
    problem = entry.problem
    if problem is not None and problem[0] is Reason.INVALID:
        return problem
    if entry.excess is Reason.TOO_MANY_RULES:
        return entry.excess, f"the namespace has more than {tenancy.max_rules} rules; the oldest objects are used"
    if entry.excess is Reason.TOO_MANY_METRICS:
        why = f"it makes {entry.made} metrics; with those of older objects its namespace would have more than"
        if share < tenancy.max_metrics:
            total = f"all objects together can make {tenancy.total_metrics}"
            return entry.excess, f"{why} {share}, its share for now: {total} (--rule-objects-max-metrics)"
        return entry.excess, f"{why} {tenancy.max_metrics} (--tenant-max-metrics)"
    if entry.excess is not None:
        return entry.excess, "it is being read again"
    for source in entry.sources:
        if other := catalog.maker_instead(entry.object.name, source):
            return Reason.CONFLICT, f"{source} is made by {other}"
    return problem or (Reason.READY, "")


def problem_of(error: PrometheusError) -> Problem:
    """Return the reason and the message for a list of series that failed."""
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
