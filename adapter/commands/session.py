"""What the commands need of the outside, opened for as long as one of them runs."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from adapter.catalog.catalog import Catalog
from adapter.commands.builtin_resources import builtin_resources
from adapter.commands.options import CatalogOptions, PrometheusAccess
from adapter.commands.prometheus_auth import authorized_options
from adapter.diagnosis.probe import Probe
from adapter.metrics.forward import Forwarder
from adapter.metrics.objects import ListedObjects, ObjectNames
from adapter.prometheus import MemoryBudget, PrometheusServers
from adapter.rules import RulesFile
from kube.client import KubeClient
from kube.mapping import ResourceInfo, ResourceLookup, RestMapper
from kube.selectors import LabelSelector
from kube.status import bad_request


@dataclass(frozen=True, slots=True)
class Session:
    """A catalog that has not been listed, and who knows the rest. `knows_cluster`: there is an API server to ask."""

    catalog: Catalog
    lookup: ResourceLookup
    probe: Probe
    knows_cluster: bool


class _NoObjects:
    """Stands in for the API server where none was named."""

    async def names(self, info: ResourceInfo, namespace: str, selector: LabelSelector) -> list[str]:
        """Always an error that says what to give."""
        del namespace, selector
        raise bad_request(f"{info.plural} can only be listed with --lister-kubeconfig; or name one with --name")


@contextlib.asynccontextmanager
async def session(
    rules: RulesFile, prometheus: PrometheusAccess, options: CatalogOptions, *, kubeconfig: Path | None
) -> AsyncIterator[Session]:
    """Open what there is to ask.

    Raises:
        KubeConfigError: the kubeconfig cannot be used.
        PrometheusConfigError: the credentials for Prometheus cannot be used.
    """
    async with contextlib.AsyncExitStack() as stack:
        access = stack.enter_context(authorized_options(prometheus))
        budget = MemoryBudget(prometheus.response_memory)
        servers = await stack.enter_async_context(PrometheusServers(access, budget=budget))
        lookup: ResourceLookup = builtin_resources()
        objects: ObjectNames = _NoObjects()
        if kubeconfig is not None:
            connecting = KubeClient.connect(kubeconfig, user_agent="milliscale-adapter-check")
            client = await stack.enter_async_context(await connecting)
            lookup, objects = RestMapper(client), ListedObjects(client)
        forwarder = await stack.enter_async_context(Forwarder(rules.forward, relist_interval=options.relist_interval))
        catalog = Catalog(rules, servers, lookup, relist_interval=options.relist_interval, max_age=options.max_age)
        probe = Probe(catalog, servers, objects, lookup, forwarder=forwarder)
        yield Session(catalog, lookup, probe, kubeconfig is not None)
