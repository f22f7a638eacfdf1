"""Copy alerts, dashboards and CustomResourceDefinitions into the Helm chart: `make chart-files`.

A chart can read only its own files, and not every tool that installs charts follows symbolic links.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

_ROOT: Final = Path(__file__).resolve().parent.parent
_MANIFESTS: Final = _ROOT / "manifests"
_FILES: Final = _ROOT / "charts/milliscale/files"

COPIES: Final = {
    _FILES / "adapter-alerts.yaml": _MANIFESTS / "components/adapter-monitoring/alerts.yaml",
    _FILES / "adapter-dashboard.json": _MANIFESTS / "components/adapter-monitoring/dashboard.json",
    _FILES / "autoscaler-alerts.yaml": _MANIFESTS / "components/autoscaler-monitoring/alerts.yaml",
    _FILES / "autoscaler-dashboard.json": _MANIFESTS / "components/autoscaler-monitoring/dashboard.json",
    _FILES / "clustermetricrules.yaml": _MANIFESTS / "crds/metric-rules/clustermetricrules.yaml",
    _FILES / "horizontalpodautoscalers.yaml": _MANIFESTS / "crds/horizontalpodautoscalers.yaml",
    _FILES / "metricrules.yaml": _MANIFESTS / "crds/metric-rules/metricrules.yaml",
}


def main() -> None:
    """Write the copies."""
    for copy, original in COPIES.items():
        copy.write_bytes(original.read_bytes())


if __name__ == "__main__":
    main()
