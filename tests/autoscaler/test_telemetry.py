"""The autoscaler's own metrics."""

from msgspec.structs import replace

from autoscaler.core.model import HPAKey
from autoscaler.loop.telemetry import Action, ErrorKind, Telemetry
from autoscaler.records.shadow import Comparison, Verdict
from tests.autoscaler.simulated_cluster import SimulatedCluster, hpa

PREFIX = "horizontal_pod_autoscaler_controller"


def decide(telemetry: Telemetry, value: int | str = 100, api_version: str = "autoscaling/v2") -> None:
    """Count a decision on the HPA web with three replicas and a target of 100 per pod; the metric takes 20 s."""
    simulated = SimulatedCluster(replace(hpa(), api_version=api_version), replicas=3)
    outcome = simulated.reconcile(value)
    telemetry.decided(outcome, metric_seconds=(20.0,), seconds=0.003)


def lines(telemetry: Telemetry) -> list[str]:
    return telemetry.render().decode().splitlines()


def test_the_names_and_labels_are_those_of_kube_controller_manager() -> None:
    telemetry = Telemetry()
    telemetry.reconciled(Action.SCALE_UP, ErrorKind.NONE, seconds=0.003)
    decide(telemetry)
    telemetry.hpas.set(4)
    shown = lines(telemetry)
    assert f'{PREFIX}_reconciliations_total{{action="scale_up",error="none"}} 1.0' in shown
    assert f'{PREFIX}_reconciliation_duration_seconds_bucket{{action="scale_up",error="none",le="0.004"}} 1.0' in shown
    assert f'{PREFIX}_metric_computation_total{{action="scale_up",error="none",metric_type="Pods"}} 1.0' in shown
    seconds = f"{PREFIX}_metric_computation_duration_seconds"
    assert f'{seconds}_bucket{{action="scale_up",error="none",le="16.384",metric_type="Pods"}} 0.0' in shown
    assert f"{PREFIX}_num_horizontal_pod_autoscalers 4.0" in shown
    assert f'{PREFIX}_desired_replicas{{hpa_name="web",namespace="default"}} 3.0' in shown


def test_a_deleted_hpa_has_no_series() -> None:
    telemetry = Telemetry()
    decide(telemetry)
    telemetry.forget(HPAKey("default", "web"))
    telemetry.forget(HPAKey("default", "never-known"))
    assert not any('hpa_name="web"' in line for line in lines(telemetry))


def test_a_standby_process_shows_no_decisions() -> None:
    telemetry = Telemetry()
    decide(telemetry)
    telemetry.leader_changed("lease", is_leader=False)
    assert not any('hpa_name="web"' in line for line in lines(telemetry))


def last_decisions(telemetry: Telemetry) -> list[str]:
    return [line.partition("{")[2] for line in lines(telemetry) if line.startswith(f"{PREFIX}_last_decision_info{{")]


def test_each_hpa_has_the_reason_of_its_last_decision_only() -> None:
    telemetry = Telemetry()
    decide(telemetry, "unavailable")
    assert last_decisions(telemetry) == ['hpa_name="web",namespace="default",reason="FailedGetPodsMetric"} 1.0']
    decide(telemetry, 1000)
    assert last_decisions(telemetry) == ['hpa_name="web",namespace="default",reason="ScaleUpLimit"} 1.0']


def test_a_scale_that_cannot_be_written_is_the_reason_of_the_last_decision() -> None:
    telemetry = Telemetry()
    simulated = SimulatedCluster(hpa(), replicas=3)
    outcome = simulated.reconcile(200, scale_error="denied")
    telemetry.decided(outcome, metric_seconds=(), seconds=0.1)
    assert last_decisions(telemetry) == ['hpa_name="web",namespace="default",reason="FailedUpdateScale"} 1.0']


def test_an_invalid_hpa_has_the_reason_of_its_condition() -> None:
    telemetry = Telemetry()
    telemetry.refused(HPAKey("default", "web", "milliscale.io"), seconds=0.1)
    labels = 'hpa_name="web (milliscale.io)",namespace="default",reason="InvalidSpec"'
    assert last_decisions(telemetry) == [f"{labels}}} 1.0"]
    assert f'{PREFIX}_reconciliations_total{{action="none",error="spec"}} 1.0' in lines(telemetry)


def test_stale_watches_are_read_at_each_scrape() -> None:
    telemetry, stale = Telemetry(), set[str]()
    telemetry.watched("pods", lambda: "pods" in stale)
    assert f'{PREFIX}_watch_stale{{resource="pods"}} 0.0' in lines(telemetry)
    stale.add("pods")
    assert f'{PREFIX}_watch_stale{{resource="pods"}} 1.0' in lines(telemetry)


def test_hpas_of_both_apis_have_separate_series() -> None:
    telemetry = Telemetry()
    decide(telemetry)
    decide(telemetry, 120, "milliscale.io/v1")
    shown = lines(telemetry)
    assert f'{PREFIX}_desired_replicas{{hpa_name="web",namespace="default"}} 3.0' in shown
    assert f'{PREFIX}_desired_replicas{{hpa_name="web (milliscale.io)",namespace="default"}} 4.0' in shown


def test_additional_metrics_have_the_same_prefix() -> None:
    telemetry = Telemetry()
    decide(telemetry, 1000)
    telemetry.schedule_lag.observe(0.003)
    telemetry.request_failed("", None)
    telemetry.request_failed("custom.metrics.k8s.io", 503)
    shown = lines(telemetry)
    assert f'{PREFIX}_decisions_total{{action="scale_up",reason="ScaleUpLimit"}} 1.0' in shown
    assert f'{PREFIX}_schedule_lag_seconds_bucket{{le="0.002"}} 0.0' in shown
    assert f'{PREFIX}_schedule_lag_seconds_bucket{{le="0.004"}} 1.0' in shown
    assert f'{PREFIX}_api_errors_total{{code="<error>",group="core"}} 1.0' in shown
    assert f'{PREFIX}_api_errors_total{{code="503",group="custom.metrics.k8s.io"}} 1.0' in shown


def test_comparisons_are_counted_by_verdict_until_the_hpa_is_deleted() -> None:
    telemetry = Telemetry()
    web = HPAKey("default", "web")
    telemetry.compared(web, Comparison(ours=3, theirs=3, verdict=Verdict.AGREED, lag_seconds=-1.5))
    telemetry.compared(web, Comparison(ours=3, theirs=5, verdict=Verdict.LOWER))
    shown = lines(telemetry)
    labels = 'hpa_name="web",namespace="default"'
    assert f'{PREFIX}_shadow_comparisons_total{{{labels},verdict="agreed"}} 1.0' in shown
    assert f'{PREFIX}_shadow_comparisons_total{{{labels},verdict="lower"}} 1.0' in shown
    assert f"{PREFIX}_shadow_difference_replicas{{{labels}}} -2.0" in shown
    assert f'{PREFIX}_shadow_lag_seconds_bucket{{le="1.0"}} 0.0' in shown
    assert f'{PREFIX}_shadow_lag_seconds_bucket{{le="2.0"}} 1.0' in shown
    assert f"{PREFIX}_shadow_lag_seconds_count 1.0" in shown
    telemetry.forget(web)
    assert not any(labels in line for line in lines(telemetry))
