"""Judge one HPA by its history: what reality cost, what a higher target would save, and whether that is sure.

What a pod can serve is not known here. It is at least what the pods have carried: the load per ready pod that was
carried for some minutes, at times below maxReplicas and not shortly before a scale-up. Single samples do not count,
since during a rollout few pods are ready for a moment. A target above a share of that is never advised. A metric whose
load per pod has not reached its target does not decide the replicas, and its target stays.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Final

import msgspec

from autoscaler.core.model import HPA, MetricSpec
from autoscaler.objects.hpa import parse_hpa
from replay.hpa_files import HPAFile, check_requests
from replay.load import Load, ReplayError, Series, metric_key, metric_name
from replay.reality import shown_capacity
from replay.results import total
from replay.simulation import Settings, target_per_pod
from replay.tune.evaluation import LEAST_DAYS, Days, Problem, Run, TuneOptions, days_of, evaluate
from replay.tune.goal import pod_hours_of, saved
from replay.tune.report import saved_pod_hours_interval
from replay.tune.tuning import Tuned, Verdict, make_search, result

_MAX_REPLAYS: Final = 5
_NOTABLE: Final = 0.01
"""Of the time at maxReplicas, which is then too low, and of the load in overload."""
_NEARLY_ALWAYS: Final = 0.9
_LIKE_REALITY: Final = 0.1
"""A replay whose pod-hours differ by more from the real ones says nothing about the HPA."""
_GOOD: Final = "none: it is good"
TOO_FEW_DAYS: Final = "too few days"


class TargetAdvice(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A target that would do."""

    metric: str
    given: str
    """As in the spec: `80%`, or a quantity."""
    advised: str


