"""Queries in the annotations of HPAs, as kube-metrics-adapter reads them.

An HPA names a metric, and an annotation has its query:

    metric-config.external.NAME.prometheus/query: sum(rate(http_requests_total[1m]))

Further annotations of the metric, and the labels of its selector, configure it; annotations win. The metric has one
value: the first of the query's result. Its labels are those of the selector (`type: prometheus` and others), which are
no labels of series, so several HPAs of a namespace can have metrics of one name.

Upstream: pkg/annotations/parser.go, pkg/collector/collector.go, pkg/collector/prometheus_collector.go of
zalando-incubator/kube-metrics-adapter.
"""

from __future__ import annotations

import functools
from collections.abc import Hashable, Mapping
from typing import Any

import msgspec

from adapter.prometheus import DEFAULT_SERVER, Destination, PrometheusOptions
from adapter.rule_objects.watches import ObjectSource, Servers
from adapter.rules import AnyRule, Policy, QueryRule, RulesError
from adapter.rules.naming import is_metric_name
from adapter.rules.objects import ObjectName, RuleObject, Tenancy, identified, restricted, unreadable, usable_servers
from kube.api.mapping import GroupResource

PREFIX = "metric-config."
"""Annotations that begin with this configure metrics."""

HPA = "HorizontalPodAutoscaler"
OWN_HPA = "HorizontalPodAutoscaler.milliscale.io"
"""The kinds of objects with annotations: of autoscaling, and of milliscale.io."""

_COLLECTIONS = {
    HPA: "/apis/autoscaling/v2/horizontalpodautoscalers",
    OWN_HPA: "/apis/milliscale.io/v1/horizontalpodautoscalers",
}
_COLLECTOR = "prometheus"
# The label `type` of the selector names the collector; without it, the metric's name may.
_TYPES = frozenset({"prometheus", "prometheus-query"})
# Kubernetes' labels cannot have such names.
_OBJECT_LABEL, _NAMESPACE_LABEL = "<object>", "<namespace>"

_Configs = dict[tuple[str, str], dict[str, str]]
"""The settings of metrics, by type and name."""


class _Selector(msgspec.Struct, rename="camel"):
    match_labels: dict[str, str] | None = None


class _Identifier(msgspec.Struct):
    name: str
    selector: _Selector | None = None

    @property
    def labels(self) -> dict[str, str]:
        return (self.selector.match_labels if self.selector is not None else None) or {}


class _Reference(msgspec.Struct, rename="camel"):
    kind: str
    name: str
    api_version: str = ""


class _External(msgspec.Struct):
    metric: _Identifier


class _Object(msgspec.Struct, rename="camel"):
    metric: _Identifier
    described_object: _Reference


class _Metric(msgspec.Struct):
    external: _External | None = None
    object: _Object | None = None


class _Metadata(msgspec.Struct):
    name: str
    namespace: str
    annotations: dict[str, str] | None = None


class _Spec(msgspec.Struct):
    metrics: list[_Metric] | None = None


class _Status(msgspec.Struct, rename="camel"):
    current_replicas: int = 0
    desired_replicas: int = 0


class _Hpa(msgspec.Struct):
    metadata: _Metadata
    spec: _Spec
    status: _Status | None = None


def has_queries(hpa: Mapping[str, Any]) -> bool:
    """Return True if an HPA has annotations that configure Prometheus queries. Accepts any JSON."""
    metadata = hpa.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    return isinstance(annotations, dict) and any(_parts(key) is not None for key in annotations)


