"""The demo's load as a function of time: it goes up and down, and what the pods measure follows from it.

Pure: time is passed in, nothing is random. Rates are waves whose integral is known, so a counter is exact however
seldom one looks at it. Traffic is shared equally among an application's ready pods, as behind a load balancer, so
that more pods mean less for each; a queue is drained by its workers, so that more workers mean a shorter one. Hence
scaling has an effect that the next measurement shows, which is what an autoscaler is to be watched with.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Wave:
    """A rate that swings between `low` and `high` units per second, once in `period` seconds.

    It is lowest at `offset` seconds and highest half a period later.
    """

    low: float
    high: float
    period: float
    offset: float = 0.0

    def rate(self, time: float) -> float:
        """Units per second at `time`."""
        return self.low + (self.high - self.low) * (1 - math.cos(self._angle(time))) / 2

    def amount(self, start: float, end: float) -> float:
        """Units that arrive between two times: the integral of the rate."""
        middle = (self.low + self.high) / 2
        swing = (self.high - self.low) / 2 * self.period / math.tau
        return middle * (end - start) - swing * (math.sin(self._angle(end)) - math.sin(self._angle(start)))

    def _angle(self, time: float) -> float:
        return math.tau * (time - self.offset) / self.period


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """What the ready pods of an application share, and by how much one unit of it advances each of their counters."""

    wave: Wave
    counters: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """A queue: units arrive by `wave`, and each ready pod of the application `workers` takes `drain` per second."""

    wave: Wave
    workers: str
    drain: float


class Load:
    """The state of the load at the time it was last advanced to: every pod's counters, every queue's depth.

    `traffic` is by the application's name, `backlogs` by the queue's. Times are seconds since the load began.
    """

    def __init__(self, *, traffic: Mapping[str, Traffic], backlogs: Mapping[str, Backlog]) -> None:
        self.traffic = traffic
        self.backlogs = backlogs
        self._time = 0.0
        self._ready: Mapping[str, Collection[str]] = {}
        self._counters: dict[tuple[str, str], float] = defaultdict(float)
        self._depths = dict.fromkeys(backlogs, 0.0)

    def advance(self, time: float) -> None:
        """Let the ready pods take their share of what came up to `time`. Times never go back."""
        start, self._time = self._time, max(self._time, time)
        for application, traffic in self.traffic.items():
            pods = self._ready.get(application, ())
            for pod in pods:
                share = traffic.wave.amount(start, self._time) / len(pods)
                for counter, factor in traffic.counters.items():
                    self._counters[pod, counter] += share * factor
        for queue, backlog in self.backlogs.items():
            drained = backlog.drain * len(self._ready.get(backlog.workers, ())) * (self._time - start)
            self._depths[queue] = max(0.0, self._depths[queue] + backlog.wave.amount(start, self._time) - drained)

    def set_ready(self, time: float, ready: Mapping[str, Collection[str]]) -> None:
        """From `time` on, these pods (names by application) share the load."""
        self.advance(time)
        self._ready = ready

    def forget(self, pod: str) -> None:
        """Drop the counters of a pod that is gone."""
        for key in [key for key in self._counters if key[0] == pod]:
            del self._counters[key]

    def counters(self, application: str, pod: str) -> dict[str, float]:
        """The pod's counters by name; zero where it has taken nothing yet."""
        return {counter: self._counters.get((pod, counter), 0.0) for counter in self.traffic[application].counters}

    def depth(self, queue: str) -> float:
        """Units that wait in the queue."""
        return self._depths[queue]
