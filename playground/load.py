"""The demo's load as a function of time, and the counters and queues that follow from it.

Pure: time is a parameter, nothing is random. Rates are waves with a known integral, so counters are exact at any time.
The ready pods of an application share its traffic equally, and workers drain their queue, so that scaling has an effect
on the next measurement.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol


class Rate(Protocol):
    """A rate as a function of time."""

    def amount(self, start: float, end: float) -> float:
        """Return the integral of the rate between two times."""


@dataclass(slots=True, kw_only=True)
class Step:
    """A rate of `low` units per second until the time `at`, and then of `high`."""

    low: float
    high: float
    at: float = math.inf

    def amount(self, start: float, end: float) -> float:
        """Return the integral of the rate between two times."""
        return self.low * (end - start) + (self.high - self.low) * max(0.0, end - max(start, self.at))


@dataclass(frozen=True, slots=True, kw_only=True)
class Wave:
    """A rate between `low` and `high` units per second, with a period in seconds.

    It is lowest at `offset` seconds and highest half a period later.
    """

    low: float
    high: float
    period: float
    offset: float = 0.0

    def rate(self, time: float) -> float:
        """Return the units per second at `time`."""
        return self.low + (self.high - self.low) * (1 - math.cos(self._angle(time))) / 2

    def amount(self, start: float, end: float) -> float:
        """Return the integral of the rate between two times."""
        middle = (self.low + self.high) / 2
        swing = (self.high - self.low) / 2 * self.period / math.tau
        return middle * (end - start) - swing * (math.sin(self._angle(end)) - math.sin(self._angle(start)))

    def _angle(self, time: float) -> float:
        return math.tau * (time - self.offset) / self.period


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """Traffic that the ready pods of an application share; `counters` is how much one unit advances each counter."""

    wave: Rate
    counters: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """A queue: units arrive at the rate `wave`; each ready pod of application `workers` drains `drain` per second."""

    wave: Wave
    workers: str
    drain: float


class Load:
    """The state of the load: each pod's counters and each queue's depth.

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
        """Advance counters and queues to `time`, which never goes back."""
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
        """Set the pods (names by application) that share the load from `time` on."""
        self.advance(time)
        self._ready = ready

    def remove_pod(self, pod: str) -> None:
        """Drop the counters of a deleted pod."""
        for key in [key for key in self._counters if key[0] == pod]:
            del self._counters[key]

    def counters(self, application: str, pod: str) -> dict[str, float]:
        """Return the pod's counters by name."""
        return {counter: self._counters.get((pod, counter), 0.0) for counter in self.traffic[application].counters}

    def depth(self, queue: str) -> float:
        """Return the number of units in the queue."""
        return self._depths[queue]
