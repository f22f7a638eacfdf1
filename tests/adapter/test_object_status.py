"""The status of rule objects: what `check` says about a rule, as conditions."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from adapter.catalog.rule_states import Reason, problem_of
from adapter.diagnosis.checker import RuleChecker
from adapter.forecasts.registry import Forecasts
from adapter.metrics.objects import ListedObjects
from adapter.prometheus import (
    PrometheusAccessError,
    PrometheusError,
    PrometheusQueryError,
    PrometheusTimeout,
    PrometheusUnavailable,
    Vector,
    scalar,
)
from adapter.rule_objects.state import ObjectState
from adapter.rule_objects.status import Verdict, checked_verdict, duration_text, must_write, not_served, status_of
from adapter.rules import AnyRule, RulesFile, parse_rules
from adapter.rules.objects import ObjectName, RuleObject
from tests.adapter.metrics_env import CannedPrometheus, metrics_env, series, vector

KEY = "MetricRule shop/my.queue"
SHORT = "externalRules: [{name: queue_length, query: sum(queue)}]"
PODS = """
rules:
- name: hits
  query: sum(rate(hits_total[2m])) by (namespace, pod)
  resources: {pod: pod, namespace: namespace}
"""
LONG = """
externalRules:
- seriesQuery: '{job="queue"}'
  metricsQuery: sum(<<.Series>>{<<.LabelMatchers>>})
  resources: {namespaced: false}
"""
NOW = 1_800_000_000.0


def rule_of(text: str) -> AnyRule:
    """The rule of a text as a MetricRule of the namespace shop."""
    [rule] = parse_rules(text, source="rules.yaml").all_rules
    return msgspec.structs.replace(rule, key=KEY, namespace="shop")


async def verdict_on(folder: Path, rule: str, prometheus: CannedPrometheus, *, seconds: float = 20.0) -> Verdict:
    async with metrics_env(folder, RulesFile(), prometheus) as env:
        checker = RuleChecker(prometheus, env.mapper, ListedObjects(env.client), max_age=120.0, seconds=seconds)
        return await checked_verdict(rule_of(rule), checker)


async def test_rule_with_a_value_is_ready(tmp_path: Path) -> None:
    prometheus = CannedPrometheus(result=Vector(vector(({}, 42.5)).samples, seconds=0.012))
    assert await verdict_on(tmp_path, SHORT, prometheus) == Verdict(
        ready=True,
        reason="Ready",
        message="makes queue_length",
        metrics=("queue_length",),
        series=1,
        value="42500m",
        query_seconds=0.012,
    )
    assert len(prometheus.queries) == 1


async def test_status_of_a_rule_says_whether_its_forecast_is_served(tmp_path: Path) -> None:
    prometheus = CannedPrometheus(result=vector(({}, 42.5)))
    forecast = SHORT.replace("}]", ", forecast: {horizon: 5m}}]")
    async with metrics_env(tmp_path, RulesFile(), prometheus) as env:
        checker = RuleChecker(prometheus, env.mapper, ListedObjects(env.client), max_age=120.0)
        verdict = await checked_verdict(rule_of(forecast), checker, Forecasts())
    assert verdict.reason == "Ready"
    assert not verdict.settled
    status = status_of(verdict, generation=1, before={}, now=NOW)
    assert status["forecast"] == "not requested: forecasts begin with a request"


async def test_long_form_counts_the_names_of_its_series(tmp_path: Path) -> None:
    prometheus = CannedPrometheus(
        found={'{job="queue"}': (series("depth"), series("age"))}, result=replace(scalar(NOW, 7.0), seconds=0.001)
    )
    verdict = await verdict_on(tmp_path, LONG, prometheus)
    assert (verdict.ready, verdict.message) == (True, "makes 2 metrics")
    assert (verdict.metrics, verdict.series, verdict.value) == (("age", "depth"), 2, "7")


async def test_schedule_has_its_value_without_prometheus(tmp_path: Path) -> None:
    text = "externalRules: [{name: floor, schedule: {timezone: UTC, default: 3, windows: []}}]"
    verdict = await verdict_on(tmp_path, text, CannedPrometheus(result=PrometheusUnavailable("refused")))
    assert (verdict.reason, verdict.value, verdict.metrics) == ("Ready", "3", ("floor",))
    assert (verdict.series, verdict.query_seconds) == (None, None)


NO_VALUE = (
    "queue_length has no value: the query finds nothing now; there are no series of queue; the query was sent as"
    " sum(queue)"
)


@pytest.mark.parametrize(
    ("text", "reason", "message"),
    [
        (SHORT, "NoValue", NO_VALUE),
        (LONG, "NoSeries", "its seriesQuery finds no series with a sample in the last 2m0s"),
    ],
)
async def test_rule_that_finds_nothing_is_ready_and_says_so(
    tmp_path: Path, text: str, reason: str, message: str
) -> None:
    verdict = await verdict_on(tmp_path, text, CannedPrometheus())
    assert (verdict.ready, verdict.reason, verdict.message, verdict.settled) == (True, reason, message, False)


async def test_rule_with_several_values_for_an_object_is_not_ready_and_the_message_has_the_corrected_query(
    tmp_path: Path,
) -> None:
    text = PODS.replace("by (namespace, pod)", "by (namespace, pod, code)")
    pod = {"namespace": "shop", "pod": "web-0"}
    result = vector(({**pod, "code": "200"}, 60.0), ({**pod, "code": "500"}, 75.0))
    verdict = await verdict_on(tmp_path, text, CannedPrometheus(result=result))
    assert (verdict.ready, verdict.reason, verdict.value) == (False, "SeveralValues", "60")
    assert verdict.message == (
        "spec.query: pods/hits: the query makes 2 values for shop/web-0, by `code`; the first (60) is taken, their sum"
        " is 135: aggregate them, as in sum by (namespace, pod) (sum(rate(hits_total[2m])) by (namespace, pod, code))"
    )


REFUSED = PrometheusQueryError("Prometheus answered with status 400: no")
NO_ACCESS = PrometheusAccessError("AWS gives no credentials: arn:aws:iam::123456789012:role/reader")


@pytest.mark.parametrize("text", [SHORT, LONG])
@pytest.mark.parametrize(
    ("error", "ready", "reason", "message"),
    [
        (REFUSED, False, "QueryFailed", str(REFUSED)),
        (PrometheusUnavailable("refused"), None, "PrometheusUnavailable", "refused"),
        (PrometheusTimeout("no response"), None, "PrometheusUnavailable", "no response"),
        (
            NO_ACCESS,
            None,
            "PrometheusUnavailable",
            "Prometheus refuses the adapter's credentials, or the adapter has none",
        ),
    ],
)
async def test_status_does_not_say_why_credentials_are_refused(
    tmp_path: Path, text: str, error: PrometheusError, ready: bool | None, reason: str, message: str
) -> None:
    """Of other failures, it has Prometheus' message."""
    prometheus = CannedPrometheus(result=error, found={'{job="queue"}': error})
    verdict = await verdict_on(tmp_path, text, prometheus)
    assert (verdict.ready, verdict.reason, verdict.message.partition("; ")[0]) == (ready, reason, message)
    assert problem_of(error, limited=True).message == verdict.message


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("dial tcp 10.2.3.4:10901: connect: refused", "dial tcp ADDRESS: connect: refused"),
        ("dial tcp [fd00::1]:10901: refused", "dial tcp ADDRESS: refused"),
        ("lookup store.monitoring.svc on 10.0.0.10:53: no such host", "lookup ADDRESS on ADDRESS: no such host"),
        ('Post "http://querier:9090/api": EOF', 'Post "ADDRESS": EOF'),
        ("store querier-0:10901 failed", "store ADDRESS failed"),
        ("1:5: parse error: unexpected <by> in job:rate:5m", "1:5: parse error: unexpected <by> in job:rate:5m"),
        ("it would load too many samples: 50000000", "it would load too many samples: 50000000"),
    ],
)
def test_status_does_not_have_addresses_of_servers(message: str, shown: str) -> None:
    for error in (PrometheusQueryError(message), PrometheusUnavailable(message)):
        assert problem_of(error, limited=True)[1] == shown


