"""The end of the demo: its recording in Prometheus is replayed, as `python -m autoscaler replay` does."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from adapter.prometheus import PrometheusOptions
from adapter.rules import load_rules
from autoscaler.core.config import Config
from playground.bundle import Timing
from playground.scenario import HPAS, RULES
from replay.hpa_files import read_hpa_file
from replay.output.comparison import Comparison, compare
from replay.output.names import named
from replay.prometheus.source import PrometheusSettings, read_prometheus
from replay.simulation import Settings

REPLAYED_HPA: Final = "router"
"""The HPA on a Pods metric. The load of the others depends on the replicas that there were."""


def replay_recording(prometheus_url: str, *, start: float, end: float, timing: Timing, cache: Path) -> Comparison:
    """Replay the demo from `start` to `end`, in seconds since the epoch.

    Raises:
        ReplayError: too little was recorded.
    """
    files = [file for file in read_hpa_file(HPAS) if file.hpa.name == REPLAYED_HPA]
    step_ms = round(timing.sync_period * 1000)
    source = PrometheusSettings(
        options=PrometheusOptions(url=prometheus_url),
        rules=load_rules(RULES),
        start_ms=round(start * 1000),
        end_ms=round(end * 1000),
        step_ms=step_ms,
        cache=cache,
    )
    load = read_prometheus([file.hpa for file in files], source)
    settings = Settings(
        config=Config(downscale_stabilization_ms=round(timing.downscale_stabilization * 1000)),
        step_ms=step_ms,
        pod_startup_ms=round(timing.pod_startup * 1000),
    )
    return compare(named([file.hpa for file in files]), load, settings)
