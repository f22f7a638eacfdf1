"""The adapter's rules and its Prometheus, from its Deployment and ConfigMap in the cluster."""

from __future__ import annotations

import contextlib
import ipaddress
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Final
from urllib.parse import quote, urlsplit

import click
import msgspec

from adapter.cli import serve
from kube.api.objects import convert
from kubectl_milliscale.flags import given_flags
from kubectl_milliscale.kubectl import Kubectl, KubectlError

_LABELS: Final = "app.kubernetes.io/name=milliscale,app.kubernetes.io/component=adapter"
_GIVE: Final = "give --prometheus-url and --config"
_USED: Final = (
    "prometheus_url",
    "prometheus_headers",
    "prometheus_auth",
    "prometheus_query_parameters",
    "prometheus_verb",
    "prometheus_insecure_skip_tls_verify",
    "metrics_relist_interval",
    "metrics_max_age",
)
"""The flags of the adapter that apply on a user's machine, too."""
_FILES: Final = {
    "prometheus_token_file": "--prometheus-token-file",
    "prometheus_ca_file": "--prometheus-ca-file",
    "prometheus_client_tls_cert_file": "--prometheus-client-tls-cert-file",
    "prometheus_auth_incluster": "--prometheus-auth-incluster",
    "prometheus_auth_config": "--prometheus-auth-config",
}
"""Those that name files of the adapter's pod."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterSettings:
    """How the adapter runs.

    Attributes:
        flags: {name of a parameter of `serve`: value} of `_USED`, as given in the Deployment.
        credentials: the flags in the Deployment whose files only the pod has.
        rules: the text of the rules file.
    """

    flags: Mapping[str, Any]
    credentials: tuple[str, ...]
    rules: str


class _Metadata(msgspec.Struct):
    name: str = ""


class _Mount(msgspec.Struct, rename="camel"):
    name: str
    mount_path: str


class _Container(msgspec.Struct, rename="camel"):
    command: list[str] = []
    args: list[str] = []
    volume_mounts: list[_Mount] = []


class _ConfigMapVolume(msgspec.Struct):
    name: str = ""


class _Volume(msgspec.Struct, rename="camel"):
    name: str
    config_map: _ConfigMapVolume | None = None


class _PodSpec(msgspec.Struct):
    containers: list[_Container] = []
    volumes: list[_Volume] = []


class _Template(msgspec.Struct):
    spec: _PodSpec = msgspec.field(default_factory=_PodSpec)


class _DeploymentSpec(msgspec.Struct):
    template: _Template = msgspec.field(default_factory=_Template)


class _Deployment(msgspec.Struct):
    metadata: _Metadata
    spec: _DeploymentSpec


class _Deployments(msgspec.Struct):
    items: list[_Deployment] = []


class _ConfigMap(msgspec.Struct):
    data: dict[str, str] = {}


def read_settings(kubectl: Kubectl, namespace: str) -> AdapterSettings:
    """Return the settings of the adapter in a namespace.

    Raises:
        KubectlError: the Deployment or the ConfigMap cannot be read.
        click.ClickException: there is no adapter, or its rules are not in a ConfigMap.
    """
    quoted = quote(namespace, safe="")
    listed = kubectl.get(f"/apis/apps/v1/namespaces/{quoted}/deployments", {"labelSelector": _LABELS})
    deployments = convert(listed, _Deployments, "the list of Deployments").items
    if not deployments:
        raise click.ClickException(
            f"there is no Deployment of the adapter in namespace {namespace} (labels {_LABELS}); "
            f"give --adapter-namespace, or {_GIVE}"
        )
    where = f"Deployment {namespace}/{deployments[0].metadata.name}"
    pod = deployments[0].spec.template.spec
    for container in pod.containers:
        given = given_flags(serve, [*container.command, *container.args])
        if given.get("config") is not None:
            file = PurePosixPath(given["config"])
            name = _config_map(pod, container, file)
            if name is None:
                raise click.ClickException(f"{where}: {file} is not in a ConfigMap; {_GIVE}")
            config_map = kubectl.get(f"/api/v1/namespaces/{quoted}/configmaps/{quote(name, safe='')}")
            data = convert(config_map, _ConfigMap, f"ConfigMap {namespace}/{name}").data
            if file.name not in data:
                raise click.ClickException(f"ConfigMap {namespace}/{name} has no {file.name}; {_GIVE}")
            return AdapterSettings(
                flags={key: given[key] for key in _USED if given.get(key) is not None},
                credentials=tuple(flag for key, flag in _FILES.items() if given.get(key, False) is not False),
                rules=data[file.name],
            )
    raise click.ClickException(f"{where}: no container has the flag --config; {_GIVE}")


@contextlib.contextmanager
def reachable_prometheus(kubectl: Kubectl, url: str, *, namespace: str, verified: bool) -> Iterator[str]:
    """Yield a URL of Prometheus for this machine; a Service of the cluster is forwarded.

    Args:
        kubectl: forwards the port.
        url: as the adapter uses it.
        namespace: of the adapter.
        verified: whether the certificate is verified.

    Raises:
        KubectlError: the port cannot be forwarded.
        click.ClickException: the Service's certificate could not be verified.
    """
    parts = urlsplit(url)
    service = _service(parts.hostname or "", namespace)
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
    with contextlib.ExitStack() as stack:
        try:
            forwarded = stack.enter_context(kubectl.port_forward(service_namespace, f"service/{name}", port))
        except KubectlError as error:
            hint = "give --prometheus-url of a Prometheus that this machine can reach"
            raise KubectlError(f"{error.message}\nerror: {url} cannot be reached; {hint}") from error
        user, at, _ = parts.netloc.rpartition("@")
        yield parts._replace(netloc=f"{user}{at}127.0.0.1:{forwarded}").geturl()


def _config_map(pod: _PodSpec, container: _Container, file: PurePosixPath) -> str | None:
    """Return the name of the ConfigMap that a file of a container is in."""
    for mount in container.volume_mounts:
        if PurePosixPath(mount.mount_path) in (file, *file.parents):
            for volume in pod.volumes:
                if volume.name == mount.name and volume.config_map is not None:
                    return volume.config_map.name
    return None


def _service(host: str, namespace: str) -> tuple[str, str] | None:
    """Return namespace and name of the Service with this host name; None for other hosts.

    NAME, NAME.NAMESPACE and NAME.NAMESPACE.svc[.DOMAIN] are Services; `namespace` is that of NAME alone.
    """
    with contextlib.suppress(ValueError):
        ipaddress.ip_address(host)
        return None
    match host.split("."):
        case ["localhost"] | [""]:
            return None
        case [name]:
            return namespace, name
        case [name, in_namespace] | [name, in_namespace, "svc", *_]:
            return in_namespace, name
    return None
