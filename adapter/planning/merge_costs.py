"""Whether one query for all objects of a metric costs Prometheus less than the queries that it replaces.

Costs are the seconds that queries took. A merged query pays for itself if the requests that were served from its
results would have taken longer by themselves. That is looked at once a minute for each group of requests, and at once
where a merged query took so long that even fifty requests would not make up for it. A group that does not pay, or whose
merged query fails, is paused: for a minute, and for twice as long each time that it happens again, up to a quarter of
an hour.

How many different requests there were is counted in bitmaps of 512 bytes, so that a group takes the same memory however
many clients there are, and however long their selectors are. The count is exact to a few in a hundred up to 10,000.
"""

from __future__ import annotations

import enum
import math
import zlib
from dataclasses import dataclass, field

from kube.retries import Backoff

WINDOW_SECONDS = 60.0
"""Two different requests within this time begin a merged query. HPAs are reconciled every 15 seconds by default."""

BENEFIT_OF_THE_DOUBT = 50
"""How many requests a merged query may be as expensive as, before it is known how many it serves."""

_PAUSE_SECONDS = 60.0
_LONGEST_PAUSE_SECONDS = 900.0
_BITS = 4096
# The weight of the last query in the moving average of what queries for one request take.
_LAST = 0.2


class Pause(enum.Enum):
    """Why a group is not merged at the moment."""

    COST = "cost"
    FAILURE = "failure"
    TOO_LONG = "too-long"

    @property
    def text(self) -> str:
        """The reason in words."""
        match self:
            case Pause.COST:
                return "the merged query costs more than it saves"
            case Pause.FAILURE:
                return "the merged query fails"
            case Pause.TOO_LONG:
                return "the merged query's result is too long to be kept"


class DistinctCount:
    """Counts different texts, approximately, in 512 bytes. Linear counting: the share of bits that no text has set."""

    __slots__ = ("_bits",)

    def __init__(self) -> None:
        self._bits = 0

    def add(self, text: str) -> None:
        """Count a text, unless it was counted before."""
        self._bits |= 1 << zlib.crc32(text.encode("utf-8", "surrogatepass")) % _BITS

    @property
    def is_several(self) -> bool:
        """There was more than one."""
        return self._bits.bit_count() > 1

    def __len__(self) -> int:
        """How many there were."""
        ones = self._bits.bit_count()
        return round(-_BITS * math.log(1 - min(ones, _BITS - 1) / _BITS))


@dataclass(slots=True, eq=False)
class MergeGroup:
    """The requests that one merged query can answer.

    Attributes:
        query: the merged query.
        is_wanted: merge whatever it costs, and from the first request on.
        paused: why it is not merged at the moment; None while it is.
        logged: the reasons that are in the log already.
    """

    query: str
    is_wanted: bool
    paused: Pause | None = None
    logged: set[Pause] = field(default_factory=set)
    _since: float = -math.inf
    _asked: DistinctCount = field(default_factory=DistinctCount)
    _asked_before: int = 0
    _served: DistinctCount = field(default_factory=DistinctCount)
    _saved_queries: int = 0
    _merged_seconds: float = 0.0
    _alone_seconds: float | None = None
    _not_before: float = -math.inf
    _backoff: Backoff = field(
        default_factory=lambda: Backoff(_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS, jitter=0.0, random=lambda: 0.0)
    )

    def note(self, request: str, *, now: float) -> bool:
        """Note a request; whether it can be served from a merged query. `now` is in seconds, and does not go back."""
        if now - self._since > WINDOW_SECONDS:
            self._end_window(now)
        self._asked.add(request)
        if self.paused is not None and now >= self._not_before:
            self.paused = None
        return self.paused is None and (self.is_wanted or self._asked.is_several or self._asked_before > 1)

    def served(self, request: str) -> None:
        """A request was served from the last result."""
        self._served.add(request)

    def sent_alone(self, seconds: float) -> None:
        """A request was sent alone, which took so many seconds."""
        before = self._alone_seconds
        self._alone_seconds = seconds if before is None else before + _LAST * (seconds - before)

    def fetched(self, seconds: float, *, now: float) -> None:
        """The merged query has a new result, which took so many seconds."""
        self._settle()
        self._merged_seconds += seconds
        most = max(len(self._asked), self._asked_before, BENEFIT_OF_THE_DOUBT)
        if self._is_too_much(seconds, requests=most):
            self.pause(Pause.COST, now=now)

    def pause(self, why: Pause, *, now: float) -> None:
        """Send every request alone for a while."""
        if why is not Pause.COST or not self.is_wanted:
            self.paused = why
            self._not_before = now + self._backoff.next()

    def _settle(self) -> None:
        self._saved_queries += len(self._served)
        self._served = DistinctCount()

    def _is_too_much(self, seconds: float, *, requests: int) -> bool:
        return self._alone_seconds is not None and seconds > self._alone_seconds * requests

    def _end_window(self, now: float) -> None:
        """Look at what merging cost and saved in the last window, and begin another one."""
        self._settle()
        if self._merged_seconds and self.paused is None:
            if self._is_too_much(self._merged_seconds, requests=self._saved_queries):
                self.pause(Pause.COST, now=now)
            else:
                self._backoff.reset()
        self._asked_before = len(self._asked) if now - self._since < 2 * WINDOW_SECONDS else 0
        self._asked, self._saved_queries, self._merged_seconds, self._since = DistinctCount(), 0, 0.0, now
