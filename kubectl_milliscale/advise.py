"""`kubectl milliscale advise`: `milliscale advise`, with the HPAs and the Prometheus of the cluster."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any, Final

import click

from kube.process.flags import GoCommand
from kubectl_milliscale.flags import (
    adapter_namespace_option,
    autoscaler_namespace_option,
    borrow_flags,
    namespaced_kubectl_options,
)
from kubectl_milliscale.kubectl import Kubectl
from kubectl_milliscale.replay import DEFAULTS, call
from kubectl_milliscale.running_config import fill_in_autoscaler, fill_in_prometheus, is_given
from replay.advise.command import advise as advise_on_hpas

_REPLACED: Final = (
    "namespace",
    "all_namespaces",
    "kubeconfig",
    "context",
    "section_kubernetes_client_flags",
)


@borrow_flags(advise_on_hpas, without=_REPLACED, defaults={**DEFAULTS, "start": "1w"})
@click.command(cls=GoCommand)
@namespaced_kubectl_options
@click.option("-A", "--all-namespaces", is_flag=True, help="Advise on the HPAs of all namespaces.")
@autoscaler_namespace_option
@adapter_namespace_option
def advise(
    *,
    kubectl: Kubectl,
    all_namespaces: bool,
    autoscaler_namespace: str,
    adapter_namespace: str,
    **flags: Any,
) -> None:
    """Show which HPAs waste pods or need more, by their load of a week in Prometheus.

    Only reads. Prometheus and the rules are by default those of the adapter; with --prometheus-url and without an
    adapter, series have the names of the metrics.

    \b
    Examples:
      kubectl milliscale advise -n shop
      kubectl milliscale advise -A --prometheus-url http://localhost:9090
      kubectl milliscale advise -A --from 2w -o json
    """  # noqa: D301  # click's mark for a paragraph that is not wrapped
    namespace = "" if all_namespaces else kubectl.namespace()
    values = {**flags, "namespace": namespace, "all_namespaces": all_namespaces}
    with ExitStack() as stack:
        fill_in_autoscaler(values, kubectl, autoscaler_namespace)
        try:
            fill_in_prometheus(values, stack, rules="config_file", kubectl=kubectl, adapter_namespace=adapter_namespace)
        except click.ClickException as error:
            if not is_given("prometheus_url"):
                raise
            click.echo(f"Note: series have the names of the metrics, without rules: {error.message}", err=True)
        call(advise_on_hpas, values, kubectl)