async def test_without_the_api_server_nothing_is_known_about_resources(tmp_path: Path) -> None:
    async with metrics_env(tmp_path, RulesFile(), CannedPrometheus()) as env:
        env.api.handlers.clear()
        checker = RuleChecker(env.prometheus, env.mapper, ListedObjects(env.client), max_age=120.0)
        verdict = await checked_verdict(rule_of(PODS), checker)
    assert (verdict.ready, verdict.reason) == (None, "APIServerUnavailable")


async def test_check_ends_at_its_time_limit(tmp_path: Path) -> None:
    class Hanging(CannedPrometheus):
        async def instant(self, *_: object, **__: object) -> Vector:
            await asyncio.Event().wait()
            raise AssertionError

    verdict = await verdict_on(tmp_path, SHORT, Hanging(), seconds=0.01)
    assert (verdict.ready, verdict.reason) == (None, "PrometheusUnavailable")
    assert verdict.message.startswith("there was no result within 0.01 s")


async def test_findings_name_the_fields_of_the_object(tmp_path: Path) -> None:
    text = "rules: [{name: lag, query: sum(lag) by (topic), resources: {topic: topics.kafka.strimzi.io}}]"
    verdict = await verdict_on(tmp_path, text, CannedPrometheus())
    assert (verdict.ready, verdict.reason) == (False, "Invalid")
    assert verdict.message.startswith("spec.labels.topic: the cluster has no resource topics.kafka.strimzi.io")


async def test_warnings_are_in_the_message_of_a_ready_rule(tmp_path: Path) -> None:
    text = "rules: [{name: hits, query: sum(hits) by (po), resources: {pod: pod, namespace: namespace}}]"
    prometheus = CannedPrometheus(result=vector(({"pod": "web-0", "namespace": "shop"}, 2.0)))
    verdict = await verdict_on(tmp_path, text, prometheus)
    assert verdict.reason in ("Ready", "Invalid")
    assert "spec.query" in verdict.message


