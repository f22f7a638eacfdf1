"""How soon a scale-up followed the load: what is known of each part of that time.

The load rose between the last sample for which the current replicas sufficed and the first that called for more; when
is not known. A reconciliation or an evaluation of an eager HPA used that sample, and windows and policies may have held
the scale-up back since. Nothing is estimated: what has no timestamp is left out.
"""

from __future__ import annotations

from typing import NamedTuple

from autoscaler.core.decision import Decision
from autoscaler.core.model import HPAKey
from autoscaler.core.observation import MetricError, MetricResponse, PodsResponse, ResourceResponse, ValuesResponse
from autoscaler.records.record import ReactionRecord, time_text


class _Reconciliation(NamedTuple):
    """Its time, and that of the newest sample of the metric that decided; None: it has no timestamp."""

    time_ms: int
    sampled_ms: int | None


def sample_times(response: MetricResponse | None) -> tuple[int | None, int | None]:
    """Return the timestamp of a response's newest sample, and the longest window of its samples, in milliseconds."""
    match response:
        case PodsResponse(pods) | ResourceResponse(pods):
            times = [(each.timestamp_ms, each.window_ms) for each in pods.values()]
        case ValuesResponse(timestamp_ms=timestamp_ms, window_ms=window_ms):
            times = [(timestamp_ms, window_ms)]
        case MetricError() | None:
            times = []
    newest = max((timestamp_ms for timestamp_ms, _ in times), default=0)
    window = max((window_ms for _, window_ms in times), default=0)
    return newest or None, window or None


class Reactions:
    """Since when each HPA's metrics have proposed more than the current replicas."""

    def __init__(self) -> None:
        # The last reconciliation that proposed no more, None: there was none since the start; and the first after it.
        self._known: dict[HPAKey, tuple[_Reconciliation | None, _Reconciliation | None]] = {}

    def decided(self, decision: Decision, *, written_ms: int | None) -> ReactionRecord | None:
        """Process a reconciliation or an evaluation; return how soon it followed the load if it scaled up for a metric.

        Args:
            decision: the decision.
            written_ms: when the scale was written, in milliseconds since the Unix epoch; None: it was not.
        """
        key, normalized, current = decision.observation.hpa.key, decision.normalized, decision.current_replicas or 0
        if normalized is None or decision.winner is None:
            self.forget(key)
            return None
        response = (decision.observation.responses or ())[decision.evaluations.index(decision.winner)]
        this, scale_to = _Reconciliation(decision.now_ms, sample_times(response)[0]), decision.scale_to or 0
        if normalized.proposed_replicas <= current:
            self._known[key] = this, None
            return None
        before, first = self._known.get(key, (None, None))
        first = first or this
        if written_ms is None or scale_to <= current:
            self._known[key] = before, first
            return None
        self._known[key] = (this, None) if normalized.proposed_replicas <= scale_to else (before, first)
        return _reaction(before, first, decision.now_ms, written_ms)

    def forget(self, key: HPAKey) -> None:
        """Drop the state of an HPA that was deleted."""
        self._known.pop(key, None)


def _reaction(
    before: _Reconciliation | None, first: _Reconciliation, decided_ms: int, written_ms: int
) -> ReactionRecord:
    sampled_ms, sufficed_ms, sync_seconds = first.sampled_ms, None, None
    if before is not None:
        # The sample could have been used since it was there, but not before the last reconciliation without it.
        since_ms = min(max(before.time_ms, sampled_ms or 0), first.time_ms)
        sync_seconds = (first.time_ms - since_ms) / 1000
        if sampled_ms is None or (before.sampled_ms or 0) < sampled_ms:
            sufficed_ms = before.sampled_ms
    return ReactionRecord(
        sufficed=None if sufficed_ms is None else time_text(sufficed_ms),
        sampled=None if sampled_ms is None else time_text(sampled_ms),
        sync_seconds=sync_seconds,
        held_seconds=(decided_ms - first.time_ms) / 1000,
        write_seconds=max(0, written_ms - decided_ms) / 1000,
        written=time_text(written_ms),
    )


def reaction_text(reaction: ReactionRecord) -> str:
    """Return a reaction for people: `called for by the sample of 10:31:05.1, written at 10:31:12.2: 7.0s of ...`."""
    samples = "" if reaction.sampled is None else f"called for by the sample of {_clock(reaction.sampled)}, "
    if reaction.sufficed is not None:
        samples += f"not yet by that of {_clock(reaction.sufficed)}, "
    parts = [
        (reaction.sync_seconds, "of sync period"),
        (round(reaction.held_seconds, 1) or None, "of windows and policies"),
        (reaction.write_seconds, "of writing"),
    ]
    known = ", ".join(f"{seconds:.1f}s {what}" for seconds, what in parts if seconds is not None)
    return f"{samples}written at {_clock(reaction.written)}: {known}"


def _clock(time: str) -> str:
    """Return the time of day of an RFC 3339 time, with a tenth of a second."""
    return time[11:21]
