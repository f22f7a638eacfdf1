"""`kubectl milliscale replay`, `tune` and `advise`: those of `milliscale`, with HPAs and the load of the cluster."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import click

from kube.process.flags import FILE, GoCommand
from kubectl_milliscale.cluster import named_hpa, pod_with_decisions
from kubectl_milliscale.flags import borrow_flags, call, load_options
from kubectl_milliscale.kubectl import Kubectl, KubectlError
from kubectl_milliscale.running_config import fill_in_autoscaler, fill_in_prometheus, is_given
from replay.advise.command import advise as advise_on_hpas
from replay.commands import replay as replay_hpas
from replay.controller_flags import FIELDS as CONTROLLER_FIELDS
from replay.flags import HPAReference
from replay.tune.command import tune as tune_hpa

_REPLACED: Final = ("hpas", "csv", "server", "kubeconfig", "context", "section_kubernetes_client_flags")
_REPLACED_OF_ADVISE: Final = (*_REPLACED, "namespace", "all_namespaces")
_OF_PROMETHEUS: Final = ("start", "end", "prometheus_url", "config_file", "pods")
"""Parameters with which the load is read from Prometheus."""
_DEFAULTS: Final = {
    "prometheus_url": "the adapter's",
    "config_file": "the adapter's",
    "start": "24h",
    **dict.fromkeys((*CONTROLLER_FIELDS, "step"), "the autoscaler's"),
}
"""For --help."""


@borrow_flags(replay_hpas, without=_REPLACED, defaults=_DEFAULTS)
@click.command(cls=GoCommand)
@click.argument("name")
@click.option("-f", "--filename", "files", type=FILE, multiple=True, help="File with a changed HPA. Can be repeated.")
@load_options
def replay(*, name: str, files: tuple[Path, ...], kubectl: Kubectl, **flags: Any) -> None:
    """Show what an HPA, or a changed one, would have done.

    Without --from or --prometheus-url, the load is that of the decisions that the autoscaler keeps. With one of them it
    is read from Prometheus, by default the adapter's, with the adapter's rules. The --horizontal-pod-autoscaler-* flags
    and the sync period are those of the autoscaler's pod, if there is one.

    \b
    Examples:
      kubectl milliscale replay web -n shop -f changed.yaml
      kubectl milliscale replay web -n shop -f changed.yaml --from 2w --html replay.html
    """  # noqa: D301  # click's mark for a paragraph that is not wrapped
    kubectl, namespace, name = named_hpa(kubectl, name)
    hpas = (HPAReference(cluster=(namespace, name)), *(HPAReference(path=file) for file in files))
    values = {**flags, "hpas": hpas, "csv": None, "server": None}
    with ExitStack() as stack:
        if any(map(is_given, _OF_PROMETHEUS)):
            fill_in_autoscaler(values, kubectl)
            fill_in_prometheus(values, stack, kubectl)
        else:
            try:
                values["server"] = stack.enter_context(pod_with_decisions(kubectl, namespace, name))
            except KubectlError:
                raise
            except click.ClickException as error:
                hint = "or give --from, such as --from 24h, to take the load from Prometheus"
                raise click.ClickException(f"{error.message}; {hint}") from error
        call(replay_hpas, values, kubectl)


@borrow_flags(tune_hpa, without=_REPLACED, defaults=_DEFAULTS)
@click.command(cls=GoCommand)
@click.argument("name")
@load_options
def tune(*, name: str, kubectl: Kubectl, **flags: Any) -> None:
    """Look for a better HPA on the load in Prometheus, by default the adapter's, with the adapter's rules.

    The output is YAML for kubectl apply: the recommended HPA, with the report as comments. Ctrl-C ends the search and
    reports the best HPA so far.

    \b
    Examples:
      kubectl milliscale tune web -n shop --capacity 100 --from 4w --html tune.html
    """  # noqa: D301  # click's mark for a paragraph that is not wrapped
    kubectl, namespace, name = named_hpa(kubectl, name)
    values = {**flags, "hpas": (HPAReference(cluster=(namespace, name)),), "csv": None, "server": None}
    with ExitStack() as stack:
        fill_in_autoscaler(values, kubectl)
        fill_in_prometheus(values, stack, kubectl)
        call(tune_hpa, values, kubectl)


@borrow_flags(advise_on_hpas, without=_REPLACED_OF_ADVISE, defaults={**_DEFAULTS, "start": "1w"})
@click.command(cls=GoCommand)
@load_options
@click.option("-A", "--all-namespaces", is_flag=True, help="Advise on the HPAs of all namespaces.")
def advise(*, kubectl: Kubectl, all_namespaces: bool, **flags: Any) -> None:
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
        fill_in_autoscaler(values, kubectl)
        try:
            fill_in_prometheus(values, stack, kubectl)
        except click.ClickException as error:
            if not is_given("prometheus_url"):
                raise
            click.echo(f"Note: series have the names of the metrics, without rules: {error.message}", err=True)
        call(advise_on_hpas, values, kubectl)
