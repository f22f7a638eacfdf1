"""The dashboard of the autoscaler."""

from __future__ import annotations

from typing import Final

from grafana_foundation_sdk.builders.dashboard import Dashboard
from grafana_foundation_sdk.builders.table import Panel

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

_P: Final = "horizontal_pod_autoscaler_controller"
_JOB: Final = 'job="$job"'
_HPAS: Final = 'job="$job",namespace=~"$namespace",hpa_name=~"$hpa"'
_FAILS: Final = 'reason=~"Failed.*|Fallback|Invalid.*|AmbiguousSelector"'
_LIMITED: Final = 'reason=~"TooManyReplicas|ScaleUpLimit|ScaleDownLimit|Paused|StaleWatch"'
_HPA_COLUMNS: Final = {"namespace": "Namespace", "hpa_name": "HPA"}


def _hpas(reasons: str = "", *, by: str = "namespace, hpa_name") -> str:
    """Return PromQL for the last decisions of the chosen HPAs, from whichever process is the leader."""
    selected = ",".join(filter(None, (_HPAS, reasons)))
    return f"max by ({by}) ({_P}_last_decision_info{{{selected}}})"


def _hpas_by_reason(title: str, description: str, *, reasons: str) -> Panel:
    """Return a table of the HPAs whose last decision has one of the reasons, which PromQL selects."""
    return rows_of(
        title,
        description,
        {**_HPA_COLUMNS, "reason": "Reason"},
        (_hpas(reasons, by="namespace, hpa_name, reason"), "", "short"),
        sort_by="Namespace",
    )


def autoscaler_dashboard() -> Dashboard:
    """Return the dashboard."""
    dashboard = (
        new_dashboard(
            "milliscale autoscaler",
            uid="milliscale-autoscaler",
            description="The HorizontalPodAutoscaler controller: whether it acts and is on time, what it decides, and "
            "where its time goes.",
            job_of=f"{_P}_schedule_lag_seconds_count",
        )
        .with_variable(choice("namespace", "Namespace", f"label_values({_P}_last_decision_info{{{_JOB}}}, namespace)"))
        .with_variable(
            choice(
                "hpa",
                "HPA",
                f'label_values({_P}_last_decision_info{{{_JOB},namespace=~"$namespace"}}, hpa_name)',
            )
        )
    )
    for part in (_up_and_acting, _on_time, _decisions, _time, _rare):
        part(dashboard)
    return dashboard


def _up_and_acting(dashboard: Dashboard) -> None:
    leaders = f"leader_election_master_status{{{_JOB}}}"
    reconciled = f"{_P}_reconciliations_total"
    dashboard.with_row(row("Is it up, and does it act?"))
    for panel in (
        number(
            "Processes",
            "Processes that Prometheus can scrape: the leaders and their standbys.",
            f"sum(up{{{_JOB}}}) or vector(0)",
            bad_below=1,
        ),
        number(
            "Leases without a leader",
            "The HPAs of a Lease without a leader are not scaled. There is one Lease, or one for each shard.",
            f"count(count by (name) ({leaders})) - sum(max by (name) ({leaders}))",
            bad_from=1,
        ),
        number(
            "HPAs",
            "HPAs on which a leader has decided.",
            f"count(max by (namespace, hpa_name) ({_P}_last_decision_info{{{_JOB}}}))",
        ),
        number(
            "Decisions",
            "Decisions a second. Each HPA has one in each sync period, which is 15 s by default.",
            f"sum(rate({_P}_decisions_total{{{_JOB}}}[$__rate_interval]))",
            unit="ops",
        ),
        number(
            "Failed reconciliations",
            "Share of the reconciliations that ended with an error. An alert fires above 10 %.",
            f'(sum(rate({reconciled}{{{_JOB},error!="none"}}[$__rate_interval])) or vector(0))'
            f" / sum(rate({reconciled}{{{_JOB}}}[$__rate_interval]))",
            unit="percentunit",
            bad_from=0.1,
        ),
        number(
            "HPAs left to Kubernetes",
            "HPAs on which the autoscaler does not act, because kube-controller-manager writes their status.",
            f"sum({_P}_foreign_controlled_hpas{{{_JOB}}})",
            bad_from=1,
        ),
        chart(
            "Leaders",
            "1: this process holds the Lease and acts. 0: it waits. After a change, there may be no leader for some "
            "17 s.",
            Query(f"max by (pod, name) ({leaders})", "{{pod}} {{name}}"),
        ),
        chart(
            "Stale watches",
            "1: the watch on this resource is silent or fails, so objects may be out of date. "
            "Then this process scales nothing down.",
            Query(f"max by (pod, resource) ({_P}_watch_stale{{{_JOB}}})", "{{pod}} {{resource}}"),
        ),
    ):
        dashboard.with_panel(panel)


