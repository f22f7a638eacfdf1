"""Decide whether a coalesced query costs Prometheus less than the queries that it replaces.

Costs are the seconds that queries took. Coalescing saves time if the requests that were served from the results would
have taken longer alone. This is checked once a minute for each group of requests, and, after the first three seconds,
at once for a coalesced query that took longer than fifty requests. A group that saves nothing, or whose query fails, is
paused: first for a minute, then twice as long each time, up to a quarter of an hour.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass, field

from adapter.rules import Merge, Rule
from kube.api.retries import Backoff

WINDOW_SECONDS = 60.0
"""Two different requests within this time start coalescing. By default HPAs are reconciled every 15 seconds."""

BENEFIT_OF_THE_DOUBT = 50
"""A new coalesced query may take as long as this many requests, until the number of requests it serves is known."""

_EARLY_SECONDS = 3.0
_PAUSE_SECONDS = 60.0
_LONGEST_PAUSE_SECONDS = 900.0
# The maximum count of different requests of a group.
_MAX_REQUESTS = 10_000
# The weight of the last query in the moving average of the seconds that queries for one request take.
_LAST = 0.2


class Pause(enum.Enum):
    """Why a group is paused."""

    COST = "cost"
    FAILURE = "failure"
    TOO_LONG = "too-long"

    @property
    def text(self) -> str:
        """The reason in words."""
        return _REASONS[self]


_REASONS = {
    Pause.COST: "the coalesced query costs more than it saves",
    Pause.FAILURE: "the coalesced query fails",
    Pause.TOO_LONG: "the coalesced query's result is too large for the cache",
}


@dataclass(slots=True, eq=False)
class CoalescingGroup:
    """The requests that one coalesced query of a rule and series can serve.

    `paused` is the reason why requests are sent alone for a while, or None. `logged` has the reasons that were logged.
    """

    rule: Rule
    series: str
    query: str
    paused: Pause | None = None
    logged: set[Pause] = field(default_factory=set)
    _since: float = -math.inf
    _requests: set[int] = field(default_factory=set)  # hashes, as `_hits`
    _requests_before: int = 0
    _hits: set[int] = field(default_factory=set)
    _saved_queries: int = 0
    _coalesced_seconds: float = 0.0
    _alone_seconds: float | None = None
    _paused_until: float = -math.inf
    _backoff: Backoff = field(
        default_factory=lambda: Backoff(_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS, jitter=0.0, random=lambda: 0.0)
    )

    @property
    def always(self) -> bool:
        """True: coalesce from the first request on, regardless of the cost."""
        return self.rule.merge is Merge.ALWAYS

    def note(self, request: str, *, now: float) -> bool:
        """Count a request; return whether to coalesce it. `now` is in seconds, and monotonic."""
        if now - self._since > WINDOW_SECONDS:
            self._end_window(now)
        if len(self._requests) < _MAX_REQUESTS:
            self._requests.add(hash(request))
        if self.paused is not None and now >= self._paused_until:
            self.paused = None
        return self.paused is None and (len(self._requests) > 1 or self._requests_before > 1 or self.always)

    def hit(self, request: str) -> None:
        """Count a request that was served from the cached result."""
        if len(self._hits) < _MAX_REQUESTS:
            self._hits.add(hash(request))

    def sent_alone(self, seconds: float) -> None:
        """Record the duration of a query for one request."""
        before = self._alone_seconds
        self._alone_seconds = seconds if before is None else before + _LAST * (seconds - before)

    def fetched(self, seconds: float, *, now: float) -> None:
        """Record the duration of the coalesced query."""
        self._settle()
        self._coalesced_seconds += seconds
        most = max(len(self._requests), self._requests_before, BENEFIT_OF_THE_DOUBT)
        # A short query returns before most objects have been requested.
        is_early = not self._requests_before and max(seconds, now - self._since) < _EARLY_SECONDS
        if not is_early and self._is_too_much(seconds, requests=most):
            self.pause(Pause.COST, now=now)

    def pause(self, why: Pause, *, now: float) -> None:
        """Send every request alone for a while."""
        if why is not Pause.COST or not self.always:
            self.paused = why
            self._paused_until = now + self._backoff.next()

    def _settle(self) -> None:
        self._saved_queries += len(self._hits)
        self._hits.clear()

    def _is_too_much(self, seconds: float, *, requests: int) -> bool:
        return self._alone_seconds is not None and seconds > self._alone_seconds * requests

    def _end_window(self, now: float) -> None:
        """Compare what coalescing cost and saved in the last window, and begin another one."""
        self._settle()
        if self._coalesced_seconds and self.paused is None:
            if self._is_too_much(self._coalesced_seconds, requests=self._saved_queries):
                self.pause(Pause.COST, now=now)
            else:
                self._backoff.reset()
        self._requests_before = len(self._requests) if now - self._since < 2 * WINDOW_SECONDS else 0
        self._saved_queries, self._coalesced_seconds, self._since = 0, 0.0, now
        self._requests.clear()
