"""Requests for different objects, as one query for all objects of a rule.

A rule is asked for one pod here and for another there; where that happens, one query without the objects' and
namespaces' matchers, grouped by both, answers them all, and its answer is kept for as long as it is fresh. Of an
external metric one query has all namespaces, and all values of the labels that are selected by. Nobody can tell the
difference by the values:

- it is done only with queries whose value for an object depends on that object's series alone; `mergeable` says which
- an object with several values in the merged answer is asked for alone

Nor by the time: no request ever waits for a merged query. It is sent in the background, every request is sent alone
until its answer is there, and it is sent again before its answer ends for as long as somebody takes it. Where it fails,
where its answer is too long to be kept, or where it costs Prometheus more than it saves (`merge_costs`), requests are
sent alone for a while.

A rule's `merge` can demand it, also where its query is of a form that nobody can tell of, and whatever it costs, or
forbid it; by default it begins with the second object that is asked for within a while.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from cachetools import LRUCache

from adapter.catalog.inventory import CustomSource, ExternalSource
from adapter.catalog.rule_telemetry import RuleTelemetry
from adapter.fairness import for_all_namespaces
from adapter.planning.merge_costs import MergeGroup, Pause
from adapter.planning.mergeable import merged_custom_query, merged_external_query
from adapter.planning.sample_index import ObjectLabels, by_object, matching
from adapter.planning.shared_queries import Outcome
from adapter.prometheus import Destination, PrometheusError, Sample, Scalar, Vector
from adapter.rules import Merge, Rule
from kube.selectors import LabelSelector

_log = logging.getLogger(__name__)

_MAX_GROUPS = 1_000
# Clients write selectors, up to the length of a URL, and what they write is kept with each group.
_MAX_SELECTOR = 1_000
_EVERYTHING = LabelSelector()


class BackgroundQueries(Protocol):
    """Where merged queries are answered; see SharedQueries."""

    def ready(self, query: str, destination: Destination) -> Vector | Scalar | None:
        """The answer to a query if it is fresh, without waiting."""

    def fetch(
        self, query: str, destination: Destination, *, objects: ObjectLabels | None, observe: Callable[[Outcome], None]
    ) -> None:
        """Have a query answered in the background."""

    def keeps(self, query: str, destination: Destination, result: Vector) -> bool:
        """Whether a query's answer is kept."""


AllSamples = Mapping[str, Sequence[Sample]]
"""All samples of objects, by the objects' names."""


@dataclass(frozen=True, slots=True)
class SendAlone:
    """A request is to be sent alone. `group` are the requests that it belongs to, if they can be merged at all."""

    group: MergeGroup | None = None

    def took(self, seconds: float) -> None:
        """Tell how long the query for this request took."""
        if self.group is not None:
            self.group.sent_alone(seconds)


_ALONE = SendAlone()