async def test_example_of_a_namespaced_rule_is_of_its_namespace(tmp_path: Path) -> None:
    others = {"pod": "web-0", "namespace": "other"}
    prometheus = CannedPrometheus(result=vector((others, 1.0), ({**others, "namespace": "shop"}, 2.0)))
    verdict = await verdict_on(tmp_path, PODS, prometheus)
    assert (verdict.reason, verdict.value) == ("Ready", "2")


async def test_check_reads_a_limited_number_of_series(tmp_path: Path) -> None:
    found = tuple(series(f"queue_{number}") for number in range(1_200))
    prometheus = CannedPrometheus(found={'{job="queue"}': found}, result=vector(({}, 1.0)))
    verdict = await verdict_on(tmp_path, LONG, prometheus)
    assert (verdict.series, len(verdict.metrics)) == (1_200, 1_000)


OBJECT = RuleObject(name=ObjectName("MetricRule", "shop", "queue"))
CONFLICT = not_served(ObjectState(object=OBJECT, reason=Reason.CONFLICT, message="also made", metrics=("b", "a")))
READY = Verdict(ready=True, reason="Ready", message="makes queue", metrics=("queue",), value="4", query_seconds=0.5)


def test_status_has_the_condition_and_the_example() -> None:
    status = status_of(READY, generation=3, before={}, now=NOW)
    assert status == {
        "observedGeneration": 3,
        "conditions": [
            {
                "type": "Ready",
                "status": "True",
                "reason": "Ready",
                "message": "makes queue",
                "observedGeneration": 3,
                "lastTransitionTime": "2027-01-15T08:00:00Z",
            }
        ],
        "metrics": ["queue"],
        "metricsCount": 1,
        "series": None,
        "value": "4",
        "forecast": None,
        "queryDuration": "500ms",
    }


def test_transition_time_changes_with_the_status_of_the_condition_only() -> None:
    first = status_of(READY, generation=1, before={}, now=NOW)
    no_value = Verdict(ready=True, reason="NoValue", message="queue has no value")
    second = status_of(no_value, generation=2, before=first, now=NOW + 60)
    third = status_of(CONFLICT, generation=2, before=second, now=NOW + 120)
    times = [status["conditions"][0]["lastTransitionTime"] for status in (first, second, third)]
    assert times == ["2027-01-15T08:00:00Z", "2027-01-15T08:00:00Z", "2027-01-15T08:02:00Z"]


@pytest.mark.parametrize("before", [{}, {"conditions": 3}, {"conditions": [3, {"type": "Ready", "status": True}]}])
def test_status_that_is_malformed_is_replaced(before: dict[str, object]) -> None:
    status = status_of(READY, generation=1, before=before, now=NOW)
    assert status["conditions"][0]["lastTransitionTime"] == "2027-01-15T08:00:00Z"
    assert must_write(status, before)


def test_status_lists_at_most_ten_metrics() -> None:
    names = tuple(f"m{number:02}" for number in range(12))
    status = status_of(Verdict(ready=True, reason="Ready", message="", metrics=names), generation=1, before={}, now=NOW)
    assert (len(status["metrics"]), status["metricsCount"]) == (10, 12)


def test_object_that_is_not_served_has_the_reason_and_its_metrics() -> None:
    assert Verdict(ready=False, reason="Conflict", message="also made", metrics=("a", "b")) == CONFLICT
    assert not_served(ObjectState(object=OBJECT, reason=Reason.PENDING, message="not listed yet")).ready is None


@pytest.mark.parametrize(
    ("message", "shown"), [("a\x1b[2Jb\nc", "a\ufffd[2Jb\ufffdc"), ("x" * 10**5, f"{'x' * 997}...")]
)
def test_messages_are_cut_and_have_no_control_characters(message: str, shown: str) -> None:
    assert not_served(ObjectState(object=OBJECT, reason=Reason.INVALID, message=message)).message == shown


@pytest.mark.parametrize(
    ("seconds", "value", "written"),
    [
        *[(0.5, "4", False), (0.4, "4", False), (0.9, "4", False), (1.1, "4", True), (0.2, "4", True)],
        *[(None, "4", True), (0.5, "5", True)],
    ],
)
def test_another_value_and_a_clearly_other_duration_are_written(
    seconds: float | None, value: str, *, written: bool
) -> None:
    before = status_of(READY, generation=1, before={}, now=NOW)
    verdict = replace(READY, value=value, query_seconds=seconds)
    assert must_write(status_of(verdict, generation=1, before=before, now=NOW + 300), before) is written


@pytest.mark.parametrize(("seconds", "text"), [(0.0, "1ms"), (0.0121, "13ms"), (1.5, "1.5s"), (12.34, "12.3s")])
def test_durations_are_those_of_go(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text
