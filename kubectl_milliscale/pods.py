"""Find the pods of the autoscaler and the adapter, and forward their ports."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias
from urllib.parse import quote

import click
import msgspec

from autoscaler.commands.debug_client import fetch_decisions
from kube.api.objects import convert
from kubectl_milliscale.kubectl import Kubectl, KubectlError

Component: TypeAlias = Literal["autoscaler", "adapter"]

_NAME_LABEL: Final = "app.kubernetes.io/name"
_PORTS: Final[dict[Component, tuple[str, int]]] = {"autoscaler": ("metrics", 8080), "adapter": ("https", 6443)}
"""The name and the default number of the port with the /debug pages."""


class NoPodError(click.ClickException):
    """No pod of a component runs in the namespace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """A running pod, with the port of its /debug pages."""

    namespace: str
    name: str
    port: int


class _Metadata(msgspec.Struct):
    name: str = ""
    labels: dict[str, str] = {}


class _Port(msgspec.Struct, rename="camel"):
    name: str = ""
    container_port: int = 0


class _Container(msgspec.Struct):
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


def find_pods(kubectl: Kubectl, namespace: str, component: Component = "autoscaler") -> list[Pod]:
    """Return the pods that hold a Lease, such as one for each shard; without such a pod, all that run.

    An installation may have another name (Helm's nameOverride), so its pods are found by their component. If there are
    pods with our name, those of others are left out.

    Raises:
        KubectlError: the pods cannot be read.
        NoPodError: no pod runs.
    """
    path, label = f"/api/v1/namespaces/{quote(namespace, safe='')}/pods", f"app.kubernetes.io/component={component}"
    listed = convert(kubectl.get(path, {"labelSelector": label}), _Pods, "the list of pods").items
    running = [pod for pod in listed if pod.status.phase == "Running"]
    if not running:
        raise NoPodError(
            f"no pod of the {component} runs in namespace {namespace} (label {label}); give --{component}-namespace"
        )
    running = [pod for pod in running if pod.metadata.labels.get(_NAME_LABEL) == "milliscale"] or running
    port_name, default = _PORTS[component]
    pods = []
    for pod in running:
        ports = [port for container in pod.spec.containers for port in container.ports if port.name == port_name]
        number = ports[0].container_port if ports else default
        pods.append(Pod(namespace=namespace, name=pod.metadata.name, port=number))
    holders = _lease_holders(kubectl, namespace)
    return [pod for pod in pods if pod.name in holders] or pods


@contextlib.contextmanager
def forwarded(kubectl: Kubectl, pod: Pod) -> Iterator[str]:
    """Forward a port to a pod of the autoscaler, and yield the URL. Raises KubectlError."""
    with kubectl.port_forward(pod.namespace, f"pod/{pod.name}", pod.port) as port:
        yield f"http://127.0.0.1:{port}"


@contextlib.contextmanager
def pod_with_decisions(kubectl: Kubectl, autoscaler_namespace: str, *, namespace: str, name: str) -> Iterator[str]:
    """Forward a port to the pod that has decisions on an HPA, and yield the URL.

    Raises:
        KubectlError: the pods cannot be read, or a port cannot be forwarded.
        NoPodError: no pod runs.
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


def _lease_holders(kubectl: Kubectl, namespace: str) -> set[str]:
    """Return the names of the pods that hold a Lease; none if the user may not list Leases."""
    try:
        listed = kubectl.get(f"/apis/coordination.k8s.io/v1/namespaces/{quote(namespace, safe='')}/leases")
    except KubectlError:
        return set()
    leases = convert(listed, _Leases, "the list of Leases").items
    # An identity is the pod's name and a random part: kube.controller.election.unique_identity.
    return {(lease.spec.holder_identity or "").rpartition("_")[0] for lease in leases}