class MergedQueries:
    """Decides which requests are answered together, and has the answers. Belongs to one version of the rules."""

    def __init__(
        self,
        queries: BackgroundQueries,
        *,
        telemetry: RuleTelemetry | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`clock` is a time in seconds that does not go back."""
        self._queries = queries
        self._telemetry = telemetry
        self._clock = clock
        # By the rule's place in the file: the rules do not change.
        self._groups: LRUCache[tuple[str, str, Hashable], MergeGroup | None] = LRUCache(_MAX_GROUPS)
        self._selectable: LRUCache[Hashable, bool] = LRUCache(_MAX_GROUPS)

    def paused(self) -> Iterable[tuple[str, str, Pause]]:
        """The groups of requests that are not merged at the moment: the rule's key, the series, and why."""
        for (rule, series, _), group in self._groups.items():
            if group is not None and group.paused is not None:
                yield rule, series, group.paused

    async def samples(
        self, source: CustomSource, *, namespace: str, names: Sequence[str], metric_selector: LabelSelector
    ) -> Mapping[str, Sample] | SendAlone:
        """The samples of a namespace's objects by name, from a merged answer.

        Args:
            source: where the metric comes from.
            namespace: the objects' namespace; "" if they are cluster-scoped.
            names: the objects.
            metric_selector: what the client asks of the other labels.
        """
        found = await self._objects(source, namespace, names, metric_selector)
        if isinstance(found, SendAlone):
            return found
        samples: dict[str, Sample] = {}
        for name in names:
            sample = found.get(name)
            if isinstance(sample, list):
                return _ALONE
            if sample is not None:
                samples[name] = sample
        return samples

    async def all_samples(
        self, source: CustomSource, *, namespace: str, names: Sequence[str]
    ) -> AllSamples | SendAlone:
        """As `samples`, for queries that make several values of an object, as one for each of a pod's containers."""
        found = await self._objects(source, namespace, names, _EVERYTHING)
        if isinstance(found, SendAlone):
            return found
        several = ((name, found[name]) for name in names if name in found)
        return {name: samples if isinstance(samples, list) else (samples,) for name, samples in several}

    async def external(
        self, source: ExternalSource, *, namespace: str, metric_selector: LabelSelector
    ) -> Vector | SendAlone:
        """What a request for an external metric gets of a merged answer.

        Args:
            source: where the metric comes from.
            namespace: the namespace that it is asked in.
            metric_selector: what the client asks of the labels.
        """
        rule, selector = source.rule, str(metric_selector)
        if not isinstance(rule, Rule) or rule.merge is Merge.NEVER or len(selector) > _MAX_SELECTOR:
            return _ALONE
        # What differs by the selector alone is answered by the same query, so all selectors count together.
        key = (rule.key, source.series, source.namespace_label)
        group = self._group(key, rule, lambda: merged_external_query(source, _EVERYTHING))
        if group is None or not self._can_select((*key, selector), source, metric_selector):
            return _ALONE
        labels = ((source.namespace_label, namespace),) if rule.resources.namespaced else ()
        result = self._result(group, rule, f"{namespace if labels else ''}?{selector}", objects=None)
        return SendAlone(group) if result is None else await matching(result, labels, metric_selector)

    async def _objects(
        self, source: CustomSource, namespace: str, names: Sequence[str], metric_selector: LabelSelector
    ) -> Mapping[str, Sample | list[Sample]] | SendAlone:
        """A namespace's objects in a merged answer."""
        rule, selector = source.rule, str(metric_selector)
        if not isinstance(rule, Rule) or rule.merge is Merge.NEVER or len(selector) > _MAX_SELECTOR:
            return _ALONE
        labels = (source.resource_label, source.namespace_label, *source.group_by)
        key = (rule.key, source.series, (labels, bool(namespace), selector))
        group = self._group(key, rule, lambda: merged_custom_query(source, bool(namespace), metric_selector))
        if group is None:
            return _ALONE
        objects = (source.namespace_label if namespace else "", source.resource_label)
        # A client can write any number of selectors, each of which has a query of its own. So one namespace alone does
        # not make the adapter query, with its selectors, the objects of all others.
        who = namespace if selector else f"{namespace}/{names[0]}/{names[-1]}/{len(names)}"
        result = self._result(group, rule, who, objects=objects)
        if result is None:
            return SendAlone(group)
        return (await by_object(result, objects)).get(namespace, {})

    def _result(self, group: MergeGroup, rule: Rule, who: str, *, objects: ObjectLabels | None) -> Vector | None:
        """The merged answer if it is there; otherwise it is fetched, unless the group is not merged now."""
        before = group.paused
        merges = group.note(who, now=self._clock())
        self._log_pause(group, rule, before)
        result = self._queries.ready(group.query, rule.destination) if merges else None
        is_ready = isinstance(result, Vector)
        if self._telemetry is not None:
            self._telemetry.requested(rule.key, merged=is_ready)
        if isinstance(result, Vector):
            group.served(who)
            return result
        if merges:
            with for_all_namespaces():
                self._queries.fetch(
                    group.query,
                    rule.destination,
                    objects=objects,
                    observe=lambda outcome: self._fetched(group, rule, outcome),
                )
        return None

    def _fetched(self, group: MergeGroup, rule: Rule, outcome: Outcome) -> None:
        """Note what came of a merged query."""
        now = self._clock()
        before = group.paused
        if isinstance(outcome, PrometheusError) or not isinstance(outcome, Vector):
            group.pause(Pause.FAILURE, now=now)
        elif not self._queries.keeps(group.query, rule.destination, outcome):
            group.pause(Pause.TOO_LONG, now=now)
        else:
            group.fetched(outcome.seconds, now=now)
        if self._telemetry is not None:
            self._telemetry.merged_query(rule.key, failed=group.paused is Pause.FAILURE)
        if isinstance(outcome, PrometheusError):
            _log.debug("%s: the merged query %s: %s", rule, group.query, outcome)
        self._log_pause(group, rule, before)

    @staticmethod
    def _log_pause(group: MergeGroup, rule: Rule, before: Pause | None) -> None:
        """Log why requests are sent alone, once for each reason."""
        why = group.paused
        if why is not None and why is not before:
            level = logging.DEBUG if why in group.logged else logging.INFO
            group.logged.add(why)
            _log.log(level, "%s: its requests are sent alone for a while: %s (%s)", rule, why.text, group.query)

    def _group(self, key: tuple[str, str, Hashable], rule: Rule, make: Callable[[], str]) -> MergeGroup | None:
        """The group of requests for a key; None where there is no query for all of them."""
        if key not in self._groups:
            query = make()
            self._groups[key] = MergeGroup(query, rule.merge is Merge.ALWAYS) if query else None
        return self._groups[key]

    def _can_select(self, key: Hashable, source: ExternalSource, selector: LabelSelector) -> bool:
        """Whether what a selector matches can be found in the answer for all."""
        if selector.empty:
            return True
        known = self._selectable.get(key)
        if known is None:
            known = self._selectable[key] = bool(merged_external_query(source, selector))
        return known
