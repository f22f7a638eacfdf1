"""Flags about rules in objects of the cluster. Without them no object is read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import click

from adapter.promql import restrict_selector
from adapter.rule_objects.annotations import hpa_sources
from adapter.rule_objects.watches import CLUSTER_METRIC_RULES, CONFIG_MAPS, METRIC_RULES, ObjectSource
from adapter.rules.objects import Tenancy
from kube.api.config import own_namespace
from kube.process.flags import POSITIVE_DURATION, Parsed, bool_option, option_group

_OWN_NAMESPACE = "milliscale"


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleObjectOptions:
    """The objects that have rules, and what those of namespaces may do."""

    metric_rules: bool = False
    """Read MetricRules and ClusterMetricRules."""
    config_maps: bool = False
    """Read ConfigMaps with the label milliscale.io/rules."""
    hpa_annotations: bool = False
    """Read annotations of HorizontalPodAutoscalers."""
    tenancy: Tenancy = field(default_factory=Tenancy)
    """What rules of namespaces may do."""

    def sources(self, prometheus_url: str) -> tuple[ObjectSource, ...]:
        """Return the kinds of objects to read; `prometheus_url` is --prometheus-url."""
        return (
            *((METRIC_RULES, CLUSTER_METRIC_RULES) if self.metric_rules else ()),
            *((CONFIG_MAPS,) if self.config_maps else ()),
            *(hpa_sources(prometheus_url) if self.hpa_annotations else ()),
        )


def _options(
    *, metric_rules: bool, rules_config_maps: bool, hpa_annotations: bool, **tenancy: Any
) -> RuleObjectOptions:
    """Return the values of the flags; those about namespaces are called as the fields of Tenancy."""
    return RuleObjectOptions(
        metric_rules=metric_rules,
        config_maps=rules_config_maps,
        hpa_annotations=hpa_annotations,
        tenancy=Tenancy(**tenancy, own_namespace=own_namespace(default=_OWN_NAMESPACE)),
    )


def _label(text: str) -> str:
    if text:
        restrict_selector("up", label=text, value="default")  # raises ValueError for a name that no label has
    return text


rule_object_flags = option_group(
    "rule_objects",
    _options,
    bool_option(
        "--metric-rules",
        help="Serve the metrics of MetricRules and ClusterMetricRules, too; needs their CustomResourceDefinitions.",
    ),
    bool_option(
        "--rules-config-maps",
        help="Serve the metrics of rules in ConfigMaps that have the label milliscale.io/rules=true, too: for all "
        "namespaces in the adapter's own one, else for the ConfigMap's namespace.",
    ),
    bool_option(
        "--hpa-annotations",
        help="Serve the metrics of queries in annotations of HorizontalPodAutoscalers, too, in the format of "
        "kube-metrics-adapter.",
    ),
    click.option(
        "--tenant-label",
        "label",
        type=Parsed("label", _label),
        default="",
        metavar="LABEL",
        show_default="queries are not restricted",
        help='Add LABEL="NAMESPACE" to every selector in queries of a namespace\'s own rules, so that they read only '
        "series of this namespace.",
    ),
    click.option(
        "--tenant-max-rules",
        "max_rules",
        type=click.IntRange(min=1),
        default=100,
        help="Maximum number of rules of a namespace; the oldest objects are used.",
    ),
    click.option(
        "--tenant-max-metrics",
        "max_metrics",
        type=click.IntRange(min=1),
        default=1_000,
        help="Maximum number of metrics that the rules of a namespace make; the oldest objects are used.",
    ),
    click.option(
        "--rule-objects-max-metrics",
        "total_metrics",
        type=click.IntRange(min=1),
        default=20_000,
        help="Maximum number of metrics that all objects make. ClusterMetricRules come first; the namespaces share the "
        "rest, and one that needs less than its share leaves the others more.",
    ),
    click.option(
        "--tenant-query-timeout",
        "query_seconds",
        type=POSITIVE_DURATION,
        default="10s",
        help="Maximum duration of a query of a namespace's own rules.",
    ),
    click.option(
        "--tenant-max-samples",
        "max_samples",
        type=click.IntRange(min=1),
        default=10_000,
        help="Maximum number of samples in the result of a query of a namespace's own rules, and of series in a list.",
    ),
)
