"""Shared by `check` and `explain`: flags, the rules file, and connections to Prometheus and the API server."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator, Coroutine, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec
from click.core import ParameterSource

from adapter.catalog.catalog import Catalog
from adapter.commands.builtin_resources import builtin_resources
from adapter.commands.flags import Command, catalog_flags, prometheus_flags
from adapter.commands.options import CatalogOptions, PrometheusAccess
from adapter.commands.prometheus_auth import authorized_options
from adapter.diagnosis.probe import Probe
from adapter.diagnosis.report import Explanation, Report
from adapter.metrics.forward import Forwarder
from adapter.metrics.objects import ListedObjects, ObjectNames
from adapter.prometheus import MemoryBudget, PrometheusConfigError, PrometheusServers
from adapter.rules import RulesError, RulesFile
from adapter.rules.manifests import FoundRules, load_manifest_rules
from kube.client import KubeClient, KubeConfigError, KubeError
from kube.flags import FILE, verbosity_option
from kube.mapping import ResourceInfo, ResourceLookup, RestMapper
from kube.process import run, setup_logging
from kube.selectors import LabelSelector
from kube.status import StatusError, bad_request

_T = TypeVar("_T")

_FLAGS = (
    click.option(
        "--config",
        type=FILE,
        required=True,
        help="The rules file, or a ConfigMap, manifest, HelmRelease or chart values that contain one.",
    ),
    prometheus_flags,
    catalog_flags(lists_once=True),
    click.option(
        "--lister-kubeconfig",
        "--kubeconfig",
        "kubeconfig",
        type=FILE,
        help="Kubeconfig for discovering the cluster's API resources.  [default: only Kubernetes' own are known]",
    ),
    click.option(
        "-o",
        "--output",
        type=click.Choice(["text", "json"]),
        default="text",
        show_default=True,
        help="Output format.",
    ),
    verbosity_option,
)


def common_flags(command: Command) -> Command:
    """Add the flags that both commands have."""
    for option in reversed(_FLAGS):  # the last one to be applied is the first in the help
        command = option(command)
    return command


def has_prometheus() -> bool:
    """Return whether --prometheus-url is given to the current command."""
    return click.get_current_context().get_parameter_source("prometheus_url") is not ParameterSource.DEFAULT


def load_rules(config: Path) -> list[FoundRules]:
    """Return the rules files that a file is or contains.

    Raises:
        ClickException: there are none, or one cannot be used.
    """
    try:
        return load_manifest_rules(config)
    except RulesError as error:
        raise click.ClickException(str(error)) from error


def run_command(work: Coroutine[Any, Any, _T], *, verbosity: int) -> _T:
    """Run a command's coroutine.

    Raises:
        ClickException: a server cannot be used.
    """
    try:
        with _logging(verbosity):
            return run(work)
    except (KubeConfigError, PrometheusConfigError) as error:
        raise click.ClickException(str(error)) from error
    except (KubeError, StatusError) as error:
        raise click.ClickException(f"cannot discover the API server's resources: {error}") from error


@contextlib.contextmanager
def _logging(verbosity: int) -> Iterator[None]:
    """Log nothing unless -v is given: the findings say the same."""
    if verbosity:
        setup_logging(verbosity)
        yield
        return
    root = logging.getLogger()
    level = root.level
    root.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        root.setLevel(level)


def print_json(document: Report | Explanation) -> None:
    """Print a document as indented JSON."""
    click.echo(msgspec.json.format(msgspec.json.encode(document), indent=2).decode())


@dataclass(frozen=True, slots=True)
class Session:
    """A catalog before its first list, with the connections that it needs.

    `knows_cluster`: `lookup` uses an API server's discovery; without it, it knows Kubernetes' built-in resources alone.
    """

    catalog: Catalog
    lookup: ResourceLookup
    probe: Probe
    knows_cluster: bool


class _NoObjects:
    """The objects where no API server is given."""

    async def names(self, info: ResourceInfo, namespace: str, selector: LabelSelector) -> list[str]:
        """Raise an error that names the missing option."""
        del namespace, selector
        raise bad_request(f"{info.plural} can only be listed with --lister-kubeconfig; or name one with --name")


@contextlib.asynccontextmanager
async def session(
    rules: RulesFile, prometheus: PrometheusAccess, options: CatalogOptions, *, kubeconfig: Path | None
) -> AsyncIterator[Session]:
    """Open the connections to Prometheus, and to the API server of a kubeconfig.

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
