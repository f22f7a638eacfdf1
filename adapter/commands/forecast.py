"""The command `forecast`: what a metric is expected to be in the next 24 hours, beside the last days."""

from __future__ import annotations

from collections.abc import Iterator

import click

from adapter.commands.diagnose import SessionFlags, selection_flags, session_flags
from adapter.commands.printing import print_lines
from adapter.diagnosis.forecasts import ForecastReport, NoForecastError, forecast_report, forecast_source
from adapter.diagnosis.probe import Selection
from adapter.forecasts.options import number_text


@click.command()
@click.option("--metric", required=True, help="The metric: NAME, RESOURCE/NAME or external/NAME.")
@selection_flags
@session_flags
def forecast(*, metric: str, selection: Selection, flags: SessionFlags) -> None:
    """Show the forecast of a metric whose rule has `forecast`.

    Reads the metric's history in Prometheus, and prints what is expected now and why, how well the last 7 days were
    forecast, whether the gate lets the forecast be served, and the next 24 hours beside the last days. Of pods it is
    the forecast of their workload. Exits with 1 if there is no forecast; with 2 for invalid flags.
    """
    rules = flags.rules()

    async def work() -> ForecastReport:
        async with flags.opened(rules) as opened:
            source = forecast_source(opened.catalog, metric)
            return await forecast_report(opened.probe, opened.prometheus, source, selection)

    try:
        report = flags.run(work())
    except NoForecastError as error:
        raise click.ClickException(str(error)) from error
    flags.print(report, lambda report: print_lines(_lines(report)))
    if report.reason:
        raise click.exceptions.Exit(1)


def _lines(report: ForecastReport) -> Iterator[str]:
    """Yield the lines of a report."""
    yield f"{report.of or report.metric} ({report.rule}), times in {report.timezone}"
    yield f"no forecast now: {report.reason}" if report.reason else report.sentence
    if report.gate is None:
        return
    yield f"gate: {report.gate.text}{'' if report.gate.holds else '; it is not served'}"
    yield report.gate.accuracy
    yield ""
    days = len(report.hours[0].days) if report.hours else 0
    names = [*(f"{day} days ago" for day in range(days, 1, -1)), "yesterday", "usual", "forecast"]
    yield "".join(["from".ljust(11), *(name.rjust(13) for name in names)])
    for hour in report.hours:
        values = (*hour.days, hour.usual, hour.expected)
        texts = ("-" if value is None else number_text(value) for value in values)
        yield "".join([f"{hour.start:%a %H:%M}".ljust(11), *(text.rjust(13) for text in texts)])
