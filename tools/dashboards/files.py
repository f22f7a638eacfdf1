"""The files of the dashboards, and their JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Final

from grafana_foundation_sdk.builders.dashboard import Dashboard
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import RowPanel

from tools.dashboards.adapter import adapter_dashboard
from tools.dashboards.autoscaler import autoscaler_dashboard

_COMPONENTS: Final = Path(__file__).resolve().parents[2] / "manifests/components"
FILES: Final[dict[Path, Callable[[], Dashboard]]] = {
    _COMPONENTS / "adapter-monitoring/dashboard.json": adapter_dashboard,
    _COMPONENTS / "autoscaler-monitoring/dashboard.json": autoscaler_dashboard,
}


def render(dashboard: Dashboard) -> str:
    """Return a dashboard as JSON; its panels are numbered in their order, because Grafana needs unique IDs."""
    built = dashboard.build()
    number = 0
    for panel in built.panels or []:
        number += 1
        panel.id_val = number
        for inner in panel.panels if isinstance(panel, RowPanel) else ():
            number += 1
            inner.id_val = number
    return json.dumps(built, cls=JSONEncoder, indent=2) + "\n"
