"""Compare decisions in shadow mode with kube-controller-manager's, read from the HPAs' statuses.

The two controllers sync at different times, and metrics change in between. So a decision is compared with all values of
`status.desiredReplicas` within one and a half sync periods before and after it, in which kube-controller-manager has
synced at least once. It agrees if one of the values is equal. A difference that lasts is found by a later decision.
Between two writes the status keeps its value, because an unchanged status is not written.

After a start the process does not know kube-controller-manager's history. Differences are not counted until every
window of the HPA has passed once.

Times are milliseconds of the history's clock (`autoscaler.core.history`).
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

import msgspec
from msgspec.structs import replace

from autoscaler.core.config import Config
from autoscaler.core.decision import Decision
from autoscaler.core.model import HPA, HPAKey, Status
from autoscaler.core.stabilization import stabilization_windows
from autoscaler.core.status import ABLE_TO_SCALE, SCALING_ACTIVE
from autoscaler.records.record import time_text

SHADOW_PATH: Final = "/debug/shadow"
"""The address of the comparison on --metrics-port."""

_WINDOW_PERIODS: Final = 1.5
_MAX_DIFFERENCES: Final = 20


class Verdict(StrEnum):
    """How a decision compares with kube-controller-manager's desired replicas in the window around it."""

    AGREED = "agreed"
    """One value is equal, or both found no count."""
    HIGHER = "higher"
    """Ours is higher than all values."""
    LOWER = "lower"
    """Ours is lower than all values."""
    PASSED = "passed"
    """The values go past ours without being equal, because they saw another moment of a change."""
    ONLY_OURS = "only_ours"
    """Only we found a count."""
    ONLY_THEIRS = "only_theirs"
    """Only kube-controller-manager found a count."""
    WARMING_UP = "warming_up"
    """They differ, but perhaps because of history from before the start of this process."""


@dataclass(frozen=True, slots=True)
class DesiredReplicas:
    """Kube-controller-manager's desired replicas from a time on; None: it found no count."""

    time_ms: int
    replicas: int | None


