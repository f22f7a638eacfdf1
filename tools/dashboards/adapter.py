"""The dashboard of the adapter."""

from __future__ import annotations

from typing import Final

from grafana_foundation_sdk.builders.dashboard import Dashboard

from tools.dashboards.panels import (
    Query,
    chart,
    choice,
    cpu_and_memory,
    event_loop_delay,
    new_dashboard,
    number,
    quantiles,
    row,
    rows_of,
)

_P: Final = "milliscale_adapter"
_LATENCY: Final = "prometheus_adapter_prometheus_client_request_duration_seconds"
_JOB: Final = 'job="$job"'
_METRICS: Final = 'group=~".*metrics.k8s.io"'
_RULES: Final = 'job="$job",rule=~"$rule"'


def adapter_dashboard() -> Dashboard:
    """Return the dashboard."""
    dashboard = new_dashboard(
        "milliscale adapter",
        uid="milliscale-adapter",
        description="The custom and external metrics API on Prometheus: whether it serves and is on time, which rules "
        "fail, and where its time goes.",
        job_of=f"{_P}_rule_series",
    ).with_variable(choice("rule", "Rule", f"label_values({_P}_rule_series{{{_JOB}}}, rule)"))
    for part in (_up_and_serving, _on_time, _rules, _time):
        part(dashboard)
    return dashboard


def _up_and_serving(dashboard: Dashboard) -> None:
    requests = "apiserver_request_total"
    dashboard.with_row(row("Is it up, and does it serve?"))
    for panel in (
        number("Processes", "Processes that Prometheus can scrape.", f"sum(up{{{_JOB}}}) or vector(0)", bad_below=1),
        number(
            "Requests",
            "Requests a second, of all clients.",
            f"sum(rate({requests}{{{_JOB}}}[$__rate_interval]))",
            unit="reqps",
        ),
        number(
            "Failed requests",
            "Share of the responses with a status code of 500 or more. An alert fires above 5 %.",
            f'(sum(rate({requests}{{{_JOB},code=~"5.."}}[$__rate_interval])) or vector(0))'
            f" / sum(rate({requests}{{{_JOB}}}[$__rate_interval]))",
            unit="percentunit",
            bad_from=0.05,
        ),
        number(
            "Rules file",
            "Invalid: a changed file cannot be used, and the last valid rules stay in use.",
            f"min({_P}_config_last_reload_successful{{{_JOB}}})",
            bad_below=1,
            texts={"1": "valid", "0": "invalid"},
        ),
        number(
            "Rules loaded",
            "Time since the rules in use were loaded.",
            f"time() - max({_P}_config_last_reload_success_timestamp_seconds{{{_JOB}}})",
            unit="s",
        ),
        number(
            "Metrics",
            "Metrics that the rules make, by the last lists of their series.",
            f"sum(max by (rule) ({_P}_rule_metrics{{{_JOB}}}))",
        ),
        chart(
            "Requests by resource",
            "Requests for metrics a second, by API group and resource, the 20 most frequent; for external metrics the "
            "resource is the metric's name. The others are health, discovery and /metrics.",
            Query(
                f"topk(20, sum by (group, resource) (rate({requests}{{{_JOB},{_METRICS}}}[$__rate_interval])))",
                "{{group}} {{resource}}",
            ),
            Query(f'sum(rate({requests}{{{_JOB},group!~".*metrics.k8s.io"}}[$__rate_interval]))', "others"),
            unit="reqps",
        ),
        chart(
            "Responses by status code",
            "404: a metric or object does not exist. 429: too many requests. 500: Prometheus refused a query. 503: it "
            "is unreachable. 504: it is slow.",
            Query(f"sum by (code) (rate({requests}{{{_JOB}}}[$__rate_interval]))", "{{code}}"),
            unit="reqps",
            stacked=True,
        ),
    ):
        dashboard.with_panel(panel)


def _on_time(dashboard: Dashboard) -> None:
    dashboard.with_row(row("Is it on time?"))
    for panel in (
        chart(
            "Duration of requests",
            "From the head of a request for metrics to its response, by API group.",
            *quantiles("apiserver_request_duration_seconds", f"{_JOB},{_METRICS}", by="group", legend="{{group}}"),
            unit="s",
        ),
        chart(
            "Age of the values",
            "How old the samples in responses are. A scrape interval is normal; much more means that Prometheus "
            "scrapes or receives late.",
            *quantiles("metrics_apiserver_metric_freshness_seconds", _JOB, by="group", legend="{{group}}"),
            unit="s",
        ),
        chart(
            "Requests in flight, connections",
            "Requests that are being served, and open connections.",
            Query(f"sum by (pod) (apiserver_current_inflight_requests{{{_JOB}}})", "requests {{pod}}"),
            Query(f"sum by (pod, state) ({_P}_connections{{{_JOB}}})", "connections {{state}} {{pod}}"),
        ),
        event_loop_delay(_P, _JOB),
    ):
        dashboard.with_panel(panel)


