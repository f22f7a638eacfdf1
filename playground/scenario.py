"""The load of the demo's three applications, for the targets in data/hpas.yaml.

Each load needs between one and six or seven pods, with a period of `PERIOD` seconds and different offsets, so that
every HPA scales up and down within 90 seconds.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from playground.load import Backlog, Load, Traffic, Wave

NAMESPACE: Final = "default"
PERIOD: Final = 50.0
"""The period of the load in seconds."""

_DATA: Final = Path(__file__).parent / "data"
APPLICATIONS: Final = _DATA / "applications.yaml"
"""The Deployments and the Service."""
HPAS: Final = _DATA / "hpas.yaml"
"""The HorizontalPodAutoscalers, each with the name of its Deployment."""
SWINGING: Final = ("router", "shop", "worker")
"""Their names. Each scales up and down in a period of the load."""
RULES: Final = _DATA / "rules.yaml"
"""The adapter's rules."""

SHOWCASE: Final = _DATA / "showcase.yaml"
"""What only the demo has: further Deployments, each with an HPA of its name, and MetricRules."""

_QUEUE: Final = "orders"
_PACKETS_PER_REQUEST: Final = 8.0


def demo_load(*, period: float) -> Load:
    """Return the load of the three applications."""
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
        # A worker drains 5 items per second. With a target of 50 items per worker, the queue settles within about ten
        # seconds (50 / 5).
        backlogs={_QUEUE: Backlog(wave=Wave(low=3, high=30, period=period), workers="worker", drain=5)},
    )


def showcase_load(*, period: float) -> Load:
    """Return the load of the three applications, and of those in SHOWCASE that have some."""
    load = demo_load(period=period)
    more = {
        "typo": Traffic(wave=Wave(low=60, high=340, period=period), counters={"packets_total": 1}),
        "busy": Traffic(wave=Wave(low=900, high=900, period=period), counters={"packets_total": 1}),
    }
    return Load(traffic={**load.traffic, **more}, backlogs=load.backlogs)


def wave_of(load: Load, application: str) -> Wave | None:
    """Return the rate of an application's traffic, or of its queue; None if it has neither."""
    if application in load.traffic:
        rate = load.traffic[application].wave
        return rate if isinstance(rate, Wave) else None
    return next((backlog.wave for backlog in load.backlogs.values() if backlog.workers == application), None)
