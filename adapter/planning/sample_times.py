"""When the next sample of a query's series can be there, so that its result expires then.

The result of an instant query has the time of its evaluation, and not of its samples. So some refreshes also query
`timestamp()` of the query's selectors, in the same request:

    (QUERY)
    or count_values("milliscale_newest", ceil(timestamp(SELECTOR) * 4))
    or count_values("milliscale_interval", ...)

The first has the times of the newest samples, in quarters of a second, one for each target that is scraped at another
time. The second has the interval between samples: the time between the newest sample and that of a minute ago,
divided by the number of samples since. It needs no targets API, holds for recording rules as for scrapes, and for a
server that has samples of several Prometheus.

Whatever is not certain is refreshed ahead (`adapter.caches`): a query whose result changes without a sample, samples at
different intervals, a sample that is not there when it should be, a server that refuses the longer query.
"""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from statistics import fmean

from promql_parser import Call, MatrixSelector, SubqueryExpr, VectorSelector

from adapter.caches import REFRESH_AFTER
from adapter.prometheus import Sample, Vector
from adapter.promql import PromqlError, bare, is_scalar, label_text, matcher_sign, matchers, parse, walk
from kube.values.fields import quote

_NEWEST, _INTERVAL = "milliscale_newest", "milliscale_interval"
_PARTS_OF_SECOND = 4
# Within it there is a sample at the longest interval that is learned.
_WINDOW, _WINDOW_SECONDS = "1m", 60.0
# The interval that most series have; the others may have missed a scrape.
_MOST = 0.75
_MAX_SELECTORS = 4
# Their result changes although there is no sample.
_OF_TIME = (
    *("absent", "absent_over_time", "day_of_month", "day_of_week", "day_of_year", "days_in_month", "hour", "minute"),
    *("month", "predict_linear", "time", "timestamp", "year"),
)
# They have a value from the second sample on.
_OF_TWO_SAMPLES = frozenset({"delta", "deriv", "idelta", "increase", "irate", "rate"})
_MIN_INTERVAL, _MAX_INTERVAL = 1.0, 60.0
# Scrapes are not exact, so neither are intervals.
_SAME_INTERVAL = 0.1
# How long after its timestamp a sample can be queried, which is the time of its scrape, at first and at most.
_LAG, _MAX_LAG = 0.25, 1.0
# A query that takes longer than this part of the time between two is not sent more often, and gets no more work.
_EXPENSIVE = 0.02
# How often the times are learned: where nothing depends on each sample, after they were not certain, and after
# Prometheus has refused the query.
_LEARN_SECONDS, _RETRY_SECONDS, REFUSED_SECONDS = 60.0, 20.0, 600.0
_LATE_SECONDS = 600.0
# So many objects with samples of the same quarter of a second are of one target, and not each of its own.
_OF_ONE_TARGET = 3
# A target that missed this many intervals is down or gone.
_GONE = 1.5


@dataclass(frozen=True, slots=True)
class Selectors:
    """What a query reads: its selectors, and the ranges of those that have one, with the functions of these.

    `instant`: a series may have a value with its first sample.
    """

    texts: tuple[str, ...]
    ranges: tuple[tuple[str, timedelta], ...]
    instant: bool

    @classmethod
    def of(cls, query: str) -> Selectors | None:
        """Read a query; None if its result can change without a new sample, or is no vector."""
        try:
            tree = parse(query)
            texts: list[str] = []
            ranges: list[tuple[str, timedelta]] = []
            found = of_two = 0
            for expr in walk(tree):
                match expr:
                    case SubqueryExpr():
                        return None
                    case Call():
                        name = expr.func.name
                        if name in _OF_TIME:
                            return None
                        of_two += name in _OF_TWO_SAMPLES
                        ranges += [(name, one.range) for one in map(bare, expr.args) if isinstance(one, MatrixSelector)]
                    case VectorSelector():
                        terms = list(matchers(expr))
                        if expr.offset is not None or expr.at is not None or all(m.name != "__name__" for m in terms):
                            return None
                        shown = (f"{label_text(one.name)}{matcher_sign(one)}{quote(one.value)}" for one in terms)
                        texts.append(f"{{{','.join(shown)}}}")
                        found += 1
        except PromqlError:
            return None
        distinct = tuple(dict.fromkeys(texts))
        if is_scalar(tree) or not 0 < len(distinct) <= _MAX_SELECTORS:
            return None
        return cls(distinct, tuple(ranges), instant=found > of_two)

    @property
    def query(self) -> str:
        """The query for the times of their samples; see `read_ages`."""
        return "\nor ".join(part for text in self.texts for part in _times_of(text))


def _times_of(selector: str) -> Iterator[str]:
    newest = f"timestamp({selector})"
    yield f'count_values("{_NEWEST}", ceil({newest} * {_PARTS_OF_SECOND}))'
    between = f"({newest} - timestamp({selector} offset {_WINDOW})) / count_over_time({selector}[{_WINDOW}])"
    yield f'count_values("{_INTERVAL}", round({between}, 0.05))'


