"""/metrics/slis: how each health check went, under the names that Kubernetes' components give these metrics.

They are counted as the checks are asked, so that a scrape costs nothing and shows what probes saw (k8s.io/
component-base/metrics/prometheus/slis). They stand apart from /metrics because they are few and may be scraped often.
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from adapter.content.encoding import Encoded

_LABELS = ("name", "type")


class CheckMetrics:
    """Counts the results of health checks."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._last = Gauge(
            "kubernetes_healthcheck",
            "Whether a check was passed when it was last asked (1) or not (0).",
            _LABELS,
            registry=self._registry,
        )
        self._all = Counter(
            "kubernetes_healthchecks_total", "Results of checks.", (*_LABELS, "status"), registry=self._registry
        )

    def observe(self, endpoint: str, check: str, *, passed: bool) -> None:
        """Note a result; `endpoint` is healthz, livez or readyz."""
        self._last.labels(check, endpoint).set(passed)
        self._all.labels(check, endpoint, "success" if passed else "error").inc()

    def exposition(self) -> Encoded:
        """All of it, as text."""
        return Encoded(generate_latest(self._registry), CONTENT_TYPE_LATEST)
