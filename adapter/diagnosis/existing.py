"""Which series exist, for the authors of queries that find nothing.

The query for them has the rule's destination. So it finds only what the rule could find, and says nothing about the
series of other namespaces.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable

from adapter.deadlines import Deadline
from adapter.planning.vectors import InstantQueries
from adapter.prometheus import Destination, PrometheusError
from adapter.promql import PromqlError, label_text, matcher_sign, matchers, parse, selectors
from kube.values.fields import quote

# More names are left out, and so are longer ones.
_MAX_NAMES, _MAX_NAME = 10, 253


def added_matcher(destination: Destination) -> str:
    """Return the matcher that is added to the queries of a destination, such as `namespace="shop"`; "" for none."""
    tenant = destination.tenant
    return f"{label_text(tenant.label)}={quote(tenant.namespace)}" if tenant is not None and tenant.label else ""


async def existing_series(
    prometheus: InstantQueries, names: Iterable[str], destination: Destination, *, deadline: Deadline
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


async def what_exists(prometheus: InstantQueries, query: str, destination: Destination, *, deadline: Deadline) -> str:
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
