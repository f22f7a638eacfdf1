"""The commands `check` and `explain`: what is wrong with a rules file, and where a metric comes from.

Both read the rules as `serve` does, but list the series once, and know Kubernetes' own resources without an API server.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec
from click.core import ParameterSource
from yarl import URL

from adapter.catalog.catalog import Catalog
from adapter.catalog.listings import Listings
from adapter.commands.builtin_resources import builtin_resources
from adapter.commands.flags import CatalogOptions, Command, PrometheusAccess, catalog_flags, prometheus_flags
from adapter.commands.printing import output_option, print_explanation, print_json, print_report
from adapter.diagnosis.check import check as check_rules
from adapter.diagnosis.explain import Target
from adapter.diagnosis.explain import explain as explain_metric
from adapter.diagnosis.forecasts import ForecastReport, forecast_sentences
from adapter.diagnosis.lint import object_findings
from adapter.diagnosis.probe import Probe, Selection
from adapter.diagnosis.report import Report, Severity
from adapter.metrics.forward import Forwarder
from adapter.metrics.objects import ListedObjects, ObjectNames
from adapter.prometheus import MemoryBudget, PrometheusConfigError, PrometheusServers
from adapter.rules import RulesError, RulesFile
from adapter.rules.manifests import FoundRules, load_manifest_rules
from kube.api.client import KubeClient, KubeConfigError, KubeError
from kube.api.mapping import ResourceInfo, ResourceLookup, RestMapper
from kube.api.status import StatusError, bad_request
from kube.process.flags import FILE, Parsed, option_group, verbosity_option
from kube.process.runtime import run, setup_logging
from kube.values.selectors import LabelSelector
from kube.web.explanation import Explanation

_T = TypeVar("_T")
_D = TypeVar("_D", Report, Explanation, ForecastReport)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionFlags:
    """The flags of `check`, `explain` and `forecast`: rules, Prometheus, a cluster if there is one, and the output."""

    config: Path | None
    prometheus: PrometheusAccess
    catalog: CatalogOptions
    kubeconfig: Path | None
    context: str | None
    output: str
    verbosity: int

    def rules(self) -> RulesFile:
        """Return the rules of --config, which must have one rules file; --prometheus-url must be given, too.

        Raises:
            ClickException: it does not, or the rules are invalid.
        """
        if not _has_prometheus():
            raise click.UsageError("--prometheus-url is required")
        path = _given_file(self.config)
        first, *others = _load_rules_files(path)
        if others:
            places = " and ".join(found.where for found in (first, *others))
            raise click.UsageError(f"{path} has several rules files: {places}; put one into a file of its own")
        return first.rules

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run a command's coroutine.

        Raises:
            ClickException: a server cannot be used.
        """
        try:
            with _logging(self.verbosity):
                return run(work)
        except (KubeConfigError, PrometheusConfigError) as error:
            raise click.ClickException(str(error)) from error
        except (KubeError, StatusError) as error:
            raise click.ClickException(f"cannot discover the API server's resources: {error}") from error

    def print(self, document: _D, show: Callable[[_D], None]) -> None:
        """Print a document as JSON, or `show` it as text."""
        if self.output == "json":
            print_json(document)
        else:
            show(document)

    @contextlib.asynccontextmanager
    async def opened(self, rules: RulesFile, *, lists: bool = True) -> AsyncIterator[_Session]:
        """Open the connections to Prometheus, and to the API server of a kubeconfig; list the series of the rules.

        Raises:
            KubeConfigError: the kubeconfig cannot be used.
            PrometheusConfigError: the credentials for Prometheus cannot be used.
            click.UsageError: --context is given without a kubeconfig.
        """
        if self.context is not None and self.kubeconfig is None:
            raise click.UsageError("--context is one of a kubeconfig; give --kubeconfig, too")
        async with contextlib.AsyncExitStack() as stack:
            budget = MemoryBudget(self.prometheus.response_memory)
            servers = PrometheusServers(await self.prometheus.authorized(), budget=budget)
            await stack.enter_async_context(servers)
            lookup: ResourceLookup = builtin_resources()
            objects: ObjectNames = _NoObjects()
            if self.kubeconfig is not None:
                agent = "milliscale-adapter-check"
                connecting = KubeClient.connect(self.kubeconfig, context=self.context, user_agent=agent)
                client = await stack.enter_async_context(await connecting)
                lookup, objects = RestMapper(client), ListedObjects(client)
            forwarder = Forwarder(rules.forward, relist_interval=self.catalog.relist_interval)
            await stack.enter_async_context(forwarder)
            catalog = Catalog(rules, Listings(servers, lookup, max_age=self.catalog.max_age), lookup)
            if lists:
                await catalog.relist()
            probe = Probe(catalog, servers, objects, lookup, forwarder=forwarder)
            yield _Session(catalog, lookup, probe, servers)


