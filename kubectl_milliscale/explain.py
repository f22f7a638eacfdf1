"""`kubectl milliscale explain`: `milliscale-autoscaler explain`, with the pod that decides on the HPA."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import click

from autoscaler.commands.explain import explain as explain_decisions
from kubectl_milliscale.cluster import NoPodError, named_hpa, pod_with_decisions
from kubectl_milliscale.flags import borrow_flags, hpa_options
from kubectl_milliscale.kubectl import Kubectl


@borrow_flags(explain_decisions, only=("output", "api"))
@click.command()
@click.argument("name")
@click.option(
    "--last", type=click.IntRange(min=1), default=1, help="Number of decisions to show, the latest in detail."
)
@hpa_options
def explain(*, name: str, last: int, kubectl: Kubectl, **flags: Any) -> None:
    """Show why an HPA was scaled, or was not, with the numbers behind the decision.

    Where no autoscaler of milliscale runs in the cluster, the decision is computed here, as `milliscale explain` does.

    \b
    Examples:
      kubectl milliscale explain web -n shop
      kubectl milliscale explain web -n shop --last 5
    """  # noqa: D301  # click's mark for a paragraph that is not wrapped
    kubectl, namespace, name = named_hpa(kubectl, name)
    with ExitStack() as stack:
        try:
            flags["server"] = stack.enter_context(pod_with_decisions(kubectl, namespace, name))
        except NoPodError as error:
            if last > 1:
                raise
            click.echo(f"Note: {error.message}; so the decision is computed here", err=True)
        # The other flags have their defaults.
        values = {"hpa": (namespace, name), "last": last, **flags, **kubectl.client_flags()}
        click.get_current_context().invoke(explain_decisions, **values)
