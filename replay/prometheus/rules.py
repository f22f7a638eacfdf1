"""From an HPA's metrics to PromQL, with the adapter's own code: its rules, its catalog, its templates.

The adapter serves one value for each pod. A replay needs their sum, so the rule's query is summed by Prometheus, in
milli-units that are rounded down for each pod as the adapter does, without the pods of other workloads.
"""

from __future__ import annotations

import asyncio
import difflib
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import yaml
from msgspec import structs

from adapter.catalog.catalog import Catalog
from adapter.catalog.inventory import CustomSource, ExternalSource
from adapter.diagnosis.explain import Target, explain
from adapter.diagnosis.probe import Probe, Selection
from adapter.metrics.resource_metrics import resource_sources
from adapter.planning.history import marked_matches, object_labels, summed_query
from adapter.planning.metric_queries import (
    ExternalQuery,
    ObjectsQuery,
    QueryError,
    SelectorNotSupported,
    custom_query,
)
from adapter.planning.rule_queries import activated_query
from adapter.promql import PromqlError, alternation, as_vector, can_be_nan, parse
from adapter.rules import AnyRule, Policy, QueryRule, Rule, RulesError, RulesFile, ScheduleRule, parse_rules
from autoscaler.core.model import (
    HPA,
    CrossVersionObjectReference,
    ExternalMetric,
    InvalidMetric,
    MetricIdentifier,
    MetricSource,
    ObjectMetric,
    PodsMetric,
    ResourceMetric,
)
from kube.api.mapping import GroupResource, NoMatchError, ResourceLookup
from kube.values.fields import quote
from kube.values.selectors import LabelSelector, SelectorError
from replay.load import ReplayError, metric_name
from replay.prometheus.ranges import RangeQuery