class Comparison(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One decision, compared."""

    time: str = ""
    """The time of our decision: RFC 3339, UTC."""
    ours: int | None
    """Our desired replicas; None: no count was found."""
    theirs: int | None
    """Kube-controller-manager's; if they differ, at the end of the window."""
    verdict: str
    lag_seconds: float = 0.0
    """How much later kube-controller-manager had the same value; negative: how much earlier it left that value."""

    @property
    def difference(self) -> int:
        """Our replicas less theirs; 0 if one has no count."""
        return 0 if self.ours is None or self.theirs is None else self.ours - self.theirs


def desired_replicas(status: Status) -> int | None:
    """Return the desired replicas of a status; None if its conditions say that no count was found."""
    for condition in status.conditions:
        if condition.status == "False" and (
            (condition.type == ABLE_TO_SCALE and condition.reason == "FailedGetScale")
            or (condition.type == SCALING_ACTIVE and condition.reason != "ScalingDisabled")
        ):
            return None
    return status.desired_replicas


def compare(
    time_ms: int, ours: int | None, theirs: Sequence[DesiredReplicas], *, window_passed: bool
) -> Comparison | None:
    """Compare a decision with kube-controller-manager's desired replicas in the window around it.

    Args:
        time_ms: the time of the decision.
        ours: its desired replicas; None if no count was found.
        theirs: the values in the window, oldest first.
        window_passed: False: values may follow, so the result is an agreement or None.
    """
    if not theirs:
        return None
    lags = [
        _lag_ms(time_ms, each, successor)
        for each, successor in zip(theirs, (*theirs[1:], None), strict=True)
        if each.replicas == ours
    ]
    if lags:
        lag_ms = min(lags, key=abs)
        return Comparison(ours=ours, theirs=ours, verdict=Verdict.AGREED, lag_seconds=lag_ms / 1000)
    if not window_passed:
        return None
    counts = [each.replicas for each in theirs if each.replicas is not None]
    if ours is None:
        verdict = Verdict.ONLY_THEIRS
    elif not counts:
        verdict = Verdict.ONLY_OURS
    elif ours > max(counts):
        verdict = Verdict.HIGHER
    else:
        verdict = Verdict.LOWER if ours < min(counts) else Verdict.PASSED
    return Comparison(ours=ours, theirs=theirs[-1].replicas, verdict=verdict)


@dataclass(slots=True)
class HPAComparisons:
    """The comparisons on one HPA."""

    uid: str
    warm_ms: int
    """The time from which differences count."""
    counts: Counter[str] = field(default_factory=Counter)
    last: Comparison | None = None
    differences: deque[Comparison] = field(default_factory=lambda: deque(maxlen=_MAX_DIFFERENCES))
    """The latest that did not agree, oldest first."""
    theirs: list[DesiredReplicas] = field(default_factory=list)
    """Kube-controller-manager's desired replicas, as far back as they are still needed."""
    pending: deque[tuple[int, str, int | None]] = field(default_factory=deque)
    """Our decisions that are not compared yet: time by the history's clock, time as text, and desired replicas."""


@dataclass(kw_only=True)
class ShadowComparer:
    """Compares the decisions on all HPAs in shadow mode.

    Args:
        sync_period: kube-controller-manager's, in seconds.
        config: the settings by flag.
        on_comparison: called with each comparison.
    """

    sync_period: float
    config: Config
    on_comparison: Callable[[HPAKey, Comparison], None] = lambda _key, _comparison: None
    _hpas: dict[HPAKey, HPAComparisons] = field(default_factory=dict, init=False)

    @property
    def window_ms(self) -> int:
        """An equal value agrees if it is at most this much earlier or later."""
        return round(self.sync_period * 1000 * _WINDOW_PERIODS)

    def add_status(self, hpa: HPA, now_ms: int) -> None:
        """Take the desired replicas from an HPA's status, which kube-controller-manager has written."""
        if not hpa.status.conditions:
            return  # not synced yet
        compared = self._compared(hpa, now_ms)
        replicas = desired_replicas(hpa.status)
        if not compared.theirs or compared.theirs[-1].replicas != replicas:
            compared.theirs.append(DesiredReplicas(now_ms, replicas))
        self._compare_pending(hpa.key, compared, now_ms)

    def add_decision(self, decision: Decision) -> None:
        """Compare a decision of ours, at once or when the window has passed."""
        if decision.current_replicas is None:
            return  # the scale could not be read
        hpa = decision.observation.hpa
        compared = self._compared(hpa, decision.monotonic_ms)
        ours = None if decision.failed else decision.status.desired_replicas
        compared.pending.append((decision.monotonic_ms, time_text(decision.now_ms), ours))
        self._compare_pending(hpa.key, compared, decision.monotonic_ms)

    def remove(self, key: HPAKey) -> None:
        """Remove an HPA that was deleted, or is no longer in shadow mode."""
        self._hpas.pop(key, None)

    def comparisons(self, now_ms: int) -> dict[HPAKey, HPAComparisons]:
        """Return the comparisons of each HPA in shadow mode."""
        for key, compared in self._hpas.items():
            self._compare_pending(key, compared, now_ms)
        return dict(self._hpas)

    def _compared(self, hpa: HPA, now_ms: int) -> HPAComparisons:
        compared = self._hpas.get(hpa.key)
        if compared is None or compared.uid != hpa.uid:
            compared = HPAComparisons(uid=hpa.uid, warm_ms=now_ms + _longest_window_ms(hpa, self.config))
            self._hpas[hpa.key] = compared
        return compared

    def _compare_pending(self, key: HPAKey, compared: HPAComparisons, now_ms: int) -> None:
        """Compare the pending decisions in order, as far as they can be compared now."""
        while compared.pending:
            time_ms, time, ours = compared.pending[0]
            end_ms = time_ms + self.window_ms
            theirs = _within(compared.theirs, time_ms - self.window_ms, end_ms)
            comparison = compare(time_ms, ours, theirs, window_passed=now_ms > end_ms)
            if comparison is None and now_ms <= end_ms:
                break
            compared.pending.popleft()
            if comparison is not None:
                self._count(key, compared, replace(comparison, time=time), is_warm=time_ms >= compared.warm_ms)
        earliest_ms = compared.pending[0][0] if compared.pending else now_ms
        compared.theirs = _within(compared.theirs, earliest_ms - self.window_ms, now_ms)

    def _count(self, key: HPAKey, compared: HPAComparisons, comparison: Comparison, *, is_warm: bool) -> None:
        if comparison.verdict != Verdict.AGREED:
            if not is_warm:
                comparison = replace(comparison, verdict=Verdict.WARMING_UP)
            compared.differences.append(comparison)
        compared.last = comparison
        compared.counts[comparison.verdict] += 1
        self.on_comparison(key, comparison)


def _within(theirs: Sequence[DesiredReplicas], start_ms: int, end_ms: int) -> list[DesiredReplicas]:
    """Return the values that were valid at some time from start to end."""
    before = [each for each in theirs if each.time_ms <= start_ms]
    return [*before[-1:], *(each for each in theirs if start_ms < each.time_ms <= end_ms)]


def _lag_ms(time_ms: int, theirs: DesiredReplicas, successor: DesiredReplicas | None) -> int:
    """Return how long after `time_ms` a value began, or how long before it ended (negative); 0: it was valid then."""
    if theirs.time_ms > time_ms:
        return theirs.time_ms - time_ms
    return 0 if successor is None or successor.time_ms > time_ms else successor.time_ms - time_ms


def _longest_window_ms(hpa: HPA, config: Config) -> int:
    """Return how far back a decision on an HPA may depend on its history."""
    config, behavior = hpa.overrides.apply_to(config), hpa.spec.behavior
    windows = list(stabilization_windows(behavior, config.downscale_stabilization_ms))
    if behavior is not None:
        both = (*behavior.scale_up.policies, *behavior.scale_down.policies)
        windows += [1000 * policy.period_seconds for policy in both]
    return max(windows)


# --- the page ------------------------------------------------------------------------------------------------------


class HPAEntry(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The comparisons on one HPA since the process started, or since the HPA entered shadow mode."""

    namespace: str
    name: str
    group: str
    comparisons: dict[str, int]
    """The number per verdict."""
    agreement: float | None
    """The fraction that agreed, without those of verdict warming_up; null: there are none yet."""
    waiting: int
    """The number of decisions that are not compared yet."""
    last: Comparison | None
    differences: list[Comparison]
    """The latest that did not agree, oldest first."""


class ShadowPage(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """All HPAs in shadow mode."""

    version: int = 1
    window_seconds: float
    """An equal value of kube-controller-manager agrees if it is at most this much earlier or later."""
    agreement: float | None
    """Of all HPAs."""
    hpas: list[HPAEntry]


def page_of(comparer: ShadowComparer, now_ms: int) -> ShadowPage:
    """Return the comparisons at a time by their clock."""
    comparisons = comparer.comparisons(now_ms)
    return ShadowPage(
        window_seconds=comparer.window_ms / 1000,
        agreement=_agreement(comparisons.values()),
        hpas=[_entry(key, comparisons[key]) for key in sorted(comparisons)],
    )


def _entry(key: HPAKey, compared: HPAComparisons) -> HPAEntry:
    return HPAEntry(
        namespace=key.namespace,
        name=key.name,
        group=key.group,
        comparisons={str(verdict): compared.counts[verdict] for verdict in Verdict},
        agreement=_agreement([compared]),
        waiting=len(compared.pending),
        last=compared.last,
        differences=list(compared.differences),
    )


def _agreement(hpas: Iterable[HPAComparisons]) -> float | None:
    agreed = counted = 0
    for compared in hpas:
        agreed += compared.counts[Verdict.AGREED]
        counted += compared.counts.total() - compared.counts[Verdict.WARMING_UP]
    return agreed / counted if counted else None
