"""Flags of several commands: those about the cluster, named as kubectl's, and those of other packages' commands."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

import click

from kube.process.flags import Parsed, kubeconfig_options, option_group
from kubectl_milliscale.kubectl import DEFAULT_NAMESPACE, Kubectl

C = TypeVar("C", bound=click.Command)

TEXT = Parsed("text", lambda text: text.removeprefix("="))
"""The type of a flag with a short form; click does not remove the equals sign of `-n=shop`, which kubectl accepts."""

_NAMESPACE = click.option(
    "-n",
    "--namespace",
    "given_namespace",
    type=TEXT,
    metavar="NAME",
    default="",
    show_default="the context's",
    help="Namespace of the HPAs.",
)
_AUTOSCALER, _ADAPTER = (
    click.option(
        f"--{component}-namespace",
        metavar="NAME",
        default=DEFAULT_NAMESPACE,
        help=f"Namespace of the {component}'s pods.",
    )
    for component in ("autoscaler", "adapter")
)

adapter_options = option_group("kubectl", Kubectl, kubeconfig_options, _ADAPTER)
"""The flags of commands on rules; passed on as `kubectl`."""
hpa_options = option_group("kubectl", Kubectl, _NAMESPACE, kubeconfig_options, _AUTOSCALER)
"""Those of commands on HPAs."""
load_options = option_group("kubectl", Kubectl, _NAMESPACE, kubeconfig_options, _AUTOSCALER, _ADAPTER)
"""Those of commands on HPAs and their load in Prometheus."""


def borrow_flags(
    command: click.Command,
    *,
    only: Collection[str] = (),
    without: Collection[str] = (),
    defaults: Mapping[str, str] | None = None,
) -> Callable[[C], C]:
    """Add the flags of another command, with their headings, after those of a command.

    Args:
        command: the other command.
        only: the names of the parameters; all if empty.
        without: the names of parameters that are left out.
        defaults: {name of a parameter: default for --help, which the borrower fills in}.
    """

    def borrowed(parameter: click.Parameter) -> click.Parameter:
        parameter = copy.copy(parameter)
        if isinstance(parameter, click.Option) and defaults and parameter.name in defaults:
            parameter.show_default = defaults[parameter.name]
        return parameter

    def decorate(borrower: C) -> C:
        chosen = [one for one in command.params if (not only or one.name in only) and one.name not in without]
        borrower.params += map(borrowed, chosen)
        return borrower

    return decorate


def call(command: click.Command, values: Mapping[str, Any], kubectl: Kubectl) -> None:
    """Call the function of a command whose flags were borrowed, with the values of its parameters.

    It is called in the current context, which knows the flags that are given.
    """
    assert command.callback is not None
    command.callback(**kubectl.client_flags(), **values)
