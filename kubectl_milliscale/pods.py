"""Find the pods of the autoscaler and the adapter, and forward their ports."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any, Final, Literal, TypeAlias
from urllib.parse import quote

import click

from autoscaler.commands.debug_client import fetch_decisions
from kubectl_milliscale.kubectl import Kubectl, KubectlError

Component: TypeAlias = Literal["autoscaler", "adapter"]

_NAME_LABEL: Final = "app.kubernetes.io/name"
_PORTS: Final[dict[Component, str]] = {"autoscaler": "metrics", "adapter": "https"}
"""The names of the ports with the /debug pages."""


class NoPodError(click.ClickException):
    """No pod of a component runs in the namespace."""


def find_pods(kubectl: Kubectl, namespace: str, component: Component = "autoscaler") -> list[str]:
    """Return the names of the pods that hold a Lease, such as one for each shard; without such a pod, all that run.

    An installation may have another name (Helm's nameOverride), so its pods are found by their component. If there are
    pods with our name, those of others are left out.

    Raises:
        KubectlError: the pods cannot be read.
        NoPodError: no pod runs.
    """
    quoted, label = quote(namespace, safe=""), f"app.kubernetes.io/component={component}"
    selection = {"labelSelector": label, "fieldSelector": "status.phase=Running"}
    running = [pod["metadata"] for pod in _items(kubectl, f"/api/v1/namespaces/{quoted}/pods", selection)]
    if not running:
        raise NoPodError(
            f"no pod of the {component} runs in namespace {namespace} (label {label}); give --{component}-namespace"
        )
    ours = [pod["name"] for pod in running if pod.get("labels", {}).get(_NAME_LABEL) == "milliscale"]
    names = ours or [pod["name"] for pod in running]
    try:
        leases = _items(kubectl, f"/apis/coordination.k8s.io/v1/namespaces/{quoted}/leases")
    except KubectlError:  # the user may not list Leases
        return names
    # An identity is the pod's name and a random part: kube.controller.election.unique_identity.
    holders = {(lease.get("spec", {}).get("holderIdentity") or "").rpartition("_")[0] for lease in leases}
    return [name for name in names if name in holders] or names


def _items(kubectl: Kubectl, path: str, query: dict[str, str] | None = None) -> list[dict[str, Any]]:
    return kubectl.get(path, query).get("items") or []


@contextlib.contextmanager
def forwarded(kubectl: Kubectl, namespace: str, pod: str, component: Component = "autoscaler") -> Iterator[str]:
    """Forward a port to a pod, and yield the URL. Raises KubectlError."""
    scheme = "https" if component == "adapter" else "http"
    with kubectl.port_forward(namespace, f"pod/{pod}", _PORTS[component]) as port:
        yield f"{scheme}://127.0.0.1:{port}"


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
        with forwarded(kubectl, autoscaler_namespace, pod) as server:
            try:
                asyncio.run(fetch_decisions(server, namespace=namespace, name=name, last=1))
            except click.ClickException as error:
                problem = error.message.replace(server, f"pod {pod}")
            else:
                yield server
                return
    raise click.ClickException(problem)
