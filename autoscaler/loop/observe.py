"""All reads of one reconciliation.

`autoscaler.core.preconditions.next_read` returns the next read. A failed read becomes part of the observation, as an
error with its text, because Kubernetes has a condition or a rule for each case. So `observe` does not fail.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import assert_never

from msgspec.structs import replace

from autoscaler.core.config import Config, PodSelection
from autoscaler.core.model import (
    HPA,
    ExternalMetric,
    HPAKey,
    InvalidMetric,
    MetricSource,
    ObjectMetric,
    PodsMetric,
    ResourceMetric,
)
from autoscaler.core.observation import MetricResponse, Observation, ReadError, Scale
from autoscaler.core.preconditions import FetchMetrics, ListPods, ReadScale, next_read
from autoscaler.loop.metrics_client import MetricsClient
from autoscaler.loop.pod_owners import PodIndex, restrict_to_pods, split_by_owner
from autoscaler.loop.scales import ScaleClient, TargetScale
from autoscaler.loop.selector_index import SelectorIndex
from kube.values.selectors import LabelSelector

_HPAS = "horizontalpodautoscalers"
_OWNERS_UNKNOWN = (
    "pods are selected for their owner, and the ReplicaSets have not been listed yet, "
    "which the autoscaler must be allowed to do"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """An observation, with data that only the live loop needs."""

    observation: Observation
    target: TargetScale | None
    """The scale to write to; None if it could not be read. See `may_scale`."""
    seconds: tuple[float, ...]
    """How long each of the observation's responses took; empty if none was fetched."""

    @property
    def may_scale(self) -> bool:
        """True if the scale was read for this observation rather than known from a watch."""
        return self.target is None or self.target.body is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Observer:
    """Reads scales, pods and metric values.

    Args:
        selectors: the selectors of all HPAs' targets; each observation updates that of its HPA.
        controllers: returns {a ReplicaSet's uid: the uid of its controller, or ""}, for HPAs with the pod selection
            `owner`; None if that is not known yet.
        stale: {resource: returns whether the watch that an HPA depends on may be out of date} (`kube.cache.store`).
        config: the flags' settings, which the HPA's annotations override.
    """

    scales: ScaleClient
    metrics: MetricsClient
    pods: PodIndex
    selectors: SelectorIndex
    config: Config
    controllers: Callable[[], Mapping[str, str] | None] = lambda: None
    stale: Mapping[str, Callable[[HPAKey], bool]] = field(default_factory=dict)

    async def observe(self, hpa: HPA, *, to_scale: bool = True) -> Observed:
        """Read everything that a decision on this HPA needs.

        With `to_scale` the scale is read from the API server; otherwise it may come from a watch.
        """
        config = hpa.overrides.apply_to(self.config)
        observation = Observation(hpa=hpa, config=config, stale=self._stale_watches(hpa, _HPAS))
        target: TargetScale | None = None
        seconds: tuple[float, ...] = ()
        while (wanted := next_read(observation)) is not None:
            match wanted:
                case ReadScale():
                    read = await self.scales.read(hpa.namespace, hpa.spec.scale_target_ref, to_write=to_scale)
                    target = read if isinstance(read, TargetScale) else None
                    observation = replace(observation, scale=read.scale if isinstance(read, TargetScale) else read)
                case ListPods(selector):
                    self.selectors.put(hpa.key, selector, target=hpa.target)
                    observation = self._with_pods(observation, selector)
                case FetchMetrics():
                    observation, seconds = await self._with_metrics(observation, wanted)
                case _:
                    assert_never(wanted)
        return Observed(observation=observation, target=target, seconds=seconds)

    async def refresh(self, hpa: HPA, before: Observation) -> Observation:
        """Return an earlier observation of an HPA with metrics and pods of now; its scale is not read again."""
        observation = replace(before, hpa=hpa, responses=None)
        wanted = next_read(observation)
        if isinstance(wanted, FetchMetrics):
            observation, _ = await self._with_metrics(observation, wanted)
        return observation

    async def note(self, hpa: HPA) -> None:
        """Record the selector of another process's HPA, so that HPAs here find ambiguous selectors."""
        observation = Observation(hpa=hpa, config=hpa.overrides.apply_to(self.config))
        if isinstance(next_read(observation), ReadScale):
            read = await self.scales.read(hpa.namespace, hpa.spec.scale_target_ref, to_write=False)
            wanted = next_read(replace(observation, scale=read.scale if isinstance(read, TargetScale) else read))
            if isinstance(wanted, ListPods):
                self.selectors.put(hpa.key, wanted.selector, target=hpa.target)

    def _stale_watches(self, hpa: HPA, *resources: str) -> tuple[str, ...]:
        return tuple(each for each in resources if each in self.stale and self.stale[each](hpa.key))

    async def _with_metrics(
        self, observation: Observation, wanted: FetchMetrics
    ) -> tuple[Observation, tuple[float, ...]]:
        """Fetch metrics, and list the pods anew; also return how long each response took."""
        hpa = observation.hpa
        sources = [spec.source if flag else None for spec, flag in zip(hpa.spec.metrics, wanted.wanted, strict=True)]
        responses, seconds = await self._fetch(hpa.namespace, sources, wanted.selector)
        # Responses may take long. Like Kubernetes, list the pods after the values have arrived: a new pod must not
        # count in the sum of the values but not in the number of pods.
        observation = self._with_pods(observation, wanted.selector)
        if observation.config.pod_selection is PodSelection.OWNER and isinstance(observation.pods, tuple):
            responses = tuple(restrict_to_pods(each, observation.pods) for each in responses)
        return replace(observation, responses=responses), seconds

    def _with_pods(self, observation: Observation, selector: LabelSelector) -> Observation:
        hpa, scale = observation.hpa, observation.scale
        by_owner = observation.config.pod_selection is PodSelection.OWNER
        watches = (_HPAS, "pods", "replicasets") if by_owner else (_HPAS, "pods")
        observation = replace(observation, stale=self._stale_watches(hpa, *watches))
        pods = self.pods.matching(hpa.namespace, selector)
        if not by_owner:
            return replace(observation, pods=pods, other_selectors=self.selectors.others(hpa.key, pods))
        controllers = self.controllers()
        if controllers is None:
            return replace(observation, pods=ReadError(_OWNERS_UNKNOWN))
        assert isinstance(scale, Scale)
        sorted_pods = split_by_owner(pods, target_uid=scale.target_uid, controllers=controllers)
        if sorted_pods.unknown:
            # Without its new pods a target would look smaller than it is.
            unknown = f"the ReplicaSet that owns pod {sorted_pods.unknown[0]} is not known"
            return replace(observation, pods=ReadError(unknown))
        # These pods belong to the target, so only another HPA with the same target can be ambiguous.
        others = self.selectors.others(hpa.key, sorted_pods.owned, target=hpa.target)
        return replace(observation, pods=sorted_pods.owned, foreign_pods=sorted_pods.foreign, other_selectors=others)

    async def _fetch(
        self, namespace: str, sources: list[MetricSource | None], pods: LabelSelector
    ) -> tuple[tuple[MetricResponse | None, ...], tuple[float, ...]]:
        """Return the metrics APIs' responses, fetched concurrently, and the seconds that each took.

        One response serves all Resource and ContainerResource metrics of the HPA, since equal queries are coalesced.
        """

        async def timed(source: MetricSource | None) -> tuple[MetricResponse | None, float]:
            started = time.monotonic()
            response = await self._response(namespace, source, pods)
            return response, time.monotonic() - started

        if len(sources) == 1:  # most HPAs: without a task of its own
            await asyncio.sleep(0)  # a task would begin then, too: to be coalesced with those of other HPAs
            results = [await timed(sources[0])]
        else:
            async with asyncio.TaskGroup() as tasks:
                fetches = [tasks.create_task(timed(source)) for source in sources]
            results = [task.result() for task in fetches]
        return tuple(response for response, _ in results), tuple(seconds for _, seconds in results)

    async def _response(
        self, namespace: str, source: MetricSource | None, pods: LabelSelector
    ) -> MetricResponse | None:
        match source:
            case None | InvalidMetric():
                return None
            case ResourceMetric():
                return await self.metrics.resource_usage(namespace, pods)
        # `next_read` excludes metrics with an invalid selector.
        selector = source.metric.label_selector
        match source:
            case PodsMetric(metric=metric):
                return await self.metrics.pods_metric(namespace, metric.name, pods=pods, metric_selector=selector)
            case ObjectMetric(metric=metric, described_object=described):
                return await self.metrics.object_metric(
                    namespace, metric.name, described=described, metric_selector=selector
                )
            case ExternalMetric(metric=metric):
                return await self.metrics.external_metric(namespace, metric.name, metric_selector=selector)
