"""Find the pods of the autoscaler and the adapter, forward their ports, and read the autoscaler's last decisions."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias
from urllib.parse import quote

import click

from autoscaler.commands.debug_client import fetch_decisions, fetch_index
from autoscaler.core.model import HPAKey
from kubectl_milliscale.kubectl import Kubectl, KubectlError

Component: TypeAlias = Literal["autoscaler", "adapter"]

_NAME_LABEL: Final = "app.kubernetes.io/name"
_PORTS: Final[dict[Component, str]] = {"autoscaler": "metrics", "adapter": "https"}
"""The names of the ports with the /debug pages."""

SHOWN: Final = 20
"""Decisions per HPA; the autoscaler keeps as many by default."""
_RENEW_SECONDS: Final = 60.0
"""After this time the pods are looked up again, since another may be leader."""
_RETRY_SECONDS: Final = 10.0

DesiredReplicas: TypeAlias = Mapping[HPAKey, Sequence[int | None]]
"""{HPA: the desired replicas of its last decisions, oldest first; None where no replica count was found}."""


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


class Decisions:
    """Reads the last decisions on all HPAs from the autoscaler's pods; forwards stay open between reads, until `close`.

    Args:
        kubectl: reads the pods and forwards the ports.
        autoscaler_namespace: of the pods.
        namespace: of the HPAs; "" for all.
        clock: monotonic, in seconds.
    """

    def __init__(
        self,
        kubectl: Kubectl,
        *,
        autoscaler_namespace: str,
        namespace: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._kubectl = kubectl
        self._autoscaler_namespace = autoscaler_namespace
        self._namespace = namespace
        self._clock = clock
        self._forwards = contextlib.ExitStack()
        self._servers: list[str] = []
        self._connect_at = float("-inf")
        self.problem = ""
        """Why there are no decisions; "" if there are."""

    def fetch(self) -> DesiredReplicas:
        """Return the decisions; none if there is a problem."""
        if self._clock() >= self._connect_at:
            self._connect()
        if self.problem:
            return {}
        found = {}
        try:
            for server in self._servers:
                page = asyncio.run(fetch_index(server, namespace=self._namespace, last=SHOWN))
                found.update({HPAKey(one.namespace, one.name, one.group): one.desired_replicas for one in page.hpas})
        except click.ClickException as error:
            self._fail(error)
            return {}
        return found

    def close(self) -> None:
        """End the forwards."""
        self._forwards.close()
        self._servers = []

    def _connect(self) -> None:
        self.close()
        try:
            for pod in find_pods(self._kubectl, self._autoscaler_namespace):
                url = forwarded(self._kubectl, self._autoscaler_namespace, pod)
                self._servers.append(self._forwards.enter_context(url))
        except click.ClickException as error:
            self._fail(error)
        else:
            self.problem = ""
            self._connect_at = self._clock() + _RENEW_SECONDS

    def _fail(self, error: click.ClickException) -> None:
        self.close()
        self.problem = error.message
        self._connect_at = self._clock() + _RETRY_SECONDS
