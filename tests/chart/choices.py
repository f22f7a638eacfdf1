"""What can be chosen, in kustomize's form and in Helm's."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

from tests.manifests.rendering import MANIFESTS

Values = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Choice:
    """An overlay with components, and the values that install the same."""

    base: str
    components: tuple[str, ...] = ()
    values: Values = field(default_factory=dict)


ON: Final = {"enabled": True}
AUTOSCALER: Final = {"autoscaler": {"enabled": True}}
_RULES: Final = yaml.safe_load((MANIFESTS / "base/rules.yaml").read_text())

# The Prometheus and the rules of manifests/base.
BASE_VALUES: Final[Values] = {
    "prometheus": {"url": "http://prometheus-k8s.monitoring.svc", "path": "/"},
    "rules": {"default": False, "custom": _RULES["rules"], "external": _RULES["externalRules"]},
}

CHOICES: Final[dict[str, Choice]] = {
    "adapter alone": Choice("overlays/adapter-only"),
    "autoscaler alone": Choice("overlays/autoscaler-only", values={"adapter": {"enabled": False}, **AUTOSCALER}),
    "in place of the built-in controller": Choice("base", values=AUTOSCALER),
    "own HPA kind": Choice("overlays/managed", values={"autoscaler": {"enabled": True, "ownHPAs": True}}),
    "shadow": Choice("overlays/shadow", values={"autoscaler": {"enabled": True, "mode": "shadow"}}),
    "sharded": Choice("overlays/sharded", values={"autoscaler": {"enabled": True, "shards": 2}}),
    "resource metrics": Choice(
        "overlays/adapter-only", ("resource-metrics",), values={"apiService": {"resource": True}}
    ),
    "pages": Choice(
        "base", ("adapter-ui", "autoscaler-ui"), values={"ui": ON, "autoscaler": {"enabled": True, "ui": ON}}
    ),
    "monitoring": Choice(
        "base", ("adapter-monitoring", "autoscaler-monitoring"), values={"monitoring": ON, **AUTOSCALER}
    ),
    "monitoring of the adapter": Choice("overlays/adapter-only", ("adapter-monitoring",), values={"monitoring": ON}),
    "network policies": Choice(
        "base", ("adapter-network-policy", "autoscaler-network-policy"), values={"networkPolicy": ON, **AUTOSCALER}
    ),
    "metric rules": Choice("overlays/adapter-only", ("metric-rules",), values={"metricRules": ON}),
    "rules in ConfigMaps": Choice(
        "overlays/adapter-only", ("rules-config-maps",), values={"metricRules": {"configMaps": True}}
    ),
    "queries in annotations": Choice(
        "overlays/adapter-only", ("hpa-annotations",), values={"metricRules": {"hpaAnnotations": True}}
    ),
    "cert-manager": Choice("overlays/adapter-only", ("certificates",), values={"certManager": ON}),
    "high availability": Choice("base", ("high-availability",), values={"highAvailability": ON, **AUTOSCALER}),
    "high availability of shards": Choice(
        "overlays/sharded",
        ("high-availability", "autoscaler-ui"),
        values={"highAvailability": ON, "autoscaler": {"enabled": True, "shards": 2, "ui": ON}},
    ),
    "everything, with the own HPA kind": Choice(
        "overlays/managed",
        (
            "resource-metrics",
            "adapter-ui",
            "autoscaler-ui",
            "adapter-monitoring",
            "autoscaler-monitoring",
            "adapter-network-policy",
            "autoscaler-network-policy",
            "certificates",
            "high-availability",
            "metric-rules",
            "rules-config-maps",
            "hpa-annotations",
        ),
        values={
            "apiService": {"resource": True},
            "ui": ON,
            "monitoring": ON,
            "networkPolicy": ON,
            "certManager": ON,
            "highAvailability": ON,
            "metricRules": {"enabled": True, "configMaps": True, "hpaAnnotations": True},
            "autoscaler": {"enabled": True, "ownHPAs": True, "ui": ON},
        },
    ),
}