def _on_time(dashboard: Dashboard) -> None:
    dashboard.with_row(row("Is it on time?"))
    for panel in (
        chart(
            "Delay of reconciliations",
            "How late reconciliations start. If it grows, remove or raise --kube-api-qps; if CPU is at one core, use "
            "shards. An alert fires above 10 s.",
            *quantiles(f"{_P}_schedule_lag_seconds", _JOB),
            unit="s",
            alert_from=10,
        ),
        chart(
            "Duration of reconciliations",
            "From the start of a reconciliation until its scale and status are written. Most of it is waiting for "
            "metrics and for the API server.",
            *quantiles(f"{_P}_reconciliation_duration_seconds", _JOB),
            unit="s",
        ),
        chart(
            "Reconciliations",
            "Reconciliations a second, by the cause of an error: none, internal (metrics, API server) or spec (the HPA "
            "is invalid).",
            Query(f"sum by (error) (rate({_P}_reconciliations_total{{{_JOB}}}[$__rate_interval]))", "error: {{error}}"),
            unit="ops",
            stacked=True,
        ),
        event_loop_delay(_P, _JOB),
    ):
        dashboard.with_panel(panel)


def _decisions(dashboard: Dashboard) -> None:
    desired = f"max by (namespace, hpa_name) ({_P}_desired_replicas{{{_HPAS}}})"
    changes = f"sum by (namespace, hpa_name) (changes({_P}_desired_replicas{{{_HPAS}}}[$__range]))"
    dashboard.with_row(row("Which HPAs scale, fail or are limited?"))
    for panel in (
        number(
            "HPAs that fail",
            "The last decision on these HPAs failed, so they do not follow their metrics.",
            f"count({_hpas(_FAILS)}) or vector(0)",
            bad_from=1,
        ),
        number(
            "HPAs at their maximum",
            "These HPAs want more replicas than maxReplicas.",
            f"""count({_hpas('reason="TooManyReplicas"')}) or vector(0)""",
        ),
        number(
            "HPAs limited in their rate",
            "A policy of spec.behavior (or Kubernetes' default) limits how fast these HPAs scale.",
            f"""count({_hpas('reason=~"ScaleUpLimit|ScaleDownLimit"')}) or vector(0)""",
        ),
        number(
            "HPAs that wait to scale down",
            "The stabilization window keeps the replicas of these HPAs: their metrics have not been low for long "
            "enough.",
            f"""count({_hpas('reason="ScaleDownStabilized"')}) or vector(0)""",
        ),
        number(
            "HPAs that are blocked",
            "A pause (annotation milliscale.io/paused) or a stale watch prevents these HPAs from being scaled.",
            f"""count({_hpas('reason=~"Paused|StaleWatch"')}) or vector(0)""",
        ),
        number(
            "Scales",
            "Scales in the time range of the dashboard, in both directions.",
            f'sum(increase({_P}_reconciliations_total{{{_JOB},action!="none"}}[$__range])) or vector(0)',
        ),
        _hpas_by_reason(
            "Which HPAs fail",
            "HPAs whose last decision failed, with the reason. The HPA's conditions have the message: kubectl "
            "describe hpa.",
            reasons=_FAILS,
        ),
        _hpas_by_reason(
            "Which HPAs are limited or blocked",
            "TooManyReplicas: at maxReplicas. ScaleUpLimit, ScaleDownLimit: a policy limits the rate. Paused, "
            "StaleWatch: not scaled for now.",
            reasons=_LIMITED,
        ),
        chart(
            "HPAs by the reason of their last decision",
            "ValidMetricFound: the metrics decide. Other reasons limit, delay or prevent that.",
            Query(f"count by (reason) ({_hpas(by='namespace, hpa_name, reason')})", "{{reason}}"),
            stacked=True,
        ),
        chart(
            "Scales by direction",
            "Scales a minute.",
            Query(
                f'60 * sum by (action) (rate({_P}_reconciliations_total{{{_JOB},action!="none"}}[$__rate_interval]))',
                "{{action}}",
            ),
            unit="opm",
        ),
        chart(
            "Desired replicas",
            "Replicas that each HPA wants. Choose namespaces and HPAs at the top; of more than 20 HPAs, those with the "
            "most replicas are shown.",
            Query(f"topk(20, {desired})", "{{namespace}}/{{hpa_name}}"),
        ),
        rows_of(
            "Which HPAs change most",
            "How often the desired replicas changed in the time range of the dashboard. Many changes in both "
            "directions: a longer stabilization window or a larger tolerance helps.",
            _HPA_COLUMNS,
            (f"topk(20, {changes} > 0)", "Changes", "short"),
            sort_by="Changes",
            descending=True,
        ),
    ):
        dashboard.with_panel(panel)


