"""Panels and variables with the settings that both dashboards share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from string import ascii_uppercase
from typing import Final, NamedTuple

from grafana_foundation_sdk.builders import common, prometheus, stat, table, timeseries
from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.models import common as options
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

_SOURCE: Final = models.DataSourceRef(type_val="prometheus", uid="${datasource}")
_TAG: Final = "milliscale"
_WIDTH: Final = 24
_STAT_HEIGHT: Final = 4
_PANEL_HEIGHT: Final = 8


class Query(NamedTuple):
    """PromQL, and the name of its series in the legend."""

    expr: str
    legend: str


def new_dashboard(title: str, *, uid: str, description: str, job_of: str) -> builders.Dashboard:
    """Return an empty dashboard with variables for the data source and for the job, which has the metric `job_of`."""
    return (
        builders.Dashboard(title)
        .uid(uid)
        .description(description)
        .tags([_TAG])
        .editable()
        .timezone("browser")
        .time("now-3h", "now")
        .refresh("30s")
        .tooltip(models.DashboardCursorSync.CROSSHAIR)
        .link(
            builders.DashboardLink("milliscale")
            .type(models.DashboardLinkType.DASHBOARDS)
            .tags([_TAG])
            .as_dropdown(True)
            .keep_time(True)
        )
        .with_variable(builders.DatasourceVariable("datasource").label("Data source").type("prometheus"))
        .with_variable(_variable("job", "Job", f"label_values({job_of}, job)"))
    )


def choice(name: str, label: str, query: str) -> builders.QueryVariable:
    """Return a variable with several values, for PromQL with `=~`; at first it has all."""
    return (
        _variable(name, label, query)
        .multi(True)
        .include_all(True)
        .all_value(".*")
        .current(models.VariableOption(selected=True, text=["All"], value=["$__all"]))
    )


def _variable(name: str, label: str, query: str) -> builders.QueryVariable:
    return (
        builders.QueryVariable(name)
        .label(label)
        .datasource(_SOURCE)
        .query(query)
        .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(models.VariableSort.ALPHABETICAL_CASE_INSENSITIVE_ASC)
    )


def row(title: str) -> builders.Row:
    """Return a row, whose title is a question about the panels below it."""
    return builders.Row(title)


def number(
    title: str,
    description: str,
    expr: str,
    *,
    unit: str = "short",
    bad_from: float | None = None,
    bad_below: float | None = None,
    texts: Mapping[str, str] | None = None,
    span: int = 4,
) -> stat.Panel:
    """Return a panel with one number.

    Args:
        title: what the number is.
        description: what it means.
        expr: PromQL.
        unit: Grafana's unit.
        bad_from: the panel is red from this value on.
        bad_below: the panel is red below this value.
        texts: {value: text to show instead}.
        span: columns of 24.
    """
    steps = [models.Threshold(value=None, color="text")]
    if bad_from is not None:
        steps = [models.Threshold(value=None, color="green"), models.Threshold(value=bad_from, color="red")]
    if bad_below is not None:
        steps = [models.Threshold(value=None, color="red"), models.Threshold(value=bad_below, color="green")]
    panel = (
        stat.Panel()
        .title(title)
        .description(description)
        .datasource(_SOURCE)
        .span(span)
        .height(_STAT_HEIGHT)
        .unit(unit)
        .thresholds(builders.ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE).steps(steps))
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
        .graph_mode(options.BigValueGraphMode.NONE)
        .color_mode(options.BigValueColorMode.VALUE)
        .with_target(_target("A", Query(expr, "")).instant())
    )
    if texts is not None:
        results = {value: models.ValueMappingResult(text=text) for value, text in texts.items()}
        panel.mappings([models.ValueMap(options=results)])
    return panel


def chart(
    title: str,
    description: str,
    *queries: Query,
    unit: str = "short",
    stacked: bool = False,
    alert_from: float | None = None,
    span: int = 12,
) -> timeseries.Panel:
    """Return a panel with lines over time; `alert_from` is the value from which an alert fires, shown as a line."""
    panel = (
        timeseries.Panel()
        .title(title)
        .description(description)
        .datasource(_SOURCE)
        .span(span)
        .height(_PANEL_HEIGHT)
        .unit(unit)
        .min(0)
        .fill_opacity(30 if stacked else 8)
        .show_points(options.VisibilityMode.NEVER)
        .legend(
            common.VizLegendOptions()
            .display_mode(options.LegendDisplayMode.LIST)
            .placement(options.LegendPlacement.BOTTOM)
            .show_legend(True)
        )
        .tooltip(common.VizTooltipOptions().mode(options.TooltipDisplayMode.MULTI).sort(options.SortOrder.DESCENDING))
    )
    if stacked:
        panel.stacking(common.StackingConfig().mode(options.StackingMode.NORMAL))
    if alert_from is not None:
        steps = [models.Threshold(value=None, color="transparent"), models.Threshold(value=alert_from, color="red")]
        panel.thresholds(builders.ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE).steps(steps))
        dashed = options.GraphTresholdsStyleMode.DASHED
        panel.thresholds_style(common.GraphThresholdsStyleConfig().mode(dashed))
    for name, query in zip(ascii_uppercase, queries, strict=False):
        panel.with_target(_target(name, query).range())
    return panel


def quantiles(metric: str, labels: str, *, by: str = "", legend: str = "") -> tuple[Query, Query]:
    """Return the queries of the median and the 99th percentile of a histogram; `metric` without `_bucket`."""
    rate = f"sum by ({', '.join(filter(None, (by, 'le')))}) (rate({metric}_bucket{{{labels}}}[$__rate_interval]))"
    return (
        Query(f"histogram_quantile(0.5, {rate})", f"{legend} median".strip()),
        Query(f"histogram_quantile(0.99, {rate})", f"{legend} 99th percentile".strip()),
    )


def rows_of(
    title: str,
    description: str,
    columns: Mapping[str, str],
    *values: tuple[str, str, str],
    sort_by: str,
    descending: bool = False,
    span: int = 12,
) -> table.Panel:
    """Return a panel with a table.

    Args:
        title: what the rows are.
        description: what they mean.
        columns: {label: heading}.
        values: for each further column its PromQL, heading and unit; an empty heading hides it.
        sort_by: a heading.
        descending: the highest first.
        span: columns of 24.
    """
    values_names = (
        ["Value"] if len(values) == 1 else [f"Value #{name}" for name, _ in zip(ascii_uppercase, values, strict=False)]
    )
    headings = {name: heading for name, (_, heading, _) in zip(values_names, values, strict=True)}
    hidden = {"Time", *(name for name, heading in headings.items() if not heading)}
    shown = [*columns, *(name for name in values_names if name not in hidden)]
    organize = {
        "excludeByName": dict.fromkeys(sorted(hidden), True),
        "indexByName": {name: index for index, name in enumerate(shown)},
        "renameByName": {**columns, **{name: heading for name, heading in headings.items() if heading}},
    }
    panel = (
        table.Panel()
        .title(title)
        .description(description)
        .datasource(_SOURCE)
        .span(span)
        .height(_PANEL_HEIGHT)
        .unit("short")
        .no_value("none")
        .show_header(True)
        .cell_height(options.TableCellHeight.SM)
        .sort_by([common.TableSortByFieldState().display_name(sort_by).desc(descending)])
    )
    for name, (expr, heading, unit) in zip(ascii_uppercase, values, strict=False):
        panel.with_target(_target(name, Query(expr, "")).instant().format(PromQueryFormat.TABLE))
        if heading:
            panel.override_by_name(heading, [models.DynamicConfigValue("unit", unit)])
    if len(values) > 1:
        panel.with_transformation(models.DataTransformerConfig(id_val="merge", options={}))
    return panel.with_transformation(models.DataTransformerConfig(id_val="organize", options=organize))


def cpu_and_memory(labels: str) -> Sequence[timeseries.Panel]:
    """Return the panels of the processes' CPU and memory."""
    return (
        chart(
            "CPU",
            "Cores that each process uses. A process uses one core at most, apart from short work in threads.",
            Query(f"sum by (pod) (rate(process_cpu_seconds_total{{{labels}}}[$__rate_interval]))", "{{pod}}"),
        ),
        chart(
            "Memory",
            "Resident memory of each process. Compare it with the pod's limit.",
            Query(f"sum by (pod) (process_resident_memory_bytes{{{labels}}})", "{{pod}}"),
            unit="bytes",
        ),
    )


def event_loop_delay(prefix: str, labels: str) -> timeseries.Panel:
    """Return the panel of the delay of the processes' event loops; `prefix` begins the name of the metric."""
    return chart(
        "Delay of the event loop",
        "How late the event loop of each process was, in 99 % of the measurements at most. All work of the process "
        "waits for it. An alert fires above 0.25 s.",
        quantiles(f"{prefix}_event_loop_lag_seconds", labels, by="pod", legend="{{pod}}")[1],
        unit="s",
        alert_from=0.25,
    )


def _target(name: str, query: Query) -> prometheus.Dataquery:
    return prometheus.Dataquery().ref_id(name).datasource(_SOURCE).expr(query.expr).legend_format(query.legend)
