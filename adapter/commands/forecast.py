"""The command `forecast`: what a metric is expected to be in the next 24 hours, beside the last days."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import click
from rich.console import Console
from rich.text import Text

from adapter.commands.diagnose import (
    common_flags,
    has_prometheus,
    load_one_rules_file,
    opened_session,
    run_command,
    selection_flags,
)
from adapter.commands.flags import CatalogOptions, PrometheusAccess
from adapter.commands.printing import print_json
from adapter.diagnosis.forecasts import ForecastReader, ForecastReport, NoForecastError, forecast_source
from adapter.diagnosis.probe import Selection
from adapter.forecasts.sentence import number_text

_PLAIN_WIDTH = 1000


@click.command()
@click.option("--metric", required=True, help="The metric: NAME, RESOURCE/NAME or external/NAME.")
@selection_flags
@common_flags
def forecast(
    *,
    metric: str,
    selection: Selection,
    config: Path | None,
    prometheus: PrometheusAccess,
    catalog: CatalogOptions,
    kubeconfig: Path | None,
    output: str,
    verbosity: int,
) -> None:
    """Show the forecast of a metric whose rule has `forecast`.

    Reads the metric's history in Prometheus, and prints what is expected now and why, how well the last 7 days were
    forecast, whether the gate lets the forecast be served, and the next 24 hours beside the last days. Of pods it is
    the forecast of their workload. Exits with 1 if there is no forecast; with 2 for invalid flags.
    """
    if not has_prometheus():
        raise click.UsageError("--prometheus-url is required")
    rules = load_one_rules_file(config)

    async def work() -> ForecastReport:
        async with opened_session(rules, prometheus, catalog, kubeconfig=kubeconfig) as opened:
            await opened.catalog.relist()
            source = forecast_source(opened.catalog, metric)
            reader = ForecastReader(probe=opened.probe, prometheus=opened.prometheus, clock=time.time)
            return await reader.report(source, selection)

    try:
        report = run_command(work(), verbosity=verbosity)
    except NoForecastError as error:
        raise click.ClickException(str(error)) from error
    if output == "json":
        print_json(report)
    else:
        console = Console(width=None if sys.stdout.isatty() else _PLAIN_WIDTH, highlight=False, markup=False)
        for line in lines_of(report):
            console.print(Text(line), soft_wrap=True)
    if report.reason:
        raise click.exceptions.Exit(1)


def lines_of(report: ForecastReport) -> Iterator[str]:
    """Yield the lines of a report."""
    yield f"{report.of or report.metric} ({report.rule}), times in {report.timezone}"
    yield f"no forecast now: {report.reason}" if report.reason else report.sentence
    if report.gate is None or report.accuracy is None:
        return
    yield f"gate: {report.gate.text}{'' if report.gate.holds else '; it is not served'}"
    accuracy = report.accuracy
    yield (
        f"last 7 days: {accuracy.within:.0%} of {accuracy.minutes:,} minutes within 10 %, {accuracy.above:.0%} above,"
        f" {accuracy.below:.0%} below"
    )
    yield ""
    days = len(report.hours[0].days) if report.hours else 0
    names = [*(f"{day} days ago" for day in range(days, 1, -1)), "yesterday", "usual", "forecast"]
    yield "".join(["from".ljust(11), *(name.rjust(13) for name in names)])
    for hour in report.hours:
        values = (*hour.days, hour.usual, hour.expected)
        texts = ("-" if value is None else number_text(value) for value in values)
        yield "".join([f"{hour.start:%a %H:%M}".ljust(11), *(text.rjust(13) for text in texts)])