def _time(dashboard: Dashboard) -> None:
    seconds = quantiles(f"{_P}_metric_computation_duration_seconds", _JOB, by="metric_type", legend="{{metric_type}}")
    dashboard.with_row(row("Where does the time go?"))
    for panel in (
        chart(
            "Time for one metric",
            "Time to fetch and evaluate a metric, by the type of the metric in the HPA. Pods, Object and External come "
            "from the adapter: see its dashboard.",
            *seconds,
            unit="s",
        ),
        chart(
            "Metrics that fail",
            "Evaluations of metrics a second that failed, by type.",
            Query(
                f'sum by (metric_type) (rate({_P}_metric_computation_total{{{_JOB},error!="none"}}[$__rate_interval]))',
                "{{metric_type}}",
            ),
            unit="ops",
        ),
        chart(
            "Failed requests",
            "Requests to the API server a second that failed, by API group and status code. 404 of a metrics API: the "
            "metric does not exist. 409: a status was changed meanwhile; it is written again.",
            Query(
                f"sum by (group, code) (rate({_P}_api_errors_total{{{_JOB}}}[$__rate_interval]))", "{{group}} {{code}}"
            ),
            unit="reqps",
            span=8,
        ),
        *(panel.span(8) for panel in cpu_and_memory(_JOB)),
    ):
        dashboard.with_panel(panel)


def _rare(dashboard: Dashboard) -> None:
    verdicts = f"sum by (verdict) (rate({_P}_shadow_comparisons_total{{{_HPAS}}}[$__rate_interval]))"
    dashboard.with_row(row("Other controllers, shadow mode and records"))
    for panel in (
        chart(
            "Status writes of kube-controller-manager",
            "Writes a second to HPAs that the autoscaler should act on. Any write fires an alert: run one controller "
            "only.",
            Query(f"sum(rate({_P}_foreign_status_writes_total{{{_JOB}}}[$__rate_interval]))", "writes"),
            unit="ops",
            span=8,
        ),
        chart(
            "Comparisons in shadow mode",
            "Decisions a second in shadow mode, by how they compare with those of kube-controller-manager. Empty "
            "without HPAs in shadow mode.",
            Query(verdicts, "{{verdict}}"),
            unit="ops",
            stacked=True,
            span=8,
        ),
        chart(
            "Processes that wait, records that are lost",
            "Processes that wait until one with another number of shards ends, and decisions a second that could not "
            "be written to --audit-log.",
            Query(f"sum({_P}_waiting_for_shards{{{_JOB}}})", "processes that wait"),
            Query(f"sum(rate({_P}_audit_records_lost_total{{{_JOB}}}[$__rate_interval]))", "records lost a second"),
            span=8,
        ),
    ):
        dashboard.with_panel(panel)
