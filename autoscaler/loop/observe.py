"""Gathering what a decision is based on: all reading of one step, and nothing else.

What to read is the decision's business (`autoscaler.core.preconditions`), how to read it is this module's. What cannot
be read becomes part of the observation, as an error with its text, because Kubernetes has a condition or a rule for
each such case. So `observe` does not fail: it always gives something to decide on.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import assert_never

from autoscaler.core.config import Config, PodSelection
from autoscaler.core.model import (
    HPA,
    ExternalMetric,
    HPAKey,
    InvalidMetric,
    MetricIdentifier,
    MetricSource,
    ObjectMetric,
    PodsMetric,
    ResourceMetric,
)
from autoscaler.core.observation import MetricError, MetricResponse, Observation, PodListError, ResourceResponse, Scale
from autoscaler.core.preconditions import FetchMetrics, ListPods, ReadScale, next_read
from autoscaler.core.status import selector_object
from autoscaler.loop.label_index import PodIndex, SelectorIndex
from autoscaler.loop.metrics_client import MetricsClient
from autoscaler.loop.pod_owners import restrict_to_pods, split_by_owner
from autoscaler.loop.scales import ScaleClient, TargetScale
from kube.selectors import LabelSelector

_OWNERS_UNKNOWN = (
    "pods are selected for their owner, and the ReplicaSets have not been listed yet, "
    "which the autoscaler must be allowed to do"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """An observation, and what only the live loop needs beside it."""

    observation: Observation
    target: TargetScale | None
    """The scale to write to; None if it could not be read. It may be one that cannot be written: see `may_scale`."""
    seconds: tuple[float, ...]
    """How long each entry of the observation's answers took; empty if none was wanted."""

    @property
    def may_scale(self) -> bool:
        """Whether the scale was read for this observation, so that a decision to scale can be based on it."""
        return self.target is None or self.target.body is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Staleness:
    """Which watches do not tell for sure any more what there is (`kube.store`)."""

    hpa: Callable[[HPAKey], bool] = lambda _: False
    """That on the API of this HPA."""
    pods: Callable[[], bool] = lambda: False
    replica_sets: Callable[[], bool] = lambda: False


