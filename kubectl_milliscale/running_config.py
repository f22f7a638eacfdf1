"""Fill in the flags that the user has not given, with those of the running adapter and autoscaler.

Both show their flags, and the adapter its rules, under /debug/config to connections from inside their pods, such as
forwarded ones. So all that a user needs is the right to forward ports there, and no credentials are sent to a pod. What
a process hides there, or does not show at all, the user gives in flags.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import click
import msgspec
from click.core import ParameterSource

from autoscaler.commands.debug_client import get_page
from kube.process.config_page import CONFIG_PATH, SECRET, ConfigPage, Flags
from kubectl_milliscale.cluster import Component, find_pods, forwarded
from kubectl_milliscale.kubectl import Kubectl, KubectlError

_OF_ADAPTER: Final = ("prometheus-", "metrics-")
_OF_AUTOSCALER: Final = ("horizontal-pod-autoscaler-", "feature-gates")
"""The beginnings of the flags that are filled in."""
_OF_THE_POD: Final = ("prometheus-auth-incluster", "prometheus-proxy-url")
"""Flags that mean nothing outside the cluster, as those that name files."""
_HIDDEN: Final = re.compile(f"{SECRET}@|[?#]{SECRET}")
_SYNC_PERIOD: Final = "horizontal-pod-autoscaler-sync-period"


def is_given(parameter: str) -> bool:
    """Return whether the current command line has a flag."""
    return click.get_current_context().get_parameter_source(parameter) is ParameterSource.COMMANDLINE


def fill_in_autoscaler(values: dict[str, Any], kubectl: Kubectl) -> None:
    """Set the flags of the controller that are not given, and --step, to the sync period.

    Args:
        values: {name of a parameter: value} of the current command.
        kubectl: finds a pod and forwards its port.
    """
    try:
        flags = _config(kubectl, find_pods(kubectl)[0], "autoscaler").flags
    except click.ClickException as error:
        click.echo(f"Note: the flags of the controller are the defaults: {error.message}", err=True)
        return
    if _SYNC_PERIOD in flags:
        _fill_in(values, {"step": flags[_SYNC_PERIOD]}, ("step",))
    _fill_in(values, flags, _OF_AUTOSCALER)
    context = click.get_current_context()
    known = ("--step", *(f"--{each}" for each in _OF_AUTOSCALER))
    for option in context.command.params:  # the others have their defaults, which are known, too
        if option.name and any(name.startswith(known) for name in option.opts):
            context.set_parameter_source(option.name, ParameterSource.COMMANDLINE)


def fill_in_prometheus(
    values: dict[str, Any], stack: ExitStack, kubectl: Kubectl, *, rules: str = "config_file"
) -> None:
    """Set the flags about Prometheus and the rules that are not given, to those of the adapter.

    Args:
        values: {name of a parameter: value} of the current command.
        stack: closes the forwarded port, and removes the file with the rules.
        kubectl: reads the adapter's configuration, and forwards the ports.
        rules: the name of the parameter with the rules file.

    Raises:
        click.ClickException: something cannot be read or forwarded.
    """
    if is_given("prometheus_url") and values[rules] is not None:
        return
    pod = find_pods(kubectl, "adapter")[0]
    try:
        page = _config(kubectl, pod, "adapter")
        if page.rules is None and values[rules] is None:
            raise click.ClickException("its rules file is invalid")
    except click.ClickException as error:
        [flag] = [one.opts[0] for one in click.get_current_context().command.params if one.name == rules]
        prints = f"`kubectl get configmaps -n {kubectl.adapter_namespace} -o yaml` prints"
        raise click.ClickException(
            f"the rules of pod {pod} cannot be read: {error.message}; give --prometheus-url, and {flag} with a "
            f"file like its rules file, which {prints} if it is in a ConfigMap"
        ) from error
    if values[rules] is None:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="kubectl-milliscale-"))
        file = Path(folder, "rules.yaml")
        file.write_bytes(msgspec.json.encode(_usable(page.rules)))
        if SECRET in str(page.rules):
            click.echo("Note: headers and secrets in URLs of the adapter's rules are not known here", err=True)
        _set_flag(values, rules, file)
    if is_given("prometheus_url"):
        return
    unusable = _fill_in(values, page.flags, _OF_ADAPTER)
    url = values["prometheus_url"]
    if not is_given("prometheus_url"):
        has = "has a secret in" if "prometheus-url" in page.flags else "has no"
        raise click.ClickException(f"the adapter {has} --prometheus-url; give it here")
    if unusable:
        names = " and ".join(unusable)
        click.echo(f"Note: the adapter has {names}; give the same here if Prometheus needs it", err=True)
    verified = not values["prometheus_insecure_skip_tls_verify"]
    reachable = stack.enter_context(reachable_prometheus(kubectl, url, verified=verified))
    _set_flag(values, "prometheus_url", reachable)
    if reachable != url and "cache_dir" in values and not is_given("cache_dir"):
        # The cache knows servers by their URL, and that of a forwarded port may be another cluster's the next time.
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="kubectl-milliscale-"))
        _set_flag(values, "cache_dir", Path(folder))


def _config(kubectl: Kubectl, pod: str, component: Component) -> ConfigPage:
    with forwarded(kubectl, pod, component) as url:
        try:
            # The adapter's certificate is for other names. Nothing secret is sent, and the API server chose the pod.
            return msgspec.json.decode(asyncio.run(get_page(f"{url}{CONFIG_PATH}", verified=False)), type=ConfigPage)
        except click.ClickException as error:
            raise click.ClickException(error.message.replace(url, f"pod {pod}")) from error
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise click.ClickException(f"the response is not the {component}'s configuration: {error}") from error


def _fill_in(values: dict[str, Any], flags: Flags, beginnings: tuple[str, ...]) -> list[str]:
    """Set the flags of the current command that are not given. Return those that cannot be used on this machine.

    The last value counts of a flag that cannot be repeated.
    """
    context, unusable = click.get_current_context(), []
    options = {name: one for one in context.command.params for name in one.opts if isinstance(one, click.Option)}
    for name, text in flags.items():
        option = options.get(f"--{name}")
        if option is None or option.name is None or not name.startswith(beginnings) or is_given(option.name):
            continue
        if isinstance(option.type, click.Path) or name in _OF_THE_POD or SECRET in str(text):
            unusable.append(f"--{name}")
        else:
            with contextlib.suppress(click.BadParameter):  # of another version
                last = text[-1] if isinstance(text, list) and not option.multiple else text
                _set_flag(values, option.name, option.process_value(context, last))
    return unusable


def _set_flag(values: dict[str, Any], parameter: str, value: object) -> None:
    values[parameter] = value
    # Commands look at the source to decide whether a flag is given.
    click.get_current_context().set_parameter_source(parameter, ParameterSource.COMMANDLINE)


def _usable(tree: Any) -> Any:
    """Return rules without what is hidden in them, such as headers, but with the servers that have it."""
    if isinstance(tree, dict):
        return {key: _usable(value) for key, value in tree.items() if value != SECRET}
    if isinstance(tree, list):
        return [_usable(each) for each in tree]
    return _HIDDEN.sub("", tree) if isinstance(tree, str) else tree


@contextlib.contextmanager
def reachable_prometheus(kubectl: Kubectl, url: str, *, verified: bool) -> Iterator[str]:
    """Yield a URL of Prometheus for this machine; a Service of the cluster is forwarded.

    Args:
        kubectl: forwards the port.
        url: as the adapter uses it.
        verified: whether the certificate is verified.

    Raises:
        KubectlError: the port cannot be forwarded.
        click.ClickException: the Service's certificate could not be verified.
    """
    parts = urlsplit(url)
    service = _service(parts.hostname or "", kubectl.adapter_namespace)
    if service is None:
        yield url
        return
    if parts.scheme == "https" and verified:
        raise click.ClickException(
            f"the certificate of {url} is for a name of the cluster, so it cannot be verified through a forwarded "
            "port; give --prometheus-insecure-skip-tls-verify, or another --prometheus-url"
        )
    service_namespace, name = service
    port = parts.port or (443 if parts.scheme == "https" else 80)
    with ExitStack() as stack:
        try:
            forwarded = stack.enter_context(kubectl.port_forward(service_namespace, f"service/{name}", port))
        except KubectlError as error:
            hint = "give --prometheus-url of a Prometheus that this machine can reach"
            raise KubectlError(f"{error.message}\nerror: {url} cannot be reached; {hint}") from error
        yield parts._replace(netloc=f"127.0.0.1:{forwarded}").geturl()


def _service(host: str, namespace: str) -> tuple[str, str] | None:
    """Return namespace and name of the Service with this host name; None for other hosts.

    NAME, NAME.NAMESPACE and NAME.NAMESPACE.svc[.DOMAIN] are Services; `namespace` is that of NAME alone.
    """
    match host.split("."):
        case [name] if name not in ("localhost", "") and ":" not in name:  # as IPv6 addresses have
            return namespace, name
        case [name, in_namespace] | [name, in_namespace, "svc", *_]:
            return in_namespace, name
    return None
