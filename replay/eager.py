"""The evaluations of an eager HPA between its reconciliations (`autoscaler.loop.eager`), every second."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from autoscaler.core.decision import Decision
from replay.load import Series
from replay.workload import Workload

INTERVAL_MS: Final = 1000


def early_scale_up(
    last: Decision,
    decide_at: Callable[[int], Decision],
    series: Sequence[Series],
    workload: Workload,
    *,
    now_ms: int,
    next_ms: int,
) -> tuple[int, Decision | None, list[tuple[int, int, int]]]:
    """Find the first scale-up before the next reconciliation. Evaluations for which nothing has changed are left out.

    `last` is the decision of `now_ms`, the last reconciliation; `decide_at` has no effect; the workload is advanced to
    the time that is returned.

    Returns:
        The time of the scale-up, or `next_ms`; the decision, or None; and (start, end, ready pods) until that time.
    """
    time_ms, ready = now_ms, list[tuple[int, int, int]]()
    while True:
        normalized = last.normalized
        is_limited = normalized is not None and normalized.proposed_replicas > normalized.desired_replicas
        ahead = workload.ready_over(time_ms, next_ms)
        changes = [time_ms + 1] if is_limited else [each.next_ms(time_ms) for each in series]
        change_ms = max(min([*changes, *(start_ms for start_ms, _, _ in ahead[1:])]), time_ms + 1)
        evaluated_ms = now_ms + -(-(change_ms - now_ms) // INTERVAL_MS) * INTERVAL_MS
        if evaluated_ms >= next_ms:
            return next_ms, None, ready + ahead
        ready += workload.ready_over(time_ms, evaluated_ms)
        workload.advance(evaluated_ms)
        time_ms, last = evaluated_ms, decide_at(evaluated_ms)
        if last.is_early_scale_up:
            return time_ms, last, ready
