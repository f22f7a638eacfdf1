"""Find the autoscaler's pods, and forward their ports."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

import click
import msgspec

from autoscaler.commands.debug_client import fetch_decisions
from autoscaler.loop.options import Options
from kube.api.objects import convert
from kubectl_milliscale.kubectl import Kubectl, KubectlError

_LABELS: Final = "app.kubernetes.io/name=milliscale,app.kubernetes.io/component=autoscaler"
_PORT_NAME: Final = "metrics"
_DEFAULT_PORT: Final = Options().metrics_port


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoscalerPod:
    """A running pod of the autoscaler.

    Attributes:
        namespace, name: of the pod.
        port: of its /debug pages.
        arguments: its command line.
    """

    namespace: str
    name: str
    port: int
    arguments: tuple[str, ...]


class _Metadata(msgspec.Struct):
    name: str = ""


class _Port(msgspec.Struct, rename="camel"):
    name: str = ""
    container_port: int = 0


class _Container(msgspec.Struct):
    command: list[str] = []
    args: list[str] = []
    ports: list[_Port] = []


class _PodSpec(msgspec.Struct):
    containers: list[_Container] = []


class _PodStatus(msgspec.Struct):
    phase: str = ""


class _Pod(msgspec.Struct):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    spec: _PodSpec = msgspec.field(default_factory=_PodSpec)
    status: _PodStatus = msgspec.field(default_factory=_PodStatus)


class _Pods(msgspec.Struct):
    items: list[_Pod] = []


class _LeaseSpec(msgspec.Struct, rename="camel"):
    holder_identity: str | None = None


class _Lease(msgspec.Struct):
    spec: _LeaseSpec = msgspec.field(default_factory=_LeaseSpec)


class _Leases(msgspec.Struct):
    items: list[_Lease] = []


def find_pods(kubectl: Kubectl, namespace: str) -> list[AutoscalerPod]:
    """Return the pods that hold a Lease: one for each shard. Without such a pod, as in mode shadow, all that run.

    Raises:
        KubectlError: the pods cannot be read.
        click.ClickException: no pod runs.
    """
    quoted = quote(namespace, safe="")
    listed = kubectl.get(f"/api/v1/namespaces/{quoted}/pods", {"labelSelector": _LABELS})
    pods = [
        _autoscaler_pod(namespace, pod)
        for pod in convert(listed, _Pods, "the list of pods").items
        if pod.status.phase == "Running"
    ]
    if not pods:
        raise click.ClickException(
            f"no pod of the autoscaler runs in namespace {namespace} (labels {_LABELS}); give --autoscaler-namespace"
        )
    holders = _lease_holders(kubectl, quoted)
    return [pod for pod in pods if pod.name in holders] or pods


@contextlib.contextmanager
def forwarded(kubectl: Kubectl, pod: AutoscalerPod) -> Iterator[str]:
    """Forward a port to the pod, and yield the URL. Raises KubectlError."""
    with kubectl.port_forward(pod.namespace, f"pod/{pod.name}", pod.port) as port:
        yield f"http://127.0.0.1:{port}"


@contextlib.contextmanager
def pod_with_decisions(kubectl: Kubectl, autoscaler_namespace: str, *, namespace: str, name: str) -> Iterator[str]:
    """Forward a port to the pod that has decisions on an HPA, and yield the URL.

    Raises:
        KubectlError: the pods cannot be read, or a port cannot be forwarded.
        click.ClickException: no pod has decisions.
    """
    problem = ""
    for pod in find_pods(kubectl, autoscaler_namespace):
        with forwarded(kubectl, pod) as server:
            try:
                asyncio.run(fetch_decisions(server, namespace=namespace, name=name, last=1))
            except click.ClickException as error:
                problem = error.message.replace(server, f"pod {pod.name}")
            else:
                yield server
                return
    raise click.ClickException(problem)


def _autoscaler_pod(namespace: str, pod: _Pod) -> AutoscalerPod:
    containers = pod.spec.containers
    ports = {port.container_port: one for one in containers for port in one.ports if port.name == _PORT_NAME}
    port, container = next(iter(ports.items()), (_DEFAULT_PORT, containers[0] if containers else _Container()))
    return AutoscalerPod(
        namespace=namespace,
        name=pod.metadata.name,
        port=port,
        arguments=(*container.command, *container.args),
    )


def _lease_holders(kubectl: Kubectl, quoted_namespace: str) -> set[str]:
    """Return the names of the pods that hold a Lease; none if the user may not list Leases."""
    try:
        listed = kubectl.get(f"/apis/coordination.k8s.io/v1/namespaces/{quoted_namespace}/leases")
    except KubectlError:
        return set()
    leases = convert(listed, _Leases, "the list of Leases").items
    # An identity is the pod's name and a random part: kube.controller.election.unique_identity.
    return {(lease.spec.holder_identity or "").rpartition("_")[0] for lease in leases}
