"""Shadow mode's comparisons: what this controller decides against what the built-in one decides.

The two never look at the same moment: each has its own schedule, and metrics and windows move on in between. So a
decision is not compared with what the other wants at that instant alone, but with all that it wants within one and a
half sync periods before and after it, in which the other has looked at least once. It agrees if the other wants the
same number at some time in there; how much later or earlier that is, is the lag. A difference that is one of timing
passes as such, and one that stays is found by the next decision, when the window no longer hides it.

What the other wants is in the HPA's status: `desiredReplicas`, or nothing where a condition says that no count could be
found. Between two writes of the status the wish stays, since an unchanged status is not written.

After a start this process does not know what the other remembers of the minutes before. Differences are not held
against either until every window of the HPA has passed once.

Times are milliseconds of the history's clock (`autoscaler.core.history`), as only differences matter here.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from autoscaler.core.conditions import ABLE_TO_SCALE, SCALING_ACTIVE
from autoscaler.core.config import Config
from autoscaler.core.decision import Decision
from autoscaler.core.model import HPA, HPAKey, Status

_PERIODS_WAITED: Final = 1.5
_DIFFERENCES_KEPT: Final = 20
_FAILED_SCALE: Final = "FailedGetScale"
_DISABLED: Final = "ScalingDisabled"


class Verdict(StrEnum):
    """How a decision of ours compares with what the built-in controller wants in the window around it."""

    AGREED = "agreed"
    """It wants the same, or has no count where we have none."""
    HIGHER = "higher"
    """Ours is higher than whatever it wants."""
    LOWER = "lower"
    """Ours is lower than whatever it wants."""
    PASSED = "passed"
    """It goes past our number without stopping there: it has looked at another moment of a change."""
    ONLY_OURS = "only_ours"
    """It has no count, and we do."""
    ONLY_THEIRS = "only_theirs"
    """It has a count, and we do not."""
    WARMING_UP = "warming_up"
    """They differ, but what it remembers may be older than this process."""


@dataclass(frozen=True, slots=True)
class Wish:
    """A replica count that the built-in controller wants from a time on; None: it could not find any."""

    time_ms: int
    replicas: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One decision, compared."""

    time_ms: int
    """When we decided."""
    ours: int | None
    """What we decided; None: no count was found."""
    theirs: int | None
    """What the other wanted; where they differ, at the end of the window."""
    verdict: Verdict
    lag_ms: int = 0
    """How much later the other came to the same; negative: how much earlier it had left that again."""

    @property
    def difference(self) -> int:
        """Our replicas less theirs; 0 where one has no count."""
        return 0 if self.ours is None or self.theirs is None else self.ours - self.theirs


def wish_of(status: Status) -> int | None:
    """What the writer of an HPA's status wants; None: it says that it could not find a count."""
    for condition in status.conditions:
        if condition.status != "False":
            continue
        if condition.type == ABLE_TO_SCALE and condition.reason == _FAILED_SCALE:
            return None
        if condition.type == SCALING_ACTIVE and condition.reason != _DISABLED:
            return None
    return status.desired_replicas


def judge(time_ms: int, ours: int | None, wishes: Sequence[Wish], *, complete: bool) -> Comparison | None:
    """Compare a decision with the wishes in the window around it.

    Args:
        time_ms: when it was made.
        ours: the count, None where none was found.
        wishes: the other's that held at some time in the window, oldest first.
        complete: the window has passed. Before that only an agreement can be told; otherwise the answer is None.
    """
    if not wishes:
        return None
    successors = (*wishes[1:], None)
    lags = [
        _lag_ms(time_ms, wish, successor)
        for wish, successor in zip(wishes, successors, strict=True)
        if wish.replicas == ours
    ]
    if lags:
        lag_ms = min(lags, key=abs)
        return Comparison(time_ms=time_ms, ours=ours, theirs=ours, verdict=Verdict.AGREED, lag_ms=lag_ms)
    if not complete:
        return None
    theirs = wishes[-1].replicas
    counts = [wish.replicas for wish in wishes if wish.replicas is not None]
    if ours is None:
        verdict = Verdict.ONLY_THEIRS
    elif not counts:
        verdict = Verdict.ONLY_OURS
    elif ours > max(counts):
        verdict = Verdict.HIGHER
    else:
        verdict = Verdict.LOWER if ours < min(counts) else Verdict.PASSED
    return Comparison(time_ms=time_ms, ours=ours, theirs=theirs, verdict=verdict)


@dataclass(slots=True)
class Standing:
    """How the decisions on one HPA have compared so far."""

    uid: str
    warm_ms: int
    """From when on differences count."""
    counts: Counter[Verdict] = field(default_factory=Counter)
    last: Comparison | None = None
    differences: deque[Comparison] = field(default_factory=lambda: deque(maxlen=_DIFFERENCES_KEPT))
    """The latest that did not agree, oldest first."""
    wishes: list[Wish] = field(default_factory=list)
    """As far back as is still needed."""
    waiting: deque[tuple[int, int | None]] = field(default_factory=deque)
    """Time and count of the decisions that are not compared yet."""