def relevant_part(hpa: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return an HPA with only what its rules depend on; None without queries. Accepts any JSON.

    The status of an HPA changes often, and most annotations are others' and long.
    """
    if not has_queries(hpa):
        return None
    metadata, spec, status = hpa["metadata"], hpa.get("spec"), hpa.get("status")
    annotations = {key: value for key, value in metadata["annotations"].items() if _parts(key) is not None}
    part: dict[str, Any] = {"metadata": {**metadata, "annotations": annotations}}
    if isinstance(spec, dict):
        part["spec"] = {"metrics": spec.get("metrics")}
    if isinstance(status, dict) and any(key.endswith("/per-replica") for key in annotations):
        part["status"] = {key: status.get(key, 0) for key in ("currentReplicas", "desiredReplicas")}
    return part


def hpa_sources(default_url: str) -> tuple[ObjectSource, ...]:
    """Return the sources of both kinds of HPAs; `default_url` is --prometheus-url."""
    return tuple(
        ObjectSource(
            kind,
            path,
            ("spec", "status"),
            functools.partial(annotation_rules, kind=kind, default_url=default_url),
            annotations=True,
            part=relevant_part,
        )
        for kind, path in _COLLECTIONS.items()
    )


def annotation_rules(
    hpa: Mapping[str, Any], servers: Servers, tenancy: Tenancy, *, kind: str, default_url: str
) -> list[RuleObject]:
    """Return an object for each metric of an HPA that annotations make, with its rule or with what is wrong.

    Args:
        hpa: the JSON of an HPA of autoscaling/v2 or milliscale.io/v1; may be anything.
        servers: `prometheusServers` of the rules file, by name.
        tenancy: what rules of namespaces may do.
        kind: HPA or OWN_HPA.
        default_url: --prometheus-url.
    """
    if not has_queries(hpa):
        return []
    try:
        found = msgspec.convert(hpa, _Hpa)
    except msgspec.ValidationError as error:
        return [unreadable(hpa, kind, f"not a HorizontalPodAutoscaler: {error}")]
    configs = _configs(found.metadata.annotations or {})
    objects: dict[Hashable, RuleObject] = {}
    for index, metric in enumerate(found.spec.metrics or ()):

        def read(name: ObjectName, metric: _Metric = metric) -> list[AnyRule]:
            rule = _rule(found, metric, configs, servers, default_url)
            if rule is None:
                return []
            return [restricted(rule, key=str(name), namespace=found.metadata.namespace, tenancy=tenancy)]

        made = identified(hpa, kind, read, suffix=f" metrics[{index}]")
        for rule in made.rules:
            assert isinstance(rule, QueryRule)
            objects.setdefault((rule.external, rule.metric, rule.resource, rule.value_labels), made)
        if made.error:
            objects[index] = made
    return list(objects.values())


def _parts(key: str) -> tuple[str, str, str] | None:
    """Return the parts of `metric-config.TYPE.NAME.prometheus/SETTING`: type, name, setting; None for other keys."""
    head, slash, setting = key.partition("/")
    if not head.startswith(PREFIX) or not slash or "/" in setting:
        return None
    kind, _, rest = head.removeprefix(PREFIX).partition(".")
    name, _, collector = rest.rpartition(".")
    if not name or collector != _COLLECTOR:
        return None
    return kind, name, setting


def _configs(annotations: Mapping[str, str]) -> _Configs:
    """Return the settings of each metric. Every type but `pods` and `object` is external."""
    configs: _Configs = {}
    for key in sorted(annotations):
        parts = _parts(key)
        if parts is not None:
            kind, name, setting = parts
            kind = kind if kind in ("pods", "object") else "external"
            configs.setdefault((kind, name), {})[setting] = annotations[key]
    return configs


def _rule(hpa: _Hpa, metric: _Metric, configs: _Configs, servers: Servers, default_url: str) -> QueryRule | None:
    """Return a metric's rule; None if no annotation of Prometheus' is for it. Raises RulesError."""
    if metric.external is not None:
        return _external_rule(metric.external.metric, configs, servers, default_url)
    if metric.object is not None:
        return _object_rule(hpa, metric.object, configs)
    return None


def _external_rule(metric: _Identifier, configs: _Configs, servers: Servers, default_url: str) -> QueryRule | None:
    config = configs.get(("external", metric.name))
    collector = metric.labels.get("type") or (metric.name if metric.name in _TYPES else "")
    # Unlike upstream, an annotation suffices without the label `type`.
    if collector not in _TYPES and (collector or config is None):
        return None
    settings = {**metric.labels, **(config or {})}
    query = settings["query"] if "query" in settings else settings.get(settings.get("query-name", ""), "")
    annotation = f"{PREFIX}external.{metric.name}.{_COLLECTOR}"
    server = _server(settings, servers, default_url, annotation)
    return _checked(metric, query, annotation, Destination(server), labels=metric.labels, external=True)


def _object_rule(hpa: _Hpa, metric: _Object, configs: _Configs) -> QueryRule | None:
    name, described = metric.metric.name, metric.described_object
    config = configs.get(("object", name))
    if config is None:
        return None
    annotation = f"{PREFIX}object.{name}.{_COLLECTOR}"
    query = {**metric.metric.labels, **config}.get("query", "")
    if query and "per-replica" in config:  # with any value
        # The last reconciliation that had a metric changed the replicas from current to desired.
        status = hpa.status or _Status()
        replicas = status.desired_replicas or status.current_replicas
        if replicas < 1:
            raise RulesError(f"{annotation}/per-replica: the HPA's status has no replicas yet")
        query = f"({query}\n) / {replicas}"
    labels = {**metric.metric.labels, _OBJECT_LABEL: described.name, _NAMESPACE_LABEL: hpa.metadata.namespace}
    rule = _checked(metric.metric, query, annotation, Destination(), labels=labels, external=False)
    return msgspec.structs.replace(
        rule,
        resource=GroupResource(described.api_version.rpartition("/")[0], described.kind.lower()),
        resource_label=_OBJECT_LABEL,
        namespace_label=_NAMESPACE_LABEL,
    )


def _checked(
    metric: _Identifier,
    query: str,
    annotation: str,
    destination: Destination,
    *,
    labels: Mapping[str, str],
    external: bool,
) -> QueryRule:
    if not query.strip():
        raise RulesError(f"{annotation}/query: this annotation is required")
    if not is_metric_name(metric.name) or not metric.name.isprintable() or " " in metric.name:
        raise RulesError(f"{metric.name!r} cannot stand in the path of a request")
    return QueryRule(
        metric=metric.name,
        query=query,
        external=external,
        destination=destination,
        nan=Policy.MISSING,
        value_labels=tuple(sorted(labels.items())),
    )


def _server(
    settings: Mapping[str, str], servers: Servers, default_url: str, annotation: str
) -> PrometheusOptions | None:
    """Return the server that the settings name, by its name or URL; None for that of --prometheus-url.

    Other URLs are refused: the adapter would send requests wherever an annotation says.
    """
    for setting in ("prometheus-server", "prometheus-server-alias"):
        named = settings.get(setting)
        if named is None:
            continue
        usable = usable_servers(servers, "of an HPA")
        if named in usable:
            return usable[named]
        base = named.rstrip("/")
        if named == DEFAULT_SERVER or base == default_url.rstrip("/"):
            return None
        found = next((server for server in usable.values() if server.base == base), None)
        if found is not None:
            return found
        known = ", ".join(sorted([DEFAULT_SERVER, *usable]))
        raise RulesError(
            f"{annotation}/{setting}: there is no server for namespaces {named!r} in prometheusServers of the rules"
            f" file, by name or URL; there are {known}"
        )
    return None
