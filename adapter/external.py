"""external.metrics.k8s.io: the values of a metric that is about no object of the cluster.

As in adapter.custom, statuses and messages are prometheus-adapter's where a client can rely on them.
"""

from __future__ import annotations

from adapter.catalog import Catalog
from adapter.prometheus import Sample, Scalar
from adapter.query import QueryError, SelectorNotSupported, external_query
from adapter.rule_queries import RuleQueries
from adapter.values import ExternalMetricValue
from kube.selectors import LabelSelector
from kube.status import StatusError, bad_request, internal_error, not_found

__all__ = ["ExternalMetrics"]


class ExternalMetrics:
    """Answers requests for external metrics."""

    def __init__(self, catalog: Catalog, queries: RuleQueries) -> None:
        self._catalog = catalog
        self._queries = queries

    async def values(
        self, *, namespace: str, metric: str, selector: LabelSelector, timeout: float | None
    ) -> list[ExternalMetricValue]:
        """The metric's series, each with its labels, in the order of the labels; none is no error.

        Args:
            namespace: the namespace that it is asked in; a rule with `namespaced: false` does not care.
            metric: the metric's name.
            selector: which of the metric's series count.
            timeout: the seconds that the request may take, or None.

        Raises:
            StatusError: 404 without such a metric, 400 for a selector that Prometheus cannot have, 503 and 504 when
                Prometheus is away or slow (503 also before it was first reached), 500 when the rule's query is wrong.
        """
        source = self._catalog.find_external(metric)
        if source is None:
            self._catalog.require_loaded()
            # prometheus-adapter names a resource in one namespace and none elsewhere.
            resource = "namespaces" if namespace == "default" else ""
            raise not_found(f"the server could not find the metric {metric} for {resource}")
        rule = source.rule
        if rule.resources.namespaced and not source.namespace_label:
            self._queries.say_once(
                rule, "no label means namespaces: add one to resources.overrides, or set resources.namespaced to false"
            )
            raise internal_error("unable to fetch metrics")
        try:
            query = external_query(
                rule.query,
                series=source.series,
                namespace_label=source.namespace_label,
                namespace=namespace if rule.resources.namespaced else "",
                metric_selector=selector,
            )
        except SelectorNotSupported as error:
            raise bad_request(str(error)) from error
        except QueryError as error:
            self._queries.say_once(rule, str(error))
            raise internal_error("unable to fetch metrics") from error
        result = await self._queries.ask(rule, query, timeout=timeout)
        if result is None:
            raise StatusError(500, "", "encountered an unexpected query result type")
        samples: tuple[Sample | Scalar, ...] = (result,) if isinstance(result, Scalar) else result.samples
        return [
            ExternalMetricValue(
                metric=metric,
                labels=_labels(sample),
                timestamp=sample.timestamp,
                window_seconds=None,
                milli=milli,
            )
            for sample in samples
            if (milli := self._queries.milli(rule, sample)) is not None
        ]


def _labels(sample: Sample | Scalar) -> dict[str, str] | None:
    """A sample's labels without the series' name, which is the rule's affair; a scalar has none at all."""
    if isinstance(sample, Scalar):
        return None
    return {label: value for label, value in sample.labels.items() if label != "__name__"}