class Observer:
    """Reads scales, pods and metric values.

    Args:
        scales: reads the targets' scales.
        metrics: asks the metrics APIs.
        pods: the pods of the cluster.
        selectors: which HPA's target selects what; this HPA's is noted here.
        controllers: {a ReplicaSet's uid: the uid of its controller, or ""}, for HPAs with the pod selection `owner`;
            None: that is not known yet.
        stale: which watches may be out of date.
        config: what the flags say; with the HPA's own settings it goes into every observation.
        clock: the current time in seconds, to measure with.
    """

    def __init__(
        self,
        *,
        scales: ScaleClient,
        metrics: MetricsClient,
        pods: PodIndex,
        selectors: SelectorIndex,
        config: Config,
        controllers: Callable[[], Mapping[str, str] | None] = lambda: None,
        stale: Staleness | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._scales = scales
        self._metrics = metrics
        self._pods = pods
        self._selectors = selectors
        self._config = config
        self._controllers = controllers
        self._stale = stale or Staleness()
        self._clock = clock

    async def observe(self, hpa: HPA, *, to_scale: bool = True) -> Observed:
        """Everything that a decision on this HPA needs now.

        Unless it is meant `to_scale`, the scale may be one that a watch has told of.
        """
        config = hpa.overrides.apply_to(self._config)
        observation = Observation(hpa=hpa, config=config, stale=self._stale_for(hpa))
        target: TargetScale | None = None
        seconds: tuple[float, ...] = ()
        while (wanted := next_read(observation)) is not None:
            match wanted:
                case ReadScale():
                    read = await self._scales.read(hpa.namespace, hpa.spec.scale_target_ref, to_write=to_scale)
                    if isinstance(read, TargetScale):
                        target = read
                        observation = replace(observation, scale=read.scale)
                    else:
                        observation = replace(observation, scale=read)
                case ListPods(selector):
                    self._selectors.put(hpa.key, selector, target=hpa.target)
                    observation = self._with_pods(observation, selector)
                case FetchMetrics():
                    answers, seconds = await self._answers(hpa, wanted)
                    # An answer may take long. Kubernetes, too, looks at the pods when it has the values: a new pod must
                    # not count in a value's sum and be next_read in the number of pods.
                    observation = self._with_pods(observation, wanted.selector)
                    if observation.config.pod_selection is PodSelection.OWNER and isinstance(observation.pods, tuple):
                        answers = tuple(restrict_to_pods(answer, observation.pods) for answer in answers)
                    observation = replace(observation, responses=answers)
                case _:
                    assert_never(wanted)
        return Observed(observation=observation, target=target, seconds=seconds)

    async def note(self, hpa: HPA) -> None:
        """Note which pods an HPA controls, as a step of it would, and read nothing else.

        For an HPA that another process looks after, so that its rivals here find out.
        """
        observation = Observation(hpa=hpa, config=hpa.overrides.apply_to(self._config))
        if isinstance(next_read(observation), ReadScale):
            read = await self._scales.read(hpa.namespace, hpa.spec.scale_target_ref, to_write=False)
            wanted = next_read(replace(observation, scale=read.scale if isinstance(read, TargetScale) else read))
            if isinstance(wanted, ListPods):
                self._selectors.put(hpa.key, wanted.selector, target=hpa.target)

    def _stale_for(self, hpa: HPA, *, pods: bool = False, owners: bool = False) -> tuple[str, ...]:
        """The resources that an observation is made of and whose watches may be out of date."""
        watches = {
            "horizontalpodautoscalers": self._stale.hpa(hpa.key),
            "pods": pods and self._stale.pods(),
            "replicasets": owners and self._stale.replica_sets(),
        }
        return tuple(resource for resource, stale in watches.items() if stale)

    def _with_pods(self, observation: Observation, selector: LabelSelector) -> Observation:
        hpa, scale = observation.hpa, observation.scale
        stale = self._stale_for(hpa, pods=True, owners=observation.config.pod_selection is PodSelection.OWNER)
        observation = replace(observation, stale=stale)
        pods = self._pods.matching(hpa.namespace, selector)
        if observation.config.pod_selection is not PodSelection.OWNER:
            return replace(observation, pods=pods, other_selectors=self._selectors.others(hpa.key, pods))
        controllers = self._controllers()
        if controllers is None:
            return replace(observation, pods=PodListError(_OWNERS_UNKNOWN))
        assert isinstance(scale, Scale)
        sorted_pods = split_by_owner(pods, target_uid=scale.target_uid, controllers=controllers)
        if sorted_pods.unknown:
            # Without its new pods a target looks smaller than it is.
            unknown = f"the ReplicaSet that owns pod {sorted_pods.unknown[0]} is not known"
            return replace(observation, pods=PodListError(unknown))
        # Whose pods these are is beyond doubt, unless another HPA scales the very same target.
        others = self._selectors.others(hpa.key, sorted_pods.owned, target=hpa.target)
        return replace(observation, pods=sorted_pods.owned, foreign_pods=sorted_pods.foreign, other_selectors=others)

    async def _answers(
        self, hpa: HPA, wanted: FetchMetrics
    ) -> tuple[tuple[MetricResponse | None, ...], tuple[float, ...]]:
        """The metrics APIs' answers, asked for at the same time, and the seconds that each took."""
        usage: asyncio.Future[ResourceResponse | MetricError] | None = None
        async with asyncio.TaskGroup() as tasks:
            answers = []
            for spec, is_wanted in zip(hpa.spec.metrics, wanted.wanted, strict=True):
                if isinstance(spec.source, ResourceMetric) and is_wanted and usage is None:
                    # One answer serves all Resource and ContainerResource metrics of the HPA.
                    usage = tasks.create_task(self._metrics.resource_usage(hpa.namespace, wanted.selector))
                source = spec.source if is_wanted else None
                answers.append(tasks.create_task(self._timed_answer(hpa.namespace, source, wanted.selector, usage)))
        timed = [task.result() for task in answers]
        return tuple(answer for answer, _ in timed), tuple(seconds for _, seconds in timed)

    async def _timed_answer(
        self,
        namespace: str,
        source: MetricSource | None,
        pods: LabelSelector,
        usage: asyncio.Future[ResourceResponse | MetricError] | None,
    ) -> tuple[MetricResponse | None, float]:
        started = self._clock()
        answer = await self._answer(namespace, source, pods, usage)
        return answer, self._clock() - started

    async def _answer(
        self,
        namespace: str,
        source: MetricSource | None,
        pods: LabelSelector,
        usage: asyncio.Future[ResourceResponse | MetricError] | None,
    ) -> MetricResponse | None:
        match source:
            case None | InvalidMetric():
                return None
            case ResourceMetric():
                assert usage is not None
                return await usage
            case PodsMetric(metric):
                return await self._metrics.pods_metric(
                    namespace, metric.name, pods=pods, metric_selector=_selector(metric)
                )
            case ObjectMetric(metric, described):
                return await self._metrics.object_metric(
                    namespace, metric.name, described=described, metric_selector=_selector(metric)
                )
            case ExternalMetric(metric):
                return await self._metrics.external_metric(namespace, metric.name, metric_selector=_selector(metric))
            case _:
                assert_never(source)


def _selector(metric: MetricIdentifier) -> LabelSelector:
    """The metric's own selector. An answer is wanted only where it is valid, so this does not fail."""
    return LabelSelector.from_object(None if metric.selector is None else selector_object(metric.selector))
