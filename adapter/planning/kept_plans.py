"""Queries that were made of a rule's template, kept for the next request for the same.

Plans belong to the source that they were made of, and another list of metrics has other sources: what was made of rules
that are gone is never used again. How much is kept is bounded in bytes, since clients choose how long names are.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from cachetools import LRUCache

from adapter.planning.planner import Plan

_MAX_BYTES = 16 * 1024 * 1024
_PLAN_BYTES = 1_000


class _Entry(msgspec.Struct, frozen=True):
    source: object
    plan: Plan
    size: int


class KeptPlans:
    """Plans, by their sources and by what was asked of these."""

    def __init__(self) -> None:
        self._plans: LRUCache[tuple[int, tuple[str, ...]], _Entry] = LRUCache(
            _MAX_BYTES, getsizeof=lambda entry: entry.size
        )

    def get(self, source: object, wanted: tuple[str, ...], make: Callable[[], Plan]) -> Plan:
        """The cached plan of the same source for the same objects, or that of `make`, whose errors are raised.

        Sources are compared as the objects that they are, since to compare them by value is to compare whole rules.
        """
        key = (id(source), wanted)
        entry = self._plans.get(key)
        if entry is None or entry.source is not source:
            plan = make()
            size = _PLAN_BYTES + 4 * sum(map(len, wanted)) + 4 * sum(map(len, plan.queries))
            if size <= _MAX_BYTES // 16:
                self._plans[key] = _Entry(source, plan, size)
            return plan
        return entry.plan
