"""What is in the cluster: HPAs of both APIs, the pods of the autoscaler and the adapter, and the last decisions."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Literal, TypeAlias
from urllib.parse import quote

import click

from autoscaler.commands.debug_client import fetch_decisions, fetch_index
from autoscaler.core.model import HPA, HPA_APIS, HPAKey
from autoscaler.objects.hpa import track_hpa
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


def split_names(kubectl: Kubectl, names: Iterable[str]) -> tuple[Kubectl, list[str]]:
    """Return the names of HPAs that are given as NAME or NAMESPACE/NAME, and kubectl with their namespace.

    Raises:
        click.UsageError: they are of several namespaces.
    """
    pairs = [name.rpartition("/") for name in names]
    namespaces = {namespace for namespace, _, _ in pairs if namespace}
    if kubectl.given_namespace and namespaces:
        namespaces.add(kubectl.given_namespace)
    if len(namespaces) > 1 or (namespaces and not all(slash or kubectl.given_namespace for _, slash, _ in pairs)):
        raise click.UsageError("name HPAs of one namespace")
    if namespaces:
        kubectl = replace(kubectl, given_namespace=namespaces.pop())
    return kubectl, [name for _, _, name in pairs]


def named_hpa(kubectl: Kubectl, name: str) -> tuple[Kubectl, str, str]:
    """Return kubectl with the namespace of an HPA, that namespace, and the name without it.

    Raises:
        KubectlError: there is no such HPA, or it cannot be read.
    """
    kubectl, (name,) = split_names(kubectl, [name])
    namespace = kubectl.namespace()
    for api in HPA_APIS:  # who may read those of one API need not have rights to the other
        try:
            kubectl.get(api.path(namespace, name))
        except KubectlError as error:
            if not error.is_not_found:
                raise
        else:
            return kubectl, namespace, name
    raise not_found(namespace, name)


def not_found(namespace: str, name: str) -> KubectlError:
    """Return the error about an HPA that does not exist, in the words of kubectl."""
    missing = f'horizontalpodautoscalers.autoscaling "{name}" not found in namespace {namespace}'
    return KubectlError(f"Error from server (NotFound): {missing}")


def list_hpas(kubectl: Kubectl, namespace: str, *, selector: str, names: Collection[str]) -> list[HPA]:
    """Return the HPAs of all APIs that the API server has, sorted.

    Args:
        kubectl: reads them.
        namespace: of the HPAs; "" for all.
        selector: a label selector; "" for all.
        names: of the HPAs; none for all.

    Raises:
        KubectlError: they cannot be read.
    """
    found = []
    for api in HPA_APIS:
        path = api.path(namespace) if namespace else api.collection
        try:
            page = kubectl.get(path, {"labelSelector": selector} if selector else {})
        except KubectlError as error:
            if error.is_not_found and not api.built_in:
                continue
            raise
        hpas = (track_hpa(raw, api=api) for raw in page.get("items") or ())
        found += [hpa for hpa in hpas if hpa is not None and (not names or hpa.name in names)]
    return sorted(found, key=lambda hpa: (hpa.namespace, hpa.name, hpa.api_version))


def find_pods(kubectl: Kubectl, component: Component = "autoscaler") -> list[str]:
    """Return the names of the pods that hold a Lease, such as one for each shard; without such a pod, all that run.

    An installation may have another name (Helm's nameOverride), so its pods are found by their component. If there are
    pods with our name, those of others are left out.

    Raises:
        KubectlError: the pods cannot be read.
        NoPodError: no pod runs.
    """
    namespace, label = _namespace(kubectl, component), f"app.kubernetes.io/component={component}"
    quoted = quote(namespace, safe="")
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


def _namespace(kubectl: Kubectl, component: Component) -> str:
    return kubectl.autoscaler_namespace if component == "autoscaler" else kubectl.adapter_namespace


def _items(kubectl: Kubectl, path: str, query: dict[str, str] | None = None) -> list[dict[str, Any]]:
    return kubectl.get(path, query).get("items") or []


@contextlib.contextmanager
def forwarded(kubectl: Kubectl, pod: str, component: Component = "autoscaler") -> Iterator[str]:
    """Forward a port to a pod, and yield the URL. Raises KubectlError."""
    scheme = "https" if component == "adapter" else "http"
    with kubectl.port_forward(_namespace(kubectl, component), f"pod/{pod}", _PORTS[component]) as port:
        yield f"{scheme}://127.0.0.1:{port}"


@contextlib.contextmanager
def pod_with_decisions(kubectl: Kubectl, namespace: str, name: str) -> Iterator[str]:
    """Forward a port to the pod that has decisions on an HPA, and yield the URL.

    Raises:
        KubectlError: the pods cannot be read, or a port cannot be forwarded.
        NoPodError: no pod runs.
        click.ClickException: no pod has decisions.
    """
    problem = ""
    for pod in find_pods(kubectl):
        with forwarded(kubectl, pod) as server:
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
        namespace: of the HPAs; "" for all.
        clock: monotonic, in seconds.
    """

    def __init__(self, kubectl: Kubectl, namespace: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._kubectl = kubectl
        self._namespace = namespace
        self._clock = clock
        self._forwards = contextlib.ExitStack()
        self._servers: list[str] = []
        self._connect_at = float("-inf")
        self.problem = ""
        """Why there are no decisions; "" if there are."""

    def fetch(self) -> DesiredReplicas:
        """Return the decisions; none if there is a problem."""
        found = {}
        try:
            if self._clock() >= self._connect_at:
                self._connect()
            for server in self._servers:
                page = asyncio.run(fetch_index(server, namespace=self._namespace, last=SHOWN))
                found.update({HPAKey(one.namespace, one.name, one.group): one.desired_replicas for one in page.hpas})
        except click.ClickException as error:
            self.close()
            self.problem, self._connect_at = error.message, self._clock() + _RETRY_SECONDS
            return {}
        return found

    def close(self) -> None:
        """End the forwards."""
        self._forwards.close()
        self._servers = []

    def _connect(self) -> None:
        self.close()
        for pod in find_pods(self._kubectl):
            self._servers.append(self._forwards.enter_context(forwarded(self._kubectl, pod)))
        self.problem, self._connect_at = "", self._clock() + _RENEW_SECONDS
