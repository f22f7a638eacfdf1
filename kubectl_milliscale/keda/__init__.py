"""From KEDA's ScaledObjects to MetricRules and HorizontalPodAutoscalers, for the command migrate-keda.

manifests    reads the objects of KEDA from YAML
triggers     makes a metric of an HPA from a trigger, and the spec of its MetricRule
servers      collects the Prometheus servers of triggers
scaled       makes the objects for one ScaledObject
cron         rewrites cron expressions of KEDA

What cannot be moved is said, never guessed: an HPA without one of its triggers would scale otherwise.
"""

from __future__ import annotations

from kubectl_milliscale.keda.manifests import KedaManifests, ManifestError, read_manifests
from kubectl_milliscale.keda.scaled import Migrated, migrate
from kubectl_milliscale.keda.servers import Servers

__all__ = ["KedaManifests", "ManifestError", "Migrated", "Servers", "migrate", "read_manifests"]