def _rules(dashboard: Dashboard) -> None:
    dashboard.with_row(row("Which rules fail, or find nothing?"))
    for panel in (
        rows_of(
            "Rules",
            "What the last list of each rule found. A rule without series makes no metrics: `python -m adapter check` "
            "says why. The name is the rule's position in the file.",
            {"rule": "Rule"},
            (f"max by (rule) ({_P}_rule_series{{{_RULES}}})", "Series", "short"),
            (f"max by (rule) ({_P}_rule_metrics{{{_RULES}}})", "Metrics", "short"),
            (
                f"time() - min by (rule) ({_P}_rule_last_relist_timestamp_seconds{{{_RULES}}})",
                "Since the last list",
                "s",
            ),
            sort_by="Rule",
        ),
        chart(
            "Metrics by rule",
            "Metrics that each rule makes. A sudden fall: a change of the rules, or an exporter that is gone.",
            Query(f"max by (rule) ({_P}_rule_metrics{{{_RULES}}})", "{{rule}}"),
        ),
        chart(
            "Failed queries and lists by rule",
            "Queries for values, and lists of series, a second that failed. The log has Prometheus' error.",
            Query(
                f"sum by (rule) (rate({_P}_rule_query_errors_total{{{_RULES}}}[$__rate_interval]))", "query {{rule}}"
            ),
            Query(
                f"sum by (rule) (rate({_P}_rule_relist_errors_total{{{_RULES}}}[$__rate_interval]))", "list {{rule}}"
            ),
            unit="ops",
        ),
        chart(
            "Values that are left out",
            "Samples a second that are NaN, infinite, or too large for a quantity; the rule's options `nan` and `inf` "
            "decide.",
            Query(f"sum by (rule) (rate({_P}_samples_left_out_total{{{_RULES}}}[$__rate_interval]))", "{{rule}}"),
            unit="ops",
        ),
        chart(
            "Forecasts by state",
            "Forecasts of metrics whose rules have `forecast`: served, or why the value is the plain one.",
            Query(f"sum by (state) ({_P}_forecasts{{{_RULES}}})", "{{state}}"),
            stacked=True,
        ),
        chart(
            "Forecasts that were right",
            "Share of minutes in which the highest value within the horizon was what was expected, by at most 10 %. An "
            "alert fires if it is less than half for a day.",
            Query(
                f'sum by (rule) (increase({_P}_forecast_minutes_total{{{_RULES},outcome="within"}}[6h]))'
                f" / sum by (rule) (increase({_P}_forecast_minutes_total{{{_RULES}}}[6h]))",
                "{{rule}}",
            ),
            unit="percentunit",
        ),
    ):
        dashboard.with_panel(panel)


def _time(dashboard: Dashboard) -> None:
    dashboard.with_row(row("Where does the time go?"))
    for panel in (
        chart(
            "Latency of Prometheus",
            "Time of requests to each Prometheus: /api/v1/query for values, /api/v1/series for lists. An alert fires "
            "if the slowest 1 % take more than 5 s.",
            *quantiles(_LATENCY, _JOB, by="server, path", legend="{{server}} {{path}}"),
            unit="s",
            alert_from=5,
        ),
        chart(
            "Requests to Prometheus",
            "Requests a second to each Prometheus. With coalesced queries and the cache, these are far fewer than the "
            "requests to the adapter.",
            Query(f"sum by (server, path) (rate({_LATENCY}_count{{{_JOB}}}[$__rate_interval]))", "{{server}} {{path}}"),
            unit="reqps",
        ),
        chart(
            "Coalesced queries",
            "Requests a second that one query for many objects can serve. merged: it served them. alone: they had a "
            "query of their own.",
            Query(f"sum by (query) (rate({_P}_rule_requests_total{{{_RULES}}}[$__rate_interval]))", "{{query}}"),
            unit="reqps",
            stacked=True,
            span=8,
        ),
        chart(
            "Coalescing that is paused",
            "Groups of requests that are sent alone for a while: their coalesced query costs more than it saves, "
            "fails, or is too large for the cache.",
            Query(f"sum({_P}_rule_merging_paused{{{_RULES}}}) or vector(0)", "groups"),
            span=8,
        ),
        chart(
            "Dropped connections",
            "Connections a second that were closed to make room. Any that are refused fire an alert.",
            Query(f"sum by (reason) (rate({_P}_connections_dropped_total{{{_JOB}}}[$__rate_interval]))", "{{reason}}"),
            unit="ops",
            span=8,
        ),
        *cpu_and_memory(_JOB),
    ):
        dashboard.with_panel(panel)
