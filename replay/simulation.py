"""Replay an HPA on recorded load: the controller's decisions, one reconciliation after the other.

Each step is an `Observation` of the model's pods and the recorded values, decided by `autoscaler.core.decide` with
the history and the status of the step before. The scale is applied at once. Recorded reconciliations are repeated as
they were, for as long as the replicas are the real ones (`replay.recorded`).
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from msgspec.structs import replace

from autoscaler.core.config import Config
from autoscaler.core.decide import conclude, decide
from autoscaler.core.decision import Decision
from autoscaler.core.history import store_scale_event
from autoscaler.core.model import HPA, MetricSpec, ResourceMetric, Status
from autoscaler.core.observation import Observation, Scale
from autoscaler.core.status import SCALED_TO_ZERO, Conditions
from replay.eager import early_scale_up
from replay.load import Load, RecordedDecision, ReplayError, Series, check_length, metric_key, metric_name, named_metric
from replay.merging import Merging
from replay.recorded import Recording
from replay.results import Moments, Replayed, Span, Step, Totals
from replay.shadow import Shadow
from replay.workload import Workload, integrate_overload, response

_SELECTOR: Final = "replay=pods"
_MILLI: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The assumptions of a replay, the same for all compared specs."""

    config: Config = field(default_factory=Config)
    """The controller's flags; the HPA's annotations apply to them."""
    step_ms: int = 15_000
    """The sync period, unless the HPA's annotation sets one."""
    offset_ms: int = 0
    """From the start of the load to the first reconciliation."""
    pod_startup_ms: int = 30_000
    initial_replicas: int | None = None
    """None: the recorded replicas, else those that the first values require."""
    capacity: Mapping[str, float] = field(default_factory=dict)
    """{`metric_key`: what one ready pod can serve, in the metric's unit}; see `capacity_of`."""
    pod_cost: float | None = None
    """Of a pod for an hour, in any currency."""
    max_pods: int | None = None
    """A replay with more pods is an error, because each takes memory; None: no limit."""
    explains_reality: bool = True
    """False: no usual settings of a controller explain the real replicas."""


def capacity_of(hpas: Sequence[HPA], given: Mapping[str, float]) -> dict[str, float]:
    """Return `Settings.capacity`, given {metric's key or name, or "" for the first metric: capacity}.

    Raises:
        ReplayError: there is no such metric.
    """
    sources = [spec.source for hpa in hpas for spec in hpa.spec.metrics]
    capacity = {metric_key(named_metric("--capacity", name, sources)): value for name, value in given.items()}
    # In the order of the specs; the first metric counts requests.
    return {key: capacity[key] for key in dict.fromkeys(map(metric_key, sources)) if key in capacity}


def target_per_pod(spec: MetricSpec, requests: Mapping[str, int]) -> float | None:
    """Return the target per pod in the metric's unit; None if the target is not one per pod. See check_requests."""
    target = spec.target
    if target.average_value is not None:
        return target.average_value.milli / _MILLI
    if isinstance(spec.source, ResourceMetric) and target.average_utilization is not None:
        return requests[metric_name(spec.source)] / _MILLI * target.average_utilization / 100
    return None