_PODS: Final = GroupResource("", "pods")
_EVERYTHING: Final = LabelSelector()
_SUGGESTIONS: Final = 3
_IN_THE_LAST: Final = re.compile(r" in the last [0-9a-z.]+")
_CPU: Final = "rate(container_cpu_usage_seconds_total{<<.LabelMatchers>>,%s}[3m])"
_MEMORY: Final = "container_memory_working_set_bytes{<<.LabelMatchers>>,%s}"
_CONTAINER: Final = 'container!="",container!="POD"'
_NODE: Final = 'id="/"'


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleQueries:
    """Makes the queries of metrics."""

    catalog: Catalog
    """The metrics of the rules, listed."""
    lookup: ResourceLookup
    probe: Probe
    """What `adapter explain` needs to say why there is no metric."""
    series_names: Callable[[], Iterable[str]] | None
    """Returns the names of all series; None: there is a rules file."""
    pods: str
    """A regular expression of the names of the target's pods."""
    between: str
    """The range for errors."""

    async def query(self, hpa: HPA, source: MetricSource) -> RangeQuery:
        """Return the query of a metric.

        Raises:
            ReplayError: no rule makes the metric, or the rule makes no query for it.
        """
        try:
            match source:
                case ResourceMetric():
                    return self._resource(hpa, source)
                case PodsMetric(metric):
                    return await self._pods(hpa, metric)
                case ObjectMetric(metric, described):
                    return await self._object(hpa, metric, described)
                case ExternalMetric(metric):
                    return await self._external(hpa, metric)
                case InvalidMetric(type_):
                    raise ReplayError(f"{hpa.key}: there are no metrics of type {type_}; change the type")
        except (QueryError, SelectorNotSupported, SelectorError) as error:
            raise ReplayError(f"{hpa.key}: no query for {metric_name(source)}: {error}") from error

    def _resource(self, hpa: HPA, metric: ResourceMetric) -> RangeQuery:
        rules = self.catalog.rules.resource
        assert rules is not None, "completed"
        keys = {f"resourceRules.{name}.containerQuery": name for name in ("cpu", "memory")}
        source = next(
            (one for one in resource_sources(rules) if keys.get(one.info.metric) == metric.name),
            None,
        )
        if source is None:
            raise ReplayError(
                f"{hpa.key}: only the usage of cpu and memory is known, not of {metric.name}; change the metric"
            )
        if not source.resource_label or not source.namespace_label:
            raise ReplayError(f"{source.rule.key}: no label maps to pods and namespaces; add resources.overrides")
        name = metric.name if metric.container is None else f"{metric.container}/{metric.name}"
        query = self._of_pods(source, hpa.namespace)
        containers = [
            (label, alternation([metric.container])) for label in source.group_by if metric.container is not None
        ]
        return _summed(name, source, query, [*object_labels(source, hpa.namespace, self.pods), *containers])

    async def _pods(self, hpa: HPA, metric: MetricIdentifier) -> RangeQuery:
        selector = _selector(metric)
        source = self.catalog.find_custom(_PODS, metric.name)
        if source is None or not source.namespace_label:
            raise await self._missing(hpa, Target("pods", metric.name))
        query = self._of_pods(source, hpa.namespace, selector)
        labels = object_labels(source, hpa.namespace, self.pods)
        return _summed(f"pods/{metric.name}", source, query, labels, selector)

    async def _object(self, hpa: HPA, metric: MetricIdentifier, described: CrossVersionObjectReference) -> RangeQuery:
        selector = _selector(metric)
        group = described.api_version.rpartition("/")[0]
        try:
            info = await self.lookup.resource_for(described.kind.lower(), group)
        except NoMatchError as error:
            raise ReplayError(
                f"{hpa.key}: {described.kind} is not a kind of Kubernetes itself; give --kubeconfig of a cluster"
                " that has it"
            ) from error
        source = self.catalog.find_custom(info.group_resource, metric.name)
        if source is None:
            raise await self._missing(hpa, Target(str(info.group_resource), metric.name))
        namespace = hpa.namespace if source.info.namespaced else ""
        plan = ObjectsQuery(source, namespace, [described.name], False, selector).plan()
        name = f"{info.group_resource}/{described.name}/{metric.name}"
        found = marked_matches(plan.queries[0], object_labels(source, namespace, alternation([described.name])))
        return _range_query(name, source, plan.queries[0], *found, plan.selector)

    async def _external(self, hpa: HPA, metric: MetricIdentifier) -> RangeQuery:
        selector = _selector(metric)
        source = self.catalog.find_external(metric.name)
        if source is None:
            raise await self._missing(hpa, Target("", metric.name))
        if isinstance(source.rule, ScheduleRule):
            why = "is a schedule, which Prometheus has no history of; leave it out of the HPA"
            raise ReplayError(f"{hpa.key}: external metric {metric.name} {why}")
        plan = ExternalQuery(source, hpa.namespace, selector).plan()
        matches = [(label, alternation([value])) for label, value in plan.labels]
        return _summed(f"external/{metric.name}", source, plan.queries[0], matches, plan.selector)

    def _of_pods(self, source: CustomSource, namespace: str, selector: LabelSelector = _EVERYTHING) -> str:
        rule = source.rule
        if isinstance(rule, QueryRule):
            return rule.query
        assert isinstance(rule, Rule), "a schedule makes no custom metric"
        return custom_query(rule.query, source, names=None, pattern=self.pods, namespace=namespace, selector=selector)

    async def _missing(self, hpa: HPA, target: Target) -> ReplayError:
        """Return the error of a metric that no rule makes, in the words of `adapter explain`."""
        wanted = Selection(namespace=hpa.namespace)
        explanation = await explain(target, wanted, catalog=self.catalog, lookup=self.lookup, probe=self.probe)
        reasons, similar = "; ".join(explanation.reasons), explanation.suggestions
        # The adapter lists the series of some time before now; this one those of the range.
        why, in_range = _IN_THE_LAST.subn(f" {self.between}", reasons)
        why = why or "no rule makes it"
        hint = f"{'give another --from and --to, or ' if in_range else ''}change the rules or the HPA"
        if self.series_names is not None:
            names = set(await asyncio.to_thread(self.series_names))
            resource = target.resource.partition(".")[0].removesuffix("s")
            labels = f" with the labels namespace and {resource}" if target.resource else ""
            hint = "give rules with --config, or change the HPA"
            if target.metric in names:
                why, similar = f"series {target.metric} has no sample{labels} {self.between}", ()
                hint = f"give another --from and --to, {hint}"
            else:
                why = f"Prometheus has no series {target.metric}{labels} {self.between}"
                similar = tuple(difflib.get_close_matches(target.metric, names, _SUGGESTIONS))
        similar_text = f" (similar: {', '.join(similar)})" if similar else ""
        return ReplayError(f"{hpa.key}: there is no metric {target}: {why}{similar_text}; {hint}")


