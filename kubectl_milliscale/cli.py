"""The command line of `kubectl milliscale`."""

from __future__ import annotations

from typing import Final

import click

from kube.process.flags import CONTEXT_SETTINGS, LazyGroup
from kube.version import VERSION

_LAZY: Final = {
    "status": "kubectl_milliscale.status:status",
    "explain": "kubectl_milliscale.explain:explain",
    "replay": "kubectl_milliscale.replay:replay",
    "tune": "kubectl_milliscale.replay:tune",
    "advise": "kubectl_milliscale.replay:advise",
    "check": "kubectl_milliscale.check:check",
    "migrate-keda": "kubectl_milliscale.keda.command:migrate_keda",
}


@click.group(cls=LazyGroup, lazy=_LAZY, context_settings=CONTEXT_SETTINGS)
@click.version_option(VERSION)
def main() -> None:
    """Look at the autoscaler's HPAs and decisions, and at the adapter's rules; move from KEDA.

    Reads the cluster with kubectl, so it needs no other rights than the user has: to read HPAs, and pods and Leases in
    the autoscaler's namespace, and to create pods/portforward there.
    """
