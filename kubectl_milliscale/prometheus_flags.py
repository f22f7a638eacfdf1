"""Fill in the flags about Prometheus and the rules that the user has not given, from the adapter in the cluster."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from kubectl_milliscale.adapter_settings import reachable_prometheus, read_settings
from kubectl_milliscale.kubectl import Kubectl


def is_given(parameter: str) -> bool:
    """Return whether the current command line has a flag."""
    return click.get_current_context().get_parameter_source(parameter) is ParameterSource.COMMANDLINE


def fill_in_flag(values: dict[str, Any], parameter: str, value: object) -> None:
    """Set the value of a flag of the current command, unless it is given."""
    if parameter in values and not is_given(parameter):
        values[parameter] = value
        # Commands look at the source to decide whether a flag is given.
        click.get_current_context().set_parameter_source(parameter, ParameterSource.COMMANDLINE)


def fill_in_prometheus(
    values: dict[str, Any], stack: ExitStack, *, rules: str, kubectl: Kubectl, adapter_namespace: str
) -> None:
    """Set the values of the flags that are not given.

    Args:
        values: {name of a parameter: value} of the current command.
        stack: closes the forwarded port, and removes the file with the rules.
        rules: the name of the parameter with the rules file.
        kubectl: reads the adapter's Deployment and ConfigMap, and forwards the port.
        adapter_namespace: of the Deployment.

    Raises:
        click.ClickException: something cannot be read or forwarded.
    """
    if is_given("prometheus_url") and values[rules] is not None:
        return
    settings = read_settings(kubectl, adapter_namespace)
    if values[rules] is None:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="kubectl-milliscale-"))
        file = Path(folder, "rules.yaml")
        file.write_text(settings.rules)
        fill_in_flag(values, rules, file)
    if is_given("prometheus_url"):
        return
    flags = dict(settings.flags)
    if "prometheus_url" not in flags:
        raise click.ClickException("the adapter's Deployment has no --prometheus-url; give it here")
    url = flags.pop("prometheus_url")
    for parameter, value in flags.items():
        fill_in_flag(values, parameter, value)
    if settings.credentials:
        names = " and ".join(settings.credentials)
        click.echo(f"Note: the adapter has {names}; give the same here if Prometheus needs it", err=True)
    verified = not values["prometheus_insecure_skip_tls_verify"]
    reachable = stack.enter_context(reachable_prometheus(kubectl, url, namespace=adapter_namespace, verified=verified))
    fill_in_flag(values, "prometheus_url", reachable)
    if reachable != url and "cache_dir" in values:
        # The cache knows servers by their URL, and that of a forwarded port may be another cluster's the next time.
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="kubectl-milliscale-"))
        fill_in_flag(values, "cache_dir", Path(folder))
