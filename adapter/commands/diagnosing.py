"""`check` and `explain`: the findings about a rules file, before it is served or while one wonders.

Both need no running adapter and no API server. Without a kubeconfig they know Kubernetes' own resources, and others
are told apart from mistakes only by asking the cluster.
"""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec
from click.core import ParameterSource

from adapter.commands.flags import FILE, catalog_flags_once, prometheus_flags
from adapter.commands.options import CatalogOptions, PrometheusAccess
from adapter.commands.printing import print_explanation, print_report
from adapter.commands.session import session
from adapter.diagnosis.check import check as check_rules
from adapter.diagnosis.check import check_file
from adapter.diagnosis.explain import Target, TargetError
from adapter.diagnosis.explain import explain as explain_metric
from adapter.diagnosis.probe import Wanted
from adapter.diagnosis.report import Explanation, Report, Severity
from adapter.prometheus import PrometheusConfigError
from adapter.rules import RulesError, RulesFile
from adapter.rules.manifests import FoundRules, load_manifest_rules
from kube.client import KubeConfigError, KubeError
from kube.flags import verbosity_option
from kube.process import run, setup_logging
from kube.selectors import LabelSelector, SelectorError
from kube.status import StatusError

_T = TypeVar("_T")


class _Selector(click.ParamType[LabelSelector]):
    """A label selector."""

    name = "selector"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> LabelSelector:
        """Read the flag's text."""
        try:
            return LabelSelector.parse(str(value))
        except SelectorError as error:
            self.fail(str(error), param, ctx)


class _Target(click.ParamType[Target]):
    """A metric."""

    name = "resource/metric"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Target:
        """Read the argument's text."""
        try:
            return Target.parse(str(value))
        except TargetError as error:
            self.fail(str(error), param, ctx)


_COMMON = (
    click.option(
        "--config",
        type=FILE,
        required=True,
        help="The rules file; or a ConfigMap, a manifest, a HelmRelease or the values of a chart that has one.",
    ),
    prometheus_flags,
    catalog_flags_once,
    click.option(
        "--lister-kubeconfig",
        "--kubeconfig",
        "kubeconfig",
        type=FILE,
        help="Kubeconfig for asking the cluster which resources it has.  [default: Kubernetes' own are known]",
    ),
    click.option(
        "-o",
        "--output",
        type=click.Choice(["text", "json"]),
        default="text",
        show_default=True,
        help="A table for people, or JSON for tools.",
    ),
    verbosity_option,
)


def _common(command: Callable[..., None]) -> Callable[..., None]:
    # The last one to be applied is the first in the help.
    for option in reversed(_COMMON):
        command = option(command)
    return command


@click.command()
@click.option(
    "--examples",
    type=click.IntRange(min=0),
    default=3,
    show_default=True,
    help="For how many metrics of each rule Prometheus is asked for an example value.",
)
@click.option("--strict", is_flag=True, help="Count warnings as errors.")
@_common
def check(
    *,
    config: Path,
    prometheus: PrometheusAccess,
    catalog: CatalogOptions,
    kubeconfig: Path | None,
    output: str,
    examples: int,
    strict: bool,
    verbosity: int,
) -> None:
    """Say what is wrong with a rules file; with --prometheus-url also what its rules find and what comes of it.

    Exit status 0 when there is no error, 1 when there is one (with --strict also for warnings), 2 for wrong flags.
    """
    ask = _asks_prometheus()

    async def work(rules: RulesFile) -> Report:
        async with session(rules, prometheus, catalog, kubeconfig=kubeconfig) as opened:
            if not ask:
                return await check_file(opened.catalog, opened.lookup, knows_cluster=opened.knows_cluster)
            await opened.catalog.relist()
            return await check_rules(
                opened.catalog,
                opened.lookup,
                opened.probe,
                knows_cluster=opened.knows_cluster,
                examples=examples,
            )

    wrong = False
    for found in _load(config):
        report = msgspec.structs.replace(_run(found.rules, work, verbosity), found=found.where)
        wrong = wrong or report.has(Severity.ERROR) or (strict and bool(report.findings))
        if output == "json":
            _print_json(report)
        else:
            print_report(report, plain=not sys.stdout.isatty())
    if wrong:
        raise click.exceptions.Exit(1)


@click.command()
@click.argument("target", type=_Target(), metavar="RESOURCE/METRIC")
@click.option("-n", "--namespace", default="", help="The objects' namespace.  [default: any that has series]")
@click.option("--name", default="", help="The object.  [default: any that has series]")
@click.option("-l", "--selector", type=_Selector(), help="The objects; needs --lister-kubeconfig and --namespace.")
@click.option("--metric-selector", type=_Selector(), default="", help="Which of the metric's series count.")
@_common
def explain(
    *,
    target: Target,
    namespace: str,
    name: str,
    selector: LabelSelector | None,
    metric_selector: LabelSelector,
    config: Path,
    prometheus: PrometheusAccess,
    catalog: CatalogOptions,
    kubeconfig: Path | None,
    output: str,
    verbosity: int,
) -> None:
    """Say where a metric comes from and what it is, or why it is not there.

    RESOURCE/METRIC is such as pods/packets_per_second, deployments.apps/lag or external/queue_depth. Exit status 0
    when there is a value, 1 when there is none, 2 for wrong flags.
    """
    if not _asks_prometheus():
        raise click.UsageError("say where Prometheus is: --prometheus-url")
    if name and selector is not None:
        raise click.UsageError("give --name or --selector, not both")
    wanted = Wanted(namespace=namespace, name=name, selector=selector, metric_selector=metric_selector)

    async def work(rules: RulesFile) -> Explanation:
        async with session(rules, prometheus, catalog, kubeconfig=kubeconfig) as opened:
            await opened.catalog.relist()
            return await explain_metric(
                target, wanted, catalog=opened.catalog, lookup=opened.lookup, probe=opened.probe
            )

    first, *others = _load(config)
    if others:
        places = " and ".join(found.where for found in (first, *others))
        raise click.UsageError(f"{config} has several rules files: {places}; put one into a file of its own")
    explanation = _run(first.rules, work, verbosity)
    if output == "json":
        _print_json(explanation)
    else:
        print_explanation(explanation, plain=not sys.stdout.isatty())
    if not explanation.has_value:
        raise click.exceptions.Exit(1)


def _asks_prometheus() -> bool:
    return click.get_current_context().get_parameter_source("prometheus_url") is not ParameterSource.DEFAULT


def _load(config: Path) -> list[FoundRules]:
    """The rules files that a file is or has, and in one line why there is none."""
    try:
        return load_manifest_rules(config)
    except RulesError as error:
        raise click.ClickException(str(error)) from error


def _run(rules: RulesFile, work: Callable[[RulesFile], Coroutine[Any, Any, _T]], verbosity: int) -> _T:
    """Do the work, and say in one line what keeps it from being done."""
    try:
        with _logged(verbosity):
            return run(work(rules))
    except (KubeConfigError, PrometheusConfigError) as error:
        raise click.ClickException(str(error)) from error
    except (KubeError, StatusError) as error:
        raise click.ClickException(f"the API server did not say which resources it has: {error}") from error


@contextlib.contextmanager
def _logged(verbosity: int) -> Iterator[None]:
    """What the log would say stands in the findings, so it is silent unless it was asked for."""
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


def _print_json(document: Report | Explanation) -> None:
    click.echo(msgspec.json.format(msgspec.json.encode(document), indent=2).decode())
