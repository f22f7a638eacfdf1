"""How soon a scale-up followed the load: what is known of each part of that time.

The load rose between the last sample for which the current replicas sufficed and the first that called for more; when
is not known. A reconciliation used that sample once it was served, and windows and policies may have held the scale-up
back since. Nothing is estimated: what has no timestamp is left out.
"""

from __future__ import annotations

from dataclasses import dataclass

from autoscaler.core.decision import Decision
from autoscaler.core.model import HPAKey
from autoscaler.core.observation import MetricError, MetricResponse, PodsResponse, ResourceResponse, ValuesResponse
from autoscaler.records.record import ReactionRecord
from autoscaler.records.times import time_text


@dataclass(frozen=True, slots=True)
class _Proposal:
    """A reconciliation, and the newest sample of the metric that decided; None: it has no timestamp."""

    time_ms: int
    sampled_ms: int | None


@dataclass(slots=True)
class _Watched:
    calm: _Proposal | None = None
    """The last that proposed no more than the current replicas; None: there was none since the start."""
    rising: _Proposal | None = None
    """The first since then."""


def sample_times(response: MetricResponse | None) -> tuple[int | None, int | None]:
    """Return the timestamp of a response's newest sample, and the longest window of its samples, in milliseconds."""
    match response:
        case PodsResponse(samples):
            times = [(each.timestamp_ms, each.window_ms) for each in samples.values()]
        case ResourceResponse(usages):
            times = [(each.timestamp_ms, each.window_ms) for each in usages]
        case ValuesResponse(timestamp_ms=timestamp_ms, window_ms=window_ms):
            times = [(timestamp_ms, window_ms)]
        case MetricError() | None:
            times = []
    newest = max((timestamp_ms for timestamp_ms, _ in times), default=0)
    window = max((window_ms for _, window_ms in times), default=0)
    return newest or None, window or None


class Reactions:
    """The time since when each HPA's metrics have proposed more replicas."""

    def __init__(self) -> None:
        self._watched: dict[HPAKey, _Watched] = {}

    def decided(self, decision: Decision, *, written_ms: int | None) -> ReactionRecord | None:
        """Process a reconciliation; return how soon it followed the load if it scaled up for a metric.

        Args:
            decision: the decision.
            written_ms: when the scale was written, in milliseconds since the Unix epoch; None: it was not.
        """
        key, normalized, current = decision.observation.hpa.key, decision.normalized, decision.current_replicas or 0
        if normalized is None or decision.winner is None:
            self._watched.pop(key, None)
            return None
        index = next(index for index, each in enumerate(decision.evaluations) if each is decision.winner)
        responses = decision.observation.responses or ()
        now = _Proposal(decision.now_ms, sample_times(responses[index])[0])
        watched = self._watched.setdefault(key, _Watched())
        if normalized.proposed_replicas <= current:
            watched.calm, watched.rising = now, None
            return None
        rising = watched.rising = watched.rising or now
        if written_ms is None or decision.scale_to is None or decision.scale_to <= current:
            return None
        if normalized.proposed_replicas <= decision.scale_to:
            self._watched[key] = _Watched(calm=now)  # from here on the proposal is no more than the replicas
        return _reaction(watched.calm, rising, decision.now_ms, written_ms)

    def forget(self, key: HPAKey) -> None:
        """Drop the state of an HPA that was deleted."""
        self._watched.pop(key, None)


def _reaction(calm: _Proposal | None, rising: _Proposal, decided_ms: int, written_ms: int) -> ReactionRecord:
    before, sampled = None if calm is None else calm.sampled_ms, rising.sampled_ms
    sync_seconds = served_seconds = None
    if calm is not None:
        # The sample could have been used since it was there, but not before the last reconciliation without it.
        since_ms = calm.time_ms if sampled is None else min(max(calm.time_ms, sampled), rising.time_ms)
        sync_seconds = (rising.time_ms - since_ms) / 1000
        if sampled is not None:
            served_seconds = max(0, calm.time_ms - sampled) / 1000
    return ReactionRecord(
        sufficed=None if before is None or (sampled is not None and before >= sampled) else time_text(before),
        sampled=None if sampled is None else time_text(sampled),
        served_seconds=served_seconds or None,
        sync_seconds=sync_seconds,
        held_seconds=(decided_ms - rising.time_ms) / 1000,
        write_seconds=max(0, written_ms - decided_ms) / 1000,
        written=time_text(written_ms),
    )


def reaction_text(reaction: ReactionRecord) -> str:
    """Return a reaction for people: `called for by the sample of 10:31:05.1, written at 10:31:12.2: 7.0s of ...`."""
    samples = "" if reaction.sampled is None else f"called for by the sample of {_clock(reaction.sampled)}, "
    if reaction.sufficed is not None:
        samples += f"not yet by that of {_clock(reaction.sufficed)}, "
    parts = [
        (reaction.served_seconds, "until it was served"),
        (reaction.sync_seconds, "of sync period"),
        (reaction.held_seconds or None, "of windows and policies"),
        (reaction.write_seconds, "of writing"),
    ]
    known = ", ".join(f"{seconds:.1f}s {what}" for seconds, what in parts if seconds is not None)
    return f"{samples}written at {_clock(reaction.written)}: {known}"


def _clock(time: str) -> str:
    """Return the time of day of an RFC 3339 time, with a tenth of a second."""
    return time[11:21]
