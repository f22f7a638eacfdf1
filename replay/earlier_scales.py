"""Scale events from before the first kept decision, as far as scaling policies still counted them.

A record has the replicas at the start of a policy's period, which is the current number without the changes since. What
the kept decisions do not explain of that changed before them. When it no longer counts, its time is known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from autoscaler.core.history import ScaleEvent
from autoscaler.core.stabilization import RateLimit
from autoscaler.records.record import DecisionRecord


def earlier_scales(used: Sequence[tuple[int, DecisionRecord]]) -> list[ScaleEvent]:
    """Return the changes, negative ones of scales down, oldest first.

    Args:
        used: (time in milliseconds, record), ascending.
    """
    start_ms, first = used[0]
    limits: list[Callable[[DecisionRecord], RateLimit | None]] = [
        lambda record: record.scale_up_limit,
        lambda record: record.scale_down_limit,
    ]
    # The policy with the longest period counts the most.
    limit_of = max(limits, key=lambda limit: _period_ms(limit(first)))
    period_ms = _period_ms(limit_of(first))
    events: list[ScaleEvent] = []
    last_ms, unexplained = start_ms, 0
    for time_ms, record in used:
        limit = limit_of(record)
        before = unexplained
        if time_ms >= start_ms + period_ms:
            unexplained = 0
        elif limit is None or limit.period_start_replicas is None or _period_ms(limit) != period_ms:
            continue
        else:
            change = (record.current_replicas or 0) - limit.period_start_replicas
            unexplained = change - _explained(used, time_ms - period_ms, time_ms)
        if time_ms == start_ms:
            before = unexplained
        if before != unexplained:
            events.append(ScaleEvent(before - unexplained, min(time_ms - period_ms, start_ms - 1)))
        last_ms = time_ms
        if time_ms >= start_ms + period_ms:
            break
    if unexplained:
        events.append(ScaleEvent(unexplained, min(last_ms - period_ms + 1, start_ms - 1)))
    return events


def _period_ms(limit: RateLimit | None) -> int:
    return 0 if limit is None or limit.policy is None else 1000 * limit.policy.period_seconds


def _explained(used: Sequence[tuple[int, DecisionRecord]], after_ms: int, before_ms: int) -> int:
    """Return the sum of the changes that kept decisions made between two times."""
    return sum(
        record.written.replicas - (record.current_replicas or 0)
        for time_ms, record in used
        if after_ms < time_ms < before_ms and record.written is not None and record.written.replicas is not None
    )
