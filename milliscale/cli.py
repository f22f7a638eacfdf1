"""The command line of `milliscale`. A command's modules are imported when it is used."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

import click

from kube.process.flags import CONTEXT_SETTINGS, LazyGroup
from kube.version import VERSION

_LAZY: Final = {
    "explain": "autoscaler.commands.explain:explain",
    "replay": "replay.commands:replay",
    "tune": "replay.tune.command:tune",
    "advise": "replay.advise.command:advise",
    "check": "adapter.commands.diagnose:check",
    "status": "kubectl_milliscale.status:status",
    "migrate-keda": "kubectl_milliscale.keda.command:migrate_keda",
    "adapter": "adapter.cli:main",
    "autoscaler": "autoscaler.cli:main",
}
if find_spec("playground") is not None:  # the image does not have it
    _LAZY["demo"] = "playground.cli:demo"


@click.group(cls=LazyGroup, lazy=_LAZY, context_settings=CONTEXT_SETTINGS)
@click.version_option(VERSION)
def main() -> None:
    """See why HorizontalPodAutoscalers scale, and scale them on Prometheus metrics.

    `explain` only reads, and works beside Kubernetes' own controller; nothing of milliscale need be installed in the
    cluster. `demo` runs everything on loopback. `adapter` and `autoscaler` are the processes that run there.
    """
