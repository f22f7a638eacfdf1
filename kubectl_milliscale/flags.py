"""The flags that all commands have, named as kubectl's."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Mapping
from typing import TypeVar

import click

from kube.process.flags import Parsed, option_group
from kubectl_milliscale.kubectl import Kubectl

C = TypeVar("C", bound=click.Command)

DEFAULT_NAMESPACE = "milliscale"
"""The namespace in manifests/base."""


def _value(text: str) -> str:
    return text.removeprefix("=")  # kubectl accepts -n=shop


def _kubectl(*, namespace: str, context: str, kubeconfig: str) -> Kubectl:
    return Kubectl(kubeconfig=kubeconfig, context=context, given_namespace=namespace)


TEXT = Parsed("text", _value)
"""The type of a flag with a short form; click does not remove the equals sign of `-n=shop`."""

_context = click.option(
    "--context", metavar="NAME", default="", show_default="the current one", help="Context of the kubeconfig."
)
_kubeconfig = click.option(
    "--kubeconfig",
    metavar="FILE",
    default="",
    show_default="$KUBECONFIG, or ~/.kube/config",
    help="Path to the kubeconfig file.",
)
_namespace = click.option(
    "-n",
    "--namespace",
    type=TEXT,
    metavar="NAME",
    default="",
    show_default="the context's",
    help="Namespace of the HPAs.",
)

namespaced_kubectl_options = option_group("kubectl", _kubectl, _namespace, _context, _kubeconfig)
"""The flags of commands on HPAs; passed on as `kubectl`."""


def _without_namespace(*, context: str, kubeconfig: str) -> Kubectl:
    return _kubectl(namespace="", context=context, kubeconfig=kubeconfig)


kubectl_options = option_group("kubectl", _without_namespace, _context, _kubeconfig)
"""The flags of other commands."""

autoscaler_namespace_option = click.option(
    "--autoscaler-namespace", metavar="NAME", default=DEFAULT_NAMESPACE, help="Namespace of the autoscaler's pods."
)

adapter_namespace_option = click.option(
    "--adapter-namespace", metavar="NAME", default=DEFAULT_NAMESPACE, help="Namespace of the adapter's pods."
)


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