class Advice(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The advice on an HPA, as JSON has it. Shares are between 0 and 1; None: not known."""

    namespace: str
    name: str
    api_version: str
    reason: str = ""
    """Why it cannot be judged; "" if it can."""
    days: int = 0
    """The number of days with load."""
    pod_hours: float | None = None
    """The real ones."""
    overload: float | None = None
    """Share of the load above what reality carried."""
    at_max: float | None = None
    """Share of the time at maxReplicas or above."""
    capacity_at_least: dict[str, float] = {}
    """{metric: the load that a pod has carried, in the metric's unit}."""
    advice: str = ""
    targets: list[TargetAdvice] = []
    saved_pod_hours: float | None = None
    """Of `pod_hours`, as many as the replays save."""
    saved_share: float | None = None
    saved_low: float | None = None
    """The 90 % interval of `saved_share`; None for less than a week."""
    saved_high: float | None = None
    sure: str = ""
    """`yes`, `no`, with the reason, or `too few days`."""


def unjudged(hpa: HPA, error: ReplayError) -> Advice:
    """Return the advice on an HPA that cannot be judged."""
    reason = str(error).removeprefix(f"{hpa.key}: ")
    return Advice(namespace=hpa.namespace, name=hpa.name, api_version=hpa.api_version, reason=reason)


def judge(file: HPAFile, load: Load, settings: Settings, options: TuneOptions) -> Advice:
    """Return the advice on an HPA, also if it cannot be judged. The overload of the options may be that of the HPA."""
    try:
        return _judge(file, load, settings, options)
    except ReplayError as error:
        return unjudged(file.hpa, error)


def _judge(file: HPAFile, load: Load, settings: Settings, options: TuneOptions) -> Advice:
    hpa = file.hpa
    check_requests([file], load.requests)
    days = days_of(load)
    real_hours = _pod_hours(load.replicas, days.counted_from_ms, load.end_ms)
    if not real_hours:
        raise ReplayError("the real replicas are not in Prometheus, which kube-state-metrics has")
    assert load.replicas is not None
    known = _known(load.replicas, load.start_ms, load.end_ms)
    length = max(sum(length for length, _ in known), 1)
    at_max = sum(length for length, replicas in known if replicas >= hpa.spec.max_replicas) / length
    at_min = sum(length for length, replicas in known if replicas <= hpa.spec.min_replicas) / length
    counted = _days_with_load(load, days)
    if not counted:
        raise ReplayError("the load is zero, or has no values most of the time")
    found = Advice(
        namespace=hpa.namespace,
        name=hpa.name,
        api_version=hpa.api_version,
        days=counted,
        pod_hours=real_hours,
        at_max=at_max,
    )
    capacity = {key: value for key, (value, _) in shown_capacity(hpa, load).items()}
    fixed = _without_search(hpa, load, at_max, at_min, has_capacity=bool(capacity))
    if not capacity:
        return _without_target(found, fixed)
    if load.startup is None:  # the samples of the replicas are too far apart to show it
        raise ReplayError("the time until a new pod is ready is not recorded: give --pod-startup")
    settings = dataclasses.replace(settings, capacity=capacity, pod_startup_ms=load.startup.milliseconds)
    given = evaluate(Problem(file=file, load=load, settings=settings), Run({}))
    overload = total(given).overload_ratio
    found = msgspec.structs.replace(found, overload=overload, capacity_at_least=capacity)
    if fixed:
        return _without_target(found, fixed)
    goal = dataclasses.replace(options.goal, max_overload=max(options.goal.max_overload or 0.0, overload))
    problem = Problem(file=file, load=load, settings=settings, options=dataclasses.replace(options, goal=goal))
    search = make_search(problem, given, lambda runs: [evaluate(problem, run) for run in runs])
    search.max_replays = _MAX_REPLAYS
    search.run()
    return _by_search(found, hpa, result(problem, search, search.best))


def _known(series: Series, start_ms: int, end_ms: int) -> list[tuple[int, float]]:
    """Return (milliseconds, value) of the parts of a time that have a value."""
    return [(end - start, value) for start, end, value in series.segments(start_ms, end_ms) if not math.isnan(value)]


def _pod_hours(replicas: Series | None, start_ms: int, end_ms: int) -> float:
    """Return the real replicas, integrated; 0 if there were none, or they are not recorded."""
    known = _known(replicas, start_ms, end_ms) if replicas is not None else ()
    return sum(length * value for length, value in known) / 3_600_000


def _days_with_load(load: Load, days: Days) -> int:
    """Return the number of days on which a metric is not zero, and has values most of the time."""
    if not days.are_days:
        return 0

    def has_load(start_ms: int, end_ms: int, series: Series) -> bool:
        known = _known(series, start_ms, end_ms)
        return any(value for _, value in known) and 2 * sum(length for length, _ in known) >= end_ms - start_ms

    spans = zip(days.starts_ms, days.ends_ms, strict=True)
    return sum(any(has_load(*span, series) for series in load.series.values()) for span in spans)


def _may_need(hpa: HPA, load: Load, replicas: float) -> bool:
    """Return whether the load of a metric has come near to the targets of so many, or has no target per pod."""
    for spec in hpa.spec.metrics:
        target, values = target_per_pod(spec, load.requests), load.series[metric_key(spec.source)].values
        if target is None or any(value >= _NEARLY_ALWAYS * target * (replicas - 1) for value in values):
            return True
    return False


def _without_search(hpa: HPA, load: Load, at_max: float, at_min: float, *, has_capacity: bool) -> str:
    """Return the advice that needs no replays; "" if they are needed."""
    if hpa.spec.min_replicas == hpa.spec.max_replicas:
        return "none: minReplicas is maxReplicas"
    if at_max >= _NOTABLE:
        shown = f"at max {at_max:.0%} of the time"
        if _may_need(hpa, load, hpa.spec.max_replicas):
            return f"raise maxReplicas: {shown}"
        return f"find out why: {shown}, which its load never needed"
    if has_capacity:
        return ""
    if at_min >= _NEARLY_ALWAYS:
        return f"none for the target: at minReplicas {at_min:.0%} of the time"
    assert load.replicas is not None
    least = min(value for value in load.replicas.values if not math.isnan(value))
    if least > hpa.spec.min_replicas and not _may_need(hpa, load, least):
        return f"find out why: never below {least:g} replicas, which its load never needed"
    return _GOOD


def _without_target(found: Advice, advice: str) -> Advice:
    if found.days >= LEAST_DAYS:
        return msgspec.structs.replace(found, advice=advice, sure="yes")
    return msgspec.structs.replace(found, advice=TOO_FEW_DAYS if advice == _GOOD else advice, sure=TOO_FEW_DAYS)


def _by_search(found: Advice, hpa: HPA, tuned: Tuned) -> Advice:
    """Return the advice with the result of a search."""
    winner = tuned.winner
    if winner is None:
        is_good = (found.overload or 0.0) < _NOTABLE
        return _without_target(found, _GOOD if is_good else "none: its overload allows no higher target")
    share = saved(*pod_hours_of(tuned.pairs()))
    low, high = saved_pod_hours_interval(tuned) or (None, None)
    difference = _difference(tuned)
    if found.days < LEAST_DAYS:
        sure = TOO_FEW_DAYS
    elif abs(difference) > _LIKE_REALITY:
        more = "more" if difference > 0 else "fewer"
        sure = f"no: the replay of the present HPA has {abs(difference):.0%} {more} pod-hours than reality"
    else:
        sure = "yes" if tuned.verdict is Verdict.BETTER else "no"
    targets = [
        TargetAdvice(metric=metric_name(before.source), given=_target(before), advised=_target(after))
        for before, after in zip(hpa.spec.metrics, parse_hpa(winner.document).spec.metrics, strict=True)
        if before.target != after.target
    ]
    several = len(hpa.spec.metrics) > 1
    texts = [f"{f'{each.metric} ' * several}target {each.advised} (now {each.given})" for each in targets]
    return msgspec.structs.replace(
        found,
        advice=", ".join(texts),
        targets=targets,
        saved_pod_hours=share * (found.pod_hours or 0.0),
        saved_share=share,
        saved_low=low,
        saved_high=high,
        sure=sure,
    )


def _difference(tuned: Tuned) -> float:
    """Return by how much the pod-hours of the given spec's replay differ from the real ones, on days with load."""
    days, real, replayed = tuned.days, 0.0, 0.0
    starts = (days.counted_from_ms, *days.starts_ms[1:])
    for start_ms, end_ms, figures in zip(starts, days.ends_ms, tuned.given.days, strict=True):
        if figures.has_load:
            real += _pod_hours(tuned.load.replicas, start_ms, end_ms)
            replayed += figures.pod_hours
    return replayed / real - 1 if real else math.inf


def _target(spec: MetricSpec) -> str:
    target = spec.target
    if target.average_value is not None:
        return str(target.average_value)
    return f"{target.average_utilization}%" if target.average_utilization is not None else str(target.value)