def read_ages(result: Vector) -> tuple[Vector, list[float], float]:
    """Return the result without the times, the ages of the newest samples, and the interval between samples.

    All in seconds. Where series have different intervals, it is 0.
    """
    ages: list[float] = []
    intervals: defaultdict[float, float] = defaultdict(float)
    others: list[Sample] = []
    for sample in result.samples:
        if _NEWEST in sample.labels:
            ages.append(sample.timestamp - _number(sample.labels[_NEWEST]) / _PARTS_OF_SECOND)
        elif _INTERVAL in sample.labels:
            intervals[_number(sample.labels[_INTERVAL])] += max(sample.value, 0.0)
        else:
            others.append(sample)
    interval = max(intervals, key=intervals.__getitem__, default=0.0)
    most = intervals[interval] >= _MOST * sum(intervals.values())
    return replace(result, samples=tuple(others)), ages, interval if most else 0.0


def _number(text: str) -> float:
    """Read the label of count_values; what is no finite number is 0, which is no time of a recent sample."""
    try:
        number = float(text)
    except ValueError:
        return 0.0
    return number if math.isfinite(number) else 0.0


class SampleClock:
    """When the samples of one cached query are due. Times of samples are rounded up to a quarter of a second."""

    def __init__(self, *, ttl: float, new_objects: bool) -> None:
        """`ttl` is in seconds. `new_objects`: the result has all objects, and requests need those that are new."""
        self._ttl = ttl
        self._new_objects = new_objects
        self._selectors: Selectors | None = None
        self._is_read = False
        self._newest: tuple[float, ...] = ()  # of each target; empty: not certain
        self._interval, self._interval_since = 0.0, -math.inf
        self._lag = _LAG
        self._late_at = -math.inf
        self._learn_at = -math.inf

    async def query(self, query: str, *, now: float, seconds: float) -> str:
        """Return the query to send for a refresh: with the times of samples if they are needed.

        `seconds` is how long it took the last time.
        """
        if now < self._learn_at:
            return query
        if not self._is_read:
            self._selectors, self._is_read = await asyncio.to_thread(Selectors.of, query), True
        if self._selectors is None or seconds > _EXPENSIVE * self._ttl:
            self.give_up(now)
            return query
        return f"({query}\n)\nor {self._selectors.query}"

    def give_up(self, now: float, *, seconds: float = _RETRY_SECONDS) -> None:
        """Refresh by the TTL, and learn nothing for a while."""
        self._newest, self._learn_at = (), now + seconds

    def learn(self, result: Vector, *, now: float) -> Vector:
        """Read the times of samples from the result of `query`, and return the result without them.

        `now` is the time when Prometheus evaluated the query.
        """
        values, ages, interval = read_ages(result)
        # An outage of Prometheus makes it seem longer for a minute.
        if abs(interval - self._interval) > _SAME_INTERVAL:
            self._interval, self._interval_since = interval, now
        newest = tuple(now - age for age in ages if age < _GONE * interval)
        late = any(one + interval + self._lag <= now for one in newest)
        if not newest or not self._can_wait(len(newest), interval, values, now) or (late and self._lag >= _MAX_LAG):
            self.give_up(now)
            return values
        # A late sample is looked for at the usual time, and then with more lag.
        if late:
            self._lag, self._late_at = min(2 * self._lag, _MAX_LAG), now
        elif now - self._late_at > _LATE_SECONDS:
            self._lag = _LAG
        self._newest = () if late else newest
        self._learn_at = now + _LEARN_SECONDS if interval <= self._ttl and not late else now
        return values

    def _can_wait(self, targets: int, interval: float, values: Vector, now: float) -> bool:
        """Return whether a result is good until there is the next sample."""
        if not _MIN_INTERVAL <= interval <= _MAX_INTERVAL or values.seconds > _EXPENSIVE * interval:
            return False
        if interval <= self._ttl:
            return True
        assert self._selectors is not None
        # A range of other lengths than whole intervals loses samples at other times than those of new ones.
        steps = [one.total_seconds() / interval for _, one in self._selectors.ranges]
        if now - self._interval_since < _WINDOW_SECONDS or any(abs(step - round(step)) >= 0.01 for step in steps):
            return False
        # The first sample of a new object is a value, where no rate needs two, and may come at any time, unless one
        # target has those of all objects.
        one_target = targets == 1 and len(values.samples) >= _OF_ONE_TARGET
        return one_target or not (self._new_objects and self._selectors.instant)

    def due(self, now: float) -> float | None:
        """Return when the result of a query that ended now expires; None: as usual.

        With an interval up to the TTL there is one query in each, when the samples are youngest on average. Otherwise
        a query has all samples of nine tenths of a TTL, so there are hardly more than without this.
        """
        if not self._newest:
            return None
        interval, ttl = self._interval, self._ttl
        # When the next sample of each target can be queried.
        nexts = [now + interval - (now - self._lag - one) % interval for one in self._newest]
        nexts = sorted({math.ceil(at * 100) / 100 for at in nexts})  # not before, else the result expires at once again
        if interval <= ttl:
            return min(nexts, key=lambda at: (round(fmean((at - one) % interval for one in nexts), 1), -at))
        last = nexts[0] + max(REFRESH_AFTER * ttl - self._lag, 0.0)
        return max(at for at in nexts if at <= last)