def _selector(metric: MetricIdentifier) -> LabelSelector:
    """Return the selector of a request for the metric, of which the adapter gets the text."""
    return LabelSelector.parse(str(metric.label_selector))


def _summed(
    name: str,
    source: CustomSource | ExternalSource,
    query: str,
    matches: Sequence[tuple[str, str]],
    selector: LabelSelector = _EVERYTHING,
) -> RangeQuery:
    """Return the query for the sum of a query's series, those whose labels match."""
    rule = source.rule
    try:
        nan = can_be_nan(parse(query))
    except PromqlError:
        nan = True
    values = as_vector(query)
    if rule.activation is not None:
        values = activated_query(values, rule.activation)
    summed = summed_query(f"floor(1000 * ({values}\n))", matches, rule, selector, can_be_nan=nan)
    return _range_query(name, source, query, summed.text, summed.labels, summed.selector, total=True)


def _range_query(
    name: str,
    source: CustomSource | ExternalSource,
    rule_query: str,
    query: str,
    labels: tuple[tuple[str, str], ...],
    selector: LabelSelector,
    *,
    total: bool = False,
) -> RangeQuery:
    rule = source.rule
    return RangeQuery(
        name=name,
        query=query,
        rule_query=rule_query,
        destination=rule.destination,
        labels=labels,
        selector=selector,
        total=total,
        nan=rule.nan or Policy.ZERO,
        inf=rule.inf,
        empty=rule.empty,
        forecast=rule.forecast.options if source.is_forecast and rule.forecast is not None else None,
    )


# --- rules where there is no rules file, or where it has no resourceRules --------------------------------------------


def complete_rules(rules: RulesFile | None, metrics: Collection[MetricSource]) -> RulesFile:
    """Return the rules for some metrics: the file's, or without a file those of the metrics' own names.

    Sections that none of the metrics needs are left out, since to list the series of many rules takes long.

    Raises:
        ReplayError: a metric's name cannot be that of a series.
    """
    if rules is None:
        rules = _rules_by_name(metrics)
    if rules.resource is None:
        text = yaml.safe_dump({"resourceRules": {"cpu": _usage(_CPU), "memory": _usage(_MEMORY), "window": "3m"}})
        rules = replace(rules, resource=parse_rules(text, source="resourceRules").resource)
    has_custom = any(isinstance(source, PodsMetric | ObjectMetric) for source in metrics)
    has_external = any(isinstance(source, ExternalMetric) for source in metrics)
    return replace(
        rules,
        custom=_of_any_age(rules.custom) if has_custom else (),
        external=_of_any_age(rules.external) if has_external else (),
    )


def _of_any_age(rules: Iterable[AnyRule]) -> tuple[AnyRule, ...]:
    """Return rules for which a series counts if it has a sample in the range of the replay."""
    return tuple(structs.replace(rule, max_age=None) if isinstance(rule, Rule) else rule for rule in rules)


def _rules_by_name(metrics: Iterable[MetricSource]) -> RulesFile:
    custom: dict[str, object] = {}
    external: dict[str, object] = {}
    for source in metrics:
        match source:
            case PodsMetric(metric) | ObjectMetric(metric):
                custom[metric.name] = _gauge_rule(metric.name, {"template": "<<.Resource>>"})
            case ExternalMetric(metric):
                external[metric.name] = _gauge_rule(metric.name, {"namespaced": False})
    text = yaml.safe_dump({"rules": list(custom.values()), "externalRules": list(external.values())})
    try:
        return parse_rules(text, source="the HPA's metrics")
    except RulesError as error:
        raise ReplayError(f"{error}; give the rules of the adapter with --config") from error


def _gauge_rule(name: str, resources: object) -> object:
    return {
        "seriesQuery": f"{{__name__={quote(name)}}}",
        "resources": resources,
        "metricsQuery": "<<.Series>>{<<.LabelMatchers>>}",
    }


def _usage(series: str) -> object:
    """Return a rule as in the values of prometheus-adapter's Helm chart."""
    return {
        "containerQuery": f"sum by (<<.GroupBy>>) ({series % _CONTAINER})",
        "nodeQuery": f"sum by (<<.GroupBy>>) ({series % _NODE})",
        "containerLabel": "container",
        "resources": {"overrides": {name: {"resource": name} for name in ("namespace", "node", "pod")}},
    }