def simulate(
    hpa: HPA,
    load: Load,
    settings: Settings,
    *,
    merge: bool = False,
    ends_ms: Sequence[int] = (),
    shadow: Shadow | None = None,
) -> Iterator[Step]:
    """Yield the reconciliations of an HPA, from the start of the load to its end.

    With `merge`, a reconciliation and those after it that change nothing are one step, with the first one's values and
    decision. One that begins before a time of `ends_ms`, ascending, ends at the first reconciliation from then on.
    With `shadow`, the replicas are the real ones, which must be recorded.

    Raises:
        ReplayError: a metric is not in the load, there is no reconciliation in it, or there are too many pods.
    """
    config = hpa.overrides.apply_to(settings.config)
    if not load.decisions:
        config = _as_live(config)
    start_ms = load.start_ms + settings.offset_ms
    sources = [(metric_key(spec.source), spec.source) for spec in hpa.spec.metrics]
    series = [_series(load, key) for key, _ in sources]
    seen = [load.seen.get(key, _series(load, key)) for key, _ in sources]
    with_capacity = _with_capacity(load, settings)
    replicas = _initial_replicas(hpa, load, settings, start_ms)
    _check_pods(replicas, settings)
    workload = Workload(
        namespace=hpa.namespace,
        name=hpa.spec.scale_target_ref.name,
        requests=load.requests,
        replicas=replicas,
        startup_ms=settings.pod_startup_ms,
        now_ms=start_ms,
    )
    recording = Recording(load.decisions, sources, workload.template)
    hpa, history = replace(hpa, status=_initial_status(hpa, config, replicas, start_ms)), load.history
    is_eager = hpa.overrides.eager is True and shadow is None
    # The decisions of an HPA in eager mode have its early scale-ups.
    has_early = any(each.record.eager for each in load.decisions)
    resume_ms = start_ms

    def observe_at(now_ms: int, recorded: RecordedDecision | None = None) -> Observation:
        scale = Scale(spec_replicas=replicas, status_replicas=replicas, selector=_SELECTOR)
        observation = Observation(hpa=hpa, config=config, scale=scale, pods=workload.pods)
        if recorded is not None:
            observation = recording.observe(observation, recorded)
        if observation.responses is None:
            pairs = zip(sources, seen, strict=True)
            responses = tuple([response(source, values.at(now_ms), workload, now_ms) for (_, source), values in pairs])
            observation = replace(observation, responses=responses)
        return observation

    def decide_at(now_ms: int, recorded: RecordedDecision | None = None) -> Decision:
        return decide(observe_at(now_ms, recorded), history, now_ms)

    merging: Merging | None = None
    if merge and not load.decisions and not is_eager:
        merging = Merging(
            hpa,
            config,
            series=series,
            seen=seen,
            with_capacity=with_capacity,
            ends_ms=sorted([*ends_ms, *(shadow.seen_ms if shadow is not None else ()), load.end_ms]),
            observe_at=observe_at,
        )

    for now_ms, next_ms in _times(hpa, load, settings):
        if now_ms < resume_ms:
            continue
        end_ms = next_ms
        workload.advance(now_ms)
        if shadow is not None and (found := shadow.found(now_ms)) is not None and found != replicas:
            previous, replicas, behavior = replicas, found, hpa.spec.behavior
            history = store_scale_event(
                history, behavior=behavior, previous_replicas=previous, new_replicas=replicas, now_ms=now_ms
            )
            workload.scale(replicas, now_ms)
        recorded = recording.at(now_ms, replicas)
        decision: Decision | None = decide_at(now_ms, recorded)
        while decision is not None:
            real_ready = None if recorded is None else recorded.ready
            ready = workload.ready if real_ready is None else real_ready
            failed = (
                recorded is not None and recorded.record.desired_replicas == decision.scale_to and recorded.scale_error
            )
            before, scale_to = replicas, decision.scale_to
            # What reality does not decide it has not seen, so the recommendation is not stored either.
            is_real = shadow is None or scale_to is None or shadow.applies(now_ms, replicas, scale_to)
            concluded = conclude(decision, act=is_real, scale_error=failed or None)
            if is_real:
                history = concluded.next_history
                if concluded.new_status is not None:
                    hpa = replace(hpa, status=concluded.new_status)
            if scale_to is not None and is_real and not failed:
                replicas = scale_to
                _check_pods(replicas, settings)
                workload.scale(replicas, now_ms)
            if merging is not None and is_real and not (shadow is not None and shadow.waits):
                end_ms, history = merging.skip(concluded, workload, now_ms, next_ms)
                resume_ms = end_ms
            early: Decision | None = None
            if is_eager and not (has_early and recorded is not None):
                end_ms, early, ready_over = early_scale_up(
                    decision, decide_at, [*series, *seen], workload, now_ms=now_ms, next_ms=next_ms
                )
            else:
                ready_over = workload.ready_over(now_ms, end_ms)
            if real_ready is not None:
                ready_over = [(now_ms, end_ms, real_ready)]
            overload = integrate_overload(with_capacity, ready_over)
            yield Step(
                time_ms=now_ms,
                end_ms=end_ms,
                replicas=before,
                ready=ready,
                desired_replicas=replicas,
                values=tuple([each.at(now_ms) for each in series]),
                overloads=overload.times,
                loads=overload.loads,
                decision=decision,
            )
            now_ms, decision, recorded = end_ms, early, None  # a step of its own


def replay_hpa(
    hpa: HPA,
    load: Load,
    settings: Settings,
    *,
    name: str = "",
    on_step: Callable[[Step], None] | None = None,
    sentences: bool = True,
) -> Replayed:
    """Replay an HPA, as `name` or NAMESPACE/NAME; `on_step` is called with each step, and none is stored here.

    Raises:
        ReplayError: see `simulate`.
    """
    totals = Totals(
        has_capacity=bool(settings.capacity), max_replicas=hpa.spec.max_replicas, pod_cost=settings.pod_cost
    )
    moments = Moments([limit for _, limit in _with_capacity(load, settings)])
    first = last = None
    for step in simulate(hpa, load, settings, merge=on_step is None):
        first, last = first or step, step
        totals.add(step, sentences=sentences)
        moments.add(step)
        if on_step is not None:
            on_step(step)
    if first is None or last is None:
        raise ReplayError("the load has no time for a reconciliation: choose a longer range, or a smaller --offset")
    return totals.replayed(name or str(hpa.key), first.time_ms, last.end_ms, worst=moments.worst)


