"""The demo's story: which load its three applications get, matched to the targets in data/hpas.yaml.

Each load swings once in `PERIOD` seconds between what one pod takes and what six or seven take, shifted against the
others, so that in 90 seconds every HPA has had to scale up and down.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from playground.load import Backlog, Load, Traffic, Wave

NAMESPACE: Final = "default"
PERIOD: Final = 50.0
"""Seconds from one trough of the load to the next."""

_DATA: Final = Path(__file__).parent / "data"
APPLICATIONS: Final = _DATA / "applications.yaml"
"""The Deployments and the Service."""
HPAS: Final = _DATA / "hpas.yaml"
"""The HorizontalPodAutoscalers, each with the name of its Deployment."""
RULES: Final = _DATA / "rules.yaml"
"""The adapter's rules."""

_QUEUE: Final = "orders"
_PACKETS_PER_REQUEST: Final = 8.0


def demo_load(*, period: float) -> Load:
    """The load of the three applications, at its beginning."""
    return Load(
        traffic={
            "router": Traffic(
                wave=Wave(low=80, high=620, period=period),
                counters={"packets_total": 1},
            ),
            "shop": Traffic(
                wave=Wave(low=40, high=290, period=period, offset=0.1 * period),
                counters={"requests_total": 1, "packets_total": _PACKETS_PER_REQUEST},
            ),
        },
        # A worker takes 5 items a second. With 50 waiting items for each worker as the target, the queue settles where
        # the workers keep up, within about ten seconds (50 / 5).
        backlogs={_QUEUE: Backlog(wave=Wave(low=3, high=30, period=period), workers="worker", drain=5)},
    )


def wave_of(load: Load, application: str) -> Wave:
    """What arrives for an application, whether it is traffic or fills the queue that it drains."""
    if application in load.traffic:
        return load.traffic[application].wave
    return next(backlog.wave for backlog in load.backlogs.values() if backlog.workers == application)