class Shadow:
    """Compares the decisions on every HPA in shadow mode.

    Args:
        sync_period: that of the built-in controller, in seconds.
        config: what the flags say.
        on_comparison: told of each comparison as it is made.
    """

    def __init__(
        self,
        *,
        sync_period: float,
        config: Config,
        on_comparison: Callable[[HPAKey, Comparison], None] | None = None,
    ) -> None:
        self._window_ms = round(sync_period * 1000 * _PERIODS_WAITED)
        self._config = config
        self._on_comparison = on_comparison
        self._standings: dict[HPAKey, Standing] = {}

    @property
    def window_ms(self) -> int:
        """How much earlier or later than we the other may want the same."""
        return self._window_ms

    def saw(self, hpa: HPA, now_ms: int) -> None:
        """Take note of an HPA's status, written by the other."""
        if not hpa.status.conditions:
            return  # it has not looked at the HPA yet
        standing = self._standing(hpa, now_ms)
        replicas = wish_of(hpa.status)
        if not standing.wishes or standing.wishes[-1].replicas != replicas:
            standing.wishes.append(Wish(now_ms, replicas))
        self._settle(hpa.key, standing, now_ms)

    def decided(self, decision: Decision) -> None:
        """Take note of a decision of ours."""
        if decision.current_replicas is None:
            return  # there is no scale to decide on, or no API server to read it from
        hpa = decision.observation.hpa
        standing = self._standing(hpa, decision.monotonic_ms)
        ours = None if decision.failed else decision.status.desired_replicas
        standing.waiting.append((decision.monotonic_ms, ours))
        self._settle(hpa.key, standing, decision.monotonic_ms)

    def forget(self, key: HPAKey) -> None:
        """An HPA is gone, or no longer in shadow mode."""
        self._standings.pop(key, None)

    def standings(self, now_ms: int) -> dict[HPAKey, Standing]:
        """How every HPA in shadow mode stands now."""
        for key, standing in self._standings.items():
            self._settle(key, standing, now_ms)
        return dict(self._standings)

    def _standing(self, hpa: HPA, now_ms: int) -> Standing:
        standing = self._standings.get(hpa.key)
        if standing is None or standing.uid != hpa.uid:
            standing = Standing(uid=hpa.uid, warm_ms=now_ms + _longest_window_ms(hpa, self._config))
            self._standings[hpa.key] = standing
        return standing

    def _settle(self, key: HPAKey, standing: Standing, now_ms: int) -> None:
        """Compare what can be compared by now, in order."""
        while standing.waiting:
            time_ms, ours = standing.waiting[0]
            end_ms = time_ms + self._window_ms
            wishes = _within(standing.wishes, time_ms - self._window_ms, end_ms)
            complete = now_ms > end_ms
            comparison = judge(time_ms, ours, wishes, complete=complete)
            if comparison is None and not complete:
                break
            standing.waiting.popleft()
            if comparison is not None:
                self._count(key, standing, comparison)
        earliest_ms = standing.waiting[0][0] if standing.waiting else now_ms
        standing.wishes = _within(standing.wishes, earliest_ms - self._window_ms, now_ms)

    def _count(self, key: HPAKey, standing: Standing, comparison: Comparison) -> None:
        if comparison.verdict is not Verdict.AGREED:
            if comparison.time_ms < standing.warm_ms:
                comparison = _warming_up(comparison)
            standing.differences.append(comparison)
        standing.last = comparison
        standing.counts[comparison.verdict] += 1
        if self._on_comparison is not None:
            self._on_comparison(key, comparison)


def _within(wishes: Sequence[Wish], start_ms: int, end_ms: int) -> list[Wish]:
    """The wishes that held at some time from start to end."""
    before = [wish for wish in wishes if wish.time_ms <= start_ms]
    return [*before[-1:], *(wish for wish in wishes if start_ms < wish.time_ms <= end_ms)]


def _lag_ms(time_ms: int, wish: Wish, successor: Wish | None) -> int:
    """How long after `time_ms` a wish came, or how long before that it had ended (negative); 0: it held then."""
    if wish.time_ms > time_ms:
        return wish.time_ms - time_ms
    return 0 if successor is None or successor.time_ms > time_ms else successor.time_ms - time_ms


def _warming_up(comparison: Comparison) -> Comparison:
    return Comparison(
        time_ms=comparison.time_ms, ours=comparison.ours, theirs=comparison.theirs, verdict=Verdict.WARMING_UP
    )


def _longest_window_ms(hpa: HPA, config: Config) -> int:
    """How far back a decision on an HPA may look."""
    config, behavior = hpa.overrides.apply_to(config), hpa.spec.behavior
    windows = [config.downscale_stabilization_ms]
    if behavior is not None:
        down_ms = behavior.scale_down.stabilization_window_ms
        windows = [config.downscale_stabilization_ms if down_ms is None else down_ms]
        windows.append(behavior.scale_up.stabilization_window_ms or 0)
        windows += [policy.period_ms for rules in (behavior.scale_up, behavior.scale_down) for policy in rules.policies]
    return max(windows)