_FLAGS = (
    click.option(
        "--config",
        type=FILE,
        help="The rules file, or a ConfigMap, manifest, HelmRelease or chart values that contain one, or MetricRules.",
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
    click.option("--context", show_default="the current one", help="Name of the kubeconfig context to use."),
    output_option,
    verbosity_option,
)


def session_flags(command: Command) -> Command:
    """Add the flags that the commands share, as the argument `flags`."""
    command = option_group("flags", SessionFlags)(command)
    for option in reversed(_FLAGS):  # --help lists the option that is applied last first
        command = option(command)
    return command


def _has_prometheus() -> bool:
    """Return whether --prometheus-url is given to the current command."""
    return click.get_current_context().get_parameter_source("prometheus_url") is not ParameterSource.DEFAULT


_SELECTOR = Parsed("selector", LabelSelector.parse)
_TARGET = Parsed("resource/metric", Target.parse)


def _selection(
    *, namespace: str, name: str, selector: LabelSelector | None, metric_selector: LabelSelector
) -> Selection:
    if name and selector is not None:
        raise click.UsageError("give --name or --selector, not both")
    return Selection(namespace=namespace, name=name, selector=selector, metric_selector=metric_selector)


selection_flags = option_group(
    "selection",
    _selection,
    click.option("-n", "--namespace", default="", show_default="any that has series", help="Namespace of the objects."),
    click.option("--name", default="", show_default="any that has series", help="Name of the object."),
    click.option(
        "-l",
        "--selector",
        type=_SELECTOR,
        help="Label selector of the objects; requires --lister-kubeconfig and --namespace.",
    ),
    click.option(
        "--metric-selector",
        type=_SELECTOR,
        default="",
        show_default=False,
        help="Label selector of the metric's series.",
    ),
)


@click.command()
@click.argument("file", type=FILE, required=False)
@click.option(
    "--examples",
    type=click.IntRange(min=0),
    default=3,
    help="Number of example values to query for each rule.",
)
@click.option("--strict", is_flag=True, help="Exit with status 1 for warnings, too.")
@session_flags
def check(*, file: Path | None, examples: int, strict: bool, flags: SessionFlags) -> None:
    """Check a rules file, given as FILE or with --config.

    With --prometheus-url also check the series that the rules find and example values of their metrics. Exits with 0 if
    there are no errors, 1 if there are errors (with --strict also for warnings), 2 for invalid flags.
    """
    online = _has_prometheus()

    async def work(rules: RulesFile) -> Report:
        async with flags.opened(rules, lists=online) as opened:
            probe = opened.probe if online else None
            knows_cluster = flags.kubeconfig is not None
            return await check_rules(
                opened.catalog, opened.lookup, probe, knows_cluster=knows_cluster, examples=examples
            )

    failed = False
    for found in _load_rules_files(_given_file(flags.config, file)):
        report = msgspec.structs.replace(flags.run(work(found.rules)), found=found.where)
        if found.is_object:
            [rule] = found.rules.all_rules
            report = msgspec.structs.replace(report, findings=object_findings(rule, report.findings))
        failed = failed or report.has(Severity.ERROR) or (strict and report.has(Severity.WARNING))
        flags.print(report, print_report)
        if any(one.code == "not-listed" for one in report.findings):
            click.echo(f"--prometheus-url is {URL(flags.prometheus.options.base).with_user(None)}", err=True)
    if failed:
        raise click.exceptions.Exit(1)


@click.command()
@click.argument("target", type=_TARGET, metavar="RESOURCE/METRIC")
@selection_flags
@session_flags
def explain(*, target: Target, selection: Selection, flags: SessionFlags) -> None:
    """Explain a metric.

    Prints where the metric comes from and its value, or why it is missing. RESOURCE/METRIC is for example
    pods/packets_per_second, deployments.apps/lag or external/queue_depth. Exits with 0 if there is a value, else with
    1; with 2 for invalid flags.
    """
    rules = flags.rules()

    async def work() -> Explanation:
        async with flags.opened(rules) as opened:
            return await explain_metric(
                target,
                selection,
                catalog=opened.catalog,
                lookup=opened.lookup,
                probe=opened.probe,
                forecasts=partial(forecast_sentences, opened.probe, opened.prometheus),
            )

    explanation = flags.run(work())
    flags.print(explanation, print_explanation)
    if not explanation.has_value:
        raise click.exceptions.Exit(1)


def _given_file(*given: Path | None) -> Path:
    """Return the one rules file that is given."""
    files = [file for file in given if file is not None]
    if len(files) != 1:
        raise click.UsageError("give one rules file: FILE, or --config=FILE")
    return files[0]


def _load_rules_files(config: Path) -> list[FoundRules]:
    """Return the rules files that a file is or contains.

    Raises:
        ClickException: the file has no rules, or they are invalid.
    """
    try:
        return load_manifest_rules(config)
    except RulesError as error:
        raise click.ClickException(str(error)) from error


@contextlib.contextmanager
def _logging(verbosity: int) -> Iterator[None]:
    """Log only with -v: the findings already report every problem."""
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


@dataclass(frozen=True, slots=True)
class _Session:
    """A catalog with its connections; without an API server, `lookup` knows only Kubernetes' own resources."""

    catalog: Catalog
    lookup: ResourceLookup
    probe: Probe
    prometheus: PrometheusServers


class _NoObjects:
    """The ObjectNames of runs without an API server."""

    async def names(self, info: ResourceInfo, namespace: str, selector: LabelSelector) -> list[str]:
        """Raise an error that names the missing option."""
        del namespace, selector
        raise bad_request(f"{info.plural} can only be listed with --lister-kubeconfig; or name one with --name")