def replay_reality(load: Load, settings: Settings) -> Replayed | None:
    """Return the figures of the real replicas; None if they were not recorded.

    Times without a recorded number of replicas do not count. Ready pods default to all.
    """
    if load.replicas is None or not load.replicas.has_values(load.start_ms, load.end_ms):
        return None
    metrics = _with_capacity(load, settings)
    totals = Totals(has_capacity=bool(settings.capacity), pod_cost=settings.pod_cost)
    before: int | None = None
    first_ms = load.start_ms + settings.offset_ms
    for start_ms, end_ms, value in load.replicas.segments(first_ms, load.end_ms):
        if math.isnan(value):
            continue
        replicas = round(value)
        ready = [(start_ms, end_ms, replicas)]
        if load.ready_replicas is not None:
            parts = load.ready_replicas.segments(start_ms, end_ms)
            ready = [(start, end, replicas if math.isnan(pods) else round(pods)) for start, end, pods in parts]
        overload = integrate_overload(metrics, ready)
        totals.add(
            Span(
                time_ms=start_ms,
                end_ms=end_ms,
                replicas=replicas if before is None else before,
                desired_replicas=replicas,
                overloads=overload.times,
                loads=overload.loads,
            )
        )
        before = replicas
    return totals.replayed("reality", first_ms, load.end_ms)


def _with_capacity(load: Load, settings: Settings) -> list[tuple[Series, float]]:
    """Return (the load, the capacity of one pod) of each metric that has a capacity."""
    return [(load.series[key], limit) for key, limit in settings.capacity.items() if key in load.series]


def _times(hpa: HPA, load: Load, settings: Settings) -> Iterable[tuple[int, int]]:
    """Return (time, time of the next one, or the end) of each reconciliation."""
    start_ms, end_ms = load.start_ms + settings.offset_ms, load.end_ms
    recorded = [each.time_ms for each in load.decisions if start_ms <= each.time_ms < end_ms]
    if load.decisions:
        return itertools.pairwise([*recorded, end_ms])
    step_ms = sync_period_ms(hpa, settings)
    check_length(start_ms, end_ms, step_ms)
    return itertools.pairwise(itertools.chain(range(start_ms, end_ms, step_ms), [end_ms]))


def sync_period_ms(hpa: HPA, settings: Settings) -> int:
    """Return the time between two reconciliations of an HPA: that of its annotation, or the controller's."""
    seconds = hpa.overrides.sync_period
    return settings.step_ms if seconds is None else round(seconds * 1000)


def _check_pods(replicas: int, settings: Settings) -> None:
    if settings.max_pods is not None and replicas > settings.max_pods:
        raise ReplayError(f"a replay here has at most {settings.max_pods} replicas, and this one would have {replicas}")


def _as_live(config: Config) -> Config:
    """Return the flags with a default stabilization window that ends as a live one does.

    Without behavior, a recommendation exactly as old as the window counts. Live it is older by the durations of the
    reconciliations since; here syncs are exactly a step apart, and the window would be one sync too long.
    """
    return dataclasses.replace(config, downscale_stabilization_ms=max(config.downscale_stabilization_ms - 1, 0))


def _series(load: Load, key: str) -> Series:
    if key not in load.series:
        raise ReplayError(f"the load has no metric {key}; it has: {', '.join(sorted(load.series)) or 'none'}")
    return load.series[key]


def _initial_status(hpa: HPA, config: Config, replicas: int, now_ms: int) -> Status:
    """Return an empty status, since the one in a file is from another time.

    With 0 replicas, the HPA is assumed to have scaled to zero, if its spec permits that; otherwise autoscaling is
    disabled.
    """
    conditions = Conditions((), now_ms)
    if replicas == 0 and hpa.spec.min_replicas == 0 and config.scale_to_zero:
        conditions.set(SCALED_TO_ZERO, True, "ScaledToZero")
    return Status(conditions=conditions.all)


def _initial_replicas(hpa: HPA, load: Load, settings: Settings, now_ms: int) -> int:
    """Return the replicas at the beginning."""
    if settings.initial_replicas is not None:
        return settings.initial_replicas
    recorded = load.replicas.at(now_ms) if load.replicas is not None else math.nan
    if not math.isnan(recorded):
        return round(recorded)
    wanted = max(hpa.spec.min_replicas, 1)
    for spec in hpa.spec.metrics:
        target = target_per_pod(spec, load.requests)
        value = load.series[metric_key(spec.source)].at(now_ms)
        if target and not math.isnan(value):
            wanted = max(wanted, math.ceil(value / target))
    return min(wanted, hpa.spec.max_replicas)
