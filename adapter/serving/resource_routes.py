"""The routes of metrics.k8s.io: CPU and memory of nodes and pods, as lists, single objects and tables.

    /apis/metrics.k8s.io/v1beta1/nodes[/NAME]
    /apis/metrics.k8s.io/v1beta1[/namespaces/NS]/pods[/NAME]

Statuses and messages are metrics-server's.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from adapter.catalog.groups import RESOURCE_GROUP
from adapter.content.resource_documents import ResourceDocument, node_document, node_list, pod_document, pod_list
from adapter.content.tables import TABLE_FORMS, Table, node_table, pod_table
from adapter.metrics.usage import NodeUsage, PodUsage
from adapter.serving.list_options import check_numbers, field_selector, included_object
from adapter.serving.requests import Request, Response, encode_list, method_not_allowed, no_such_resource
from kube import status
from kube.deadlines import Deadline
from kube.selectors import LabelSelector
from kube.status import StatusError

_Usage = TypeVar("_Usage", NodeUsage, PodUsage)


class UsageProvider(Protocol):
    """Where the use of CPU and memory comes from; see adapter.metrics.resource_metrics.ResourceMetrics."""

    async def pods(
        self, *, namespace: str, selector: LabelSelector, name: str = "", deadline: Deadline
    ) -> list[PodUsage]:
        """What pods use; `namespace` is "" for all."""

    async def nodes(self, *, selector: LabelSelector, name: str = "", deadline: Deadline) -> list[NodeUsage]:
        """What nodes use."""


class ResourceRoutes:
    """Responds to requests for metrics.k8s.io."""

    def __init__(self, usage: UsageProvider) -> None:
        self._usage = usage

    async def respond(self, request: Request, parts: Sequence[str]) -> Response:
        """Respond to a request for the resource in these segments after the version.

        Raises:
            StatusError: the response is an error. As in metrics-server, nothing can be watched.
        """
        if request.info.verb == "watch":
            raise method_not_allowed()
        match parts:
            case ("nodes",):
                return await self._nodes(request)
            case ("nodes", name):
                return await self._node(request, name)
            case ("pods",) | ("namespaces", _, "pods"):
                return await self._pods(request)
            case ("namespaces", namespace, "pods", name):
                return await self._pod(request, namespace, name)
        raise no_such_resource()

    async def _nodes(self, request: Request) -> Response:
        wanted = _Wanted(request)
        check_numbers(request.target.query)
        selector, fields = request.label_selector("labelSelector"), field_selector(request.target.query)
        nodes = await self._usage.nodes(selector=selector, deadline=request.deadline)
        return await wanted.nodes([node for node in nodes if fields.matches(name=node.name, namespace="")])

    async def _pods(self, request: Request) -> Response:
        wanted = _Wanted(request)
        check_numbers(request.target.query)
        selector, fields = request.label_selector("labelSelector"), field_selector(request.target.query)
        pods = await self._usage.pods(namespace=request.info.namespace, selector=selector, deadline=request.deadline)
        return await wanted.pods([pod for pod in pods if fields.matches(name=pod.name, namespace=pod.namespace)])

    async def _node(self, request: Request, name: str) -> Response:
        wanted = _Wanted(request)
        nodes = await self._usage.nodes(selector=LabelSelector(), name=name, deadline=request.deadline)
        if not nodes:
            raise _no_usage("nodes", name)
        return await wanted.nodes(nodes[:1], alone=True)

    async def _pod(self, request: Request, namespace: str, name: str) -> Response:
        wanted = _Wanted(request)
        pods = await self._usage.pods(
            namespace=namespace, selector=LabelSelector(), name=name, deadline=request.deadline
        )
        if not pods:
            raise _no_usage("pods", f"{namespace}/{name}")
        return await wanted.pods(pods[:1], alone=True)


class _Wanted:
    """How a client wants nodes and pods: as a table or as they are. Refuses what is no GET, and what cannot be had."""

    def __init__(self, request: Request) -> None:
        request.require_get()
        self._representation = request.representation(TABLE_FORMS)
        self._form = self._representation.conversion
        self._include = included_object(request.target.query) if self._form else ""

    async def nodes(self, nodes: Sequence[NodeUsage], *, alone: bool = False) -> Response:
        form = self._form
        if form is not None:
            return await self._respond(nodes, lambda nodes: node_table(nodes, form, include=self._include))
        return await self._respond(nodes, (lambda nodes: node_document(nodes[0])) if alone else node_list)

    async def pods(self, pods: Sequence[PodUsage], *, alone: bool = False) -> Response:
        form = self._form
        if form is not None:
            return await self._respond(pods, lambda pods: pod_table(pods, form, include=self._include))
        return await self._respond(pods, (lambda pods: pod_document(pods[0])) if alone else pod_list)

    async def _respond(
        self, usages: Sequence[_Usage], document: Callable[[Sequence[_Usage]], ResourceDocument | Table]
    ) -> Response:
        # The Content-Type of a table is that of its encoding alone; only documents of discovery name their form there.
        representation = dataclasses.replace(self._representation, conversion=None)
        return Response(200, await encode_list(representation, usages, document))


def _no_usage(resource: str, name: str) -> StatusError:
    return status.not_found(
        f'{resource}.{RESOURCE_GROUP} "{name}" not found',
        details={"name": name, "group": RESOURCE_GROUP, "kind": resource},
    )
