"""`kubectl milliscale explain`: `milliscale-autoscaler explain`, with the pod that decides on the HPA."""

from __future__ import annotations

from contextlib import ExitStack

import click

from autoscaler.commands.explain import explain as explain_decisions
from kubectl_milliscale.flags import autoscaler_namespace_option, borrow_flags, namespaced_kubectl_options
from kubectl_milliscale.hpas import named_hpa
from kubectl_milliscale.kubectl import Kubectl
from kubectl_milliscale.pods import NoPodError, pod_with_decisions


@borrow_flags(explain_decisions, only=("output", "api"))
@click.command()
@click.argument("name")
@click.option(
    "--last", type=click.IntRange(min=1), default=1, help="Number of decisions to show, the latest in detail."
)
@namespaced_kubectl_options
@autoscaler_namespace_option
def explain(*, name: str, kubectl: Kubectl, autoscaler_namespace: str, last: int, output: str, api: str | None) -> None:
    """Show why an HPA was scaled, or was not, with the numbers behind the decision.

    Where no autoscaler of milliscale runs in the cluster, the decision is computed here, as `milliscale explain` does.

    \b
    Examples:
      kubectl milliscale explain web -n shop
      kubectl milliscale explain web -n shop --last 5
    """  # noqa: D301  # click's mark for a paragraph that is not wrapped
    kubectl, namespace, name = named_hpa(kubectl, name)
    arguments = [f"--last={last}", f"--output={output}", f"{namespace}/{name}"]
    if api is not None:
        arguments.append(f"--api={api}")
    with ExitStack() as stack:
        pod = pod_with_decisions(kubectl, autoscaler_namespace, namespace=namespace, name=name)
        try:
            arguments.append(f"--server={stack.enter_context(pod)}")
        except NoPodError as error:
            if last > 1:
                raise
            click.echo(f"Note: {error.message}; so the decision is computed here", err=True)
        given = {flag: value for flag, value in kubectl.client_flags().items() if value is not None}
        arguments += [f"--{flag}={value}" for flag, value in given.items()]
        explain_decisions.main(arguments, standalone_mode=False)
