"""Record what the prometheus-adapter chart renders: `python -m tests.chart.record CHART`.

CHART is a copy of charts/prometheus-adapter of https://github.com/prometheus-community/helm-charts. For each values
file in prometheus_adapter_values the objects are written beside it, and the chart's default values into defaults.json.
"""

import argparse
import json
from pathlib import Path
from typing import Any, Final

import yaml

from tests.helm_engine import render
from tools.render_chart import load_helm, objects

FOLDER: Final = Path(__file__).parent / "prometheus_adapter_values"
RELEASE: Final = "prometheus-adapter"
NAMESPACE: Final = "monitoring"
VALUES: Final = sorted(path for path in FOLDER.glob("*.yaml") if not path.name.endswith(".rendered.yaml"))


def load(path: Path) -> dict[str, Any]:
    """Return the values of a file."""
    return dict(yaml.safe_load(path.read_text()))


def rendered_file(path: Path) -> Path:
    """Return the file with the objects of a values file."""
    return path.with_suffix(".rendered.yaml")


def main() -> None:
    """Write all recordings."""
    helm = load_helm()

    parser = argparse.ArgumentParser(description="Record what the prometheus-adapter chart renders.")
    parser.add_argument("chart", type=Path)
    chart = parser.parse_args().chart
    with helm.Chart.load(chart) as loaded:
        defaults = {"chart": loaded.name, "version": loaded.version, "values": loaded.values}
    (FOLDER / "defaults.json").write_text(json.dumps(defaults, indent=2) + "\n")
    for path in VALUES:
        found = objects(render(load(path), release=RELEASE, namespace=NAMESPACE, chart=chart))
        rendered_file(path).write_text(yaml.safe_dump_all(found, sort_keys=False))


if __name__ == "__main__":
    main()
