"""Service discovery: watches pods and Services, and updates the workload's listeners and Prometheus' targets.

Targets have the labels of a usual scrape configuration for Kubernetes: namespace, pod, service.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Protocol

from kube.api.client import KubeClient
from kube.cache.store import Store
from playground.prometheus import Target
from playground.views import Pod, Service
from playground.workload import Workload, WorkloadPod

_APPLICATION_LABEL: Final = "app"


class Scraper(Protocol):
    """Scrapes targets; see PrometheusServer."""

    async def set_targets(self, targets: Iterable[Target]) -> None:
        """Replace the targets."""


class PodDiscovery:
    """Watches a namespace while `run` runs."""

    def __init__(self, client: KubeClient, *, namespace: str, workload: Workload, prometheus: Scraper) -> None:
        self._namespace = namespace
        self._workload = workload
        self._prometheus = prometheus
        self._changed = asyncio.Event()
        path = f"/api/v1/namespaces/{namespace}"
        self._pods = Store(client, f"{path}/pods", Pod.select, on_change=lambda *_: self._changed.set())
        self._services = Store(client, f"{path}/services", Service.select, on_change=lambda *_: self._changed.set())

    async def run(self) -> None:
        """Watch until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._pods.run())
            tasks.create_task(self._services.run())
            await self._pods.wait_synced()
            await self._services.wait_synced()
            while True:
                self._changed.clear()
                await self._apply()
                await self._changed.wait()

    async def _apply(self) -> None:
        pods, services = self._pods.list(self._namespace), self._services.list(self._namespace)
        await self._workload.set_pods(
            [WorkloadPod(pod.name, pod.metadata.labels.get(_APPLICATION_LABEL, ""), pod.ready) for pod in pods]
        )
        exporter = Target(address=self._workload.exporter_address, labels={"namespace": self._namespace})
        found = targets(pods, services, namespace=self._namespace, addresses=self._workload.addresses)
        await self._prometheus.set_targets([exporter, *found])


def targets(
    pods: Sequence[Pod], services: Sequence[Service], *, namespace: str, addresses: Mapping[str, str]
) -> list[Target]:
    """Return the targets of the pods that have an address."""
    found = []
    for pod in pods:
        if pod.name in addresses:
            labels = {"namespace": namespace, "pod": pod.name}
            service = next((service.name for service in services if service.serves(pod)), None)
            if service is not None:
                labels["service"] = service
            found.append(Target(address=addresses[pod.name], labels=labels))
    return found
