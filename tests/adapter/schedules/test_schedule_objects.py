"""Schedules and activation in MetricRules."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from adapter.diagnosis.checker import RuleChecker
from adapter.metrics.objects import ListedObjects
from adapter.rule_objects.status import checked_verdict
from adapter.rules import QueryRule, RulesFile, ScheduleRule, parse_rules
from adapter.rules.objects import RuleObject, Tenancy, read_object
from adapter.schedules.schedule import Schedule
from tests.adapter.metrics_env import CannedPrometheus, external_request, metrics_env
from tests.adapter.test_activation import TwoQueries, queues


def metric_rule(**spec: object) -> RuleObject:
    obj: dict[str, Any] = {"kind": "MetricRule", "metadata": {"namespace": "shop", "name": "a"}, "spec": spec}
    return read_object(obj, servers={}, tenancy=Tenancy())


def test_schedule_of_a_metric_rule_may_have_numbers() -> None:
    windows = [{"start": "0 8 * * *", "end": "0 9 * * *", "value": 12}]
    found = metric_rule(type="External", metric="floor", schedule={"default": 1.5, "windows": windows})
    [rule] = found.rules
    assert isinstance(rule, ScheduleRule)
    assert (rule.key, rule.namespace, rule.metric) == ("MetricRule shop/a", "shop", "floor")
    assert (rule.schedule.milli_at(0), rule.schedule.milli_at(8 * 3600)) == (1500, 12_000)


def test_schedule_of_a_metric_rule_cannot_name_a_file() -> None:
    found = metric_rule(type="External", metric="floor", schedule={"holidays": {"file": "/etc/passwd"}})
    assert (
        found.error == "spec.schedule.holidays.file: only the rules file can name a file; write its text as `calendar`"
    )


@pytest.mark.parametrize(
    ("spec", "error"),
    [
        ({"schedule": {"holidays": {"calendar": "x" * 20_000}}}, "spec.schedule.holidays.calendar: longer than 16384"),
        ({"schedule": {}, "type": "Pods"}, "spec.metric: expected a mapping"),
        ({"schedule": {}, "empty": "zero"}, "empty"),
    ],
)
def test_schedule_of_a_metric_rule_is_short_external_and_has_no_policies(spec: dict[str, object], error: str) -> None:
    assert error in metric_rule(**{"type": "External", "metric": "floor", **spec}).error


def test_activation_of_a_metric_rule() -> None:
    [rule] = metric_rule(type="External", metric="q", query="q", activation={"threshold": 5, "for": "2m"}).rules
    assert isinstance(rule, QueryRule)
    assert rule.activation is not None
    assert rule.activation.threshold == 5000
    assert rule.activation.for_ == 120.0


async def test_status_of_an_activation_counts_the_samples_of_the_rules_own_query(tmp_path: Path) -> None:
    [rule] = metric_rule(type="External", metric="q", query="q", activation={"threshold": 5, "for": "2m"}).rules
    prometheus = TwoQueries(now=queues(a=1, b=2))
    async with metrics_env(tmp_path, RulesFile(), prometheus) as env:
        checker = RuleChecker(prometheus, env.mapper, ListedObjects(env.client), max_age=120.0)
        verdict = await checked_verdict(rule, checker)
    assert (verdict.reason, verdict.series, verdict.value) == ("Ready", 2, "0")


async def test_a_new_day_of_a_schedule_is_computed_once_and_not_on_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes up to 0.2 s."""
    threads: list[int] = []
    made = Schedule._made

    def noted(schedule: Schedule, since: int) -> object:
        threads.append(threading.get_ident())
        return made(schedule, since)

    monkeypatch.setattr(Schedule, "_made", noted)
    rules = parse_rules("externalRules: [{name: floor, schedule: {default: 2}}]", source="rules")
    async with metrics_env(tmp_path, rules, CannedPrometheus()) as env:
        await env.catalog.relist()
        request = external_request(metric="floor")
        values = await asyncio.gather(*(env.external.values(request) for _ in range(5)))
        values.append(await env.external.values(request))
    assert [[value.milli for value in one] for one in values] == [[2000]] * 6
    [elsewhere] = threads
    assert elsewhere != threading.get_ident()
