"""`explain`: where a metric comes from and its value, or why it is missing."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from adapter.commands.flags import CatalogOptions, PrometheusAccess
from adapter.commands.printing import print_explanation
from adapter.commands.session import common_flags, has_prometheus, load_rules, print_json, run_command, session
from adapter.diagnosis.explain import Target, TargetError
from adapter.diagnosis.explain import explain as explain_metric
from adapter.diagnosis.probe import Wanted
from adapter.diagnosis.report import Explanation
from kube.selectors import LabelSelector, SelectorError


class _Selector(click.ParamType[LabelSelector]):
    """A label selector."""

    name = "selector"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> LabelSelector:
        """Parse the flag's text."""
        try:
            return LabelSelector.parse(str(value))
        except SelectorError as error:
            self.fail(str(error), param, ctx)


class _Target(click.ParamType[Target]):
    """A metric."""

    name = "resource/metric"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Target:
        """Parse the argument's text."""
        try:
            return Target.parse(str(value))
        except TargetError as error:
            self.fail(str(error), param, ctx)


@click.command()
@click.argument("target", type=_Target(), metavar="RESOURCE/METRIC")
@click.option("-n", "--namespace", default="", help="Namespace of the objects.  [default: any that has series]")
@click.option("--name", default="", help="Name of the object.  [default: any that has series]")
@click.option(
    "-l",
    "--selector",
    type=_Selector(),
    help="Label selector of the objects; requires --lister-kubeconfig and --namespace.",
)
@click.option("--metric-selector", type=_Selector(), default="", help="Label selector of the metric's series.")
@common_flags
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
    """Explain a metric.

    Prints where the metric comes from and its value, or why it is missing. RESOURCE/METRIC is for example
    pods/packets_per_second, deployments.apps/lag or external/queue_depth. Exits with 0 if there is a value, 1 if there
    is none, 2 for wrong flags.
    """
    if not has_prometheus():
        raise click.UsageError("--prometheus-url is required")
    if name and selector is not None:
        raise click.UsageError("give --name or --selector, not both")
    wanted = Wanted(namespace=namespace, name=name, selector=selector, metric_selector=metric_selector)
    first, *others = load_rules(config)
    if others:
        places = " and ".join(found.where for found in (first, *others))
        raise click.UsageError(f"{config} has several rules files: {places}; put one into a file of its own")

    async def work() -> Explanation:
        async with session(first.rules, prometheus, catalog, kubeconfig=kubeconfig) as opened:
            await opened.catalog.relist()
            return await explain_metric(
                target, wanted, catalog=opened.catalog, lookup=opened.lookup, probe=opened.probe
            )

    explanation = run_command(work(), verbosity=verbosity)
    if output == "json":
        print_json(explanation)
    else:
        print_explanation(explanation, plain=not sys.stdout.isatty())
    if not explanation.has_value:
        raise click.exceptions.Exit(1)
