"""`check`: report what is wrong with a rules file, and what its rules find in Prometheus."""

from __future__ import annotations

import sys
from pathlib import Path

import click
import msgspec

from adapter.commands.flags import CatalogOptions, PrometheusAccess
from adapter.commands.printing import print_report
from adapter.commands.session import common_flags, has_prometheus, load_rules, print_json, run_command, session
from adapter.diagnosis.check import check as check_rules
from adapter.diagnosis.report import Report, Severity
from adapter.rules import RulesFile


@click.command()
@click.option(
    "--examples",
    type=click.IntRange(min=0),
    default=3,
    show_default=True,
    help="Number of example values to query for each rule.",
)
@click.option("--strict", is_flag=True, help="Exit with status 1 for warnings, too.")
@common_flags
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
    """Check a rules file.

    With --prometheus-url also check the series that the rules find and example values of their metrics. Exits with 0 if
    there are no errors, 1 if there are errors (with --strict also for warnings), 2 for wrong flags.
    """
    online = has_prometheus()

    async def work(rules: RulesFile) -> Report:
        async with session(rules, prometheus, catalog, kubeconfig=kubeconfig) as opened:
            if online:
                await opened.catalog.relist()
            return await check_rules(
                opened.catalog,
                opened.lookup,
                opened.probe if online else None,
                knows_cluster=opened.knows_cluster,
                examples=examples,
            )

    failed = False
    for found in load_rules(config):
        report = msgspec.structs.replace(run_command(work(found.rules), verbosity=verbosity), found=found.where)
        failed = failed or report.has(Severity.ERROR) or (strict and bool(report.findings))
        if output == "json":
            print_json(report)
        else:
            print_report(report, plain=not sys.stdout.isatty())
    if failed:
        raise click.exceptions.Exit(1)
