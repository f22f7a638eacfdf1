"""docs/schedules.md and docs/scale-to-zero.md: previews are what the command prints, HPAs decide what the pages say."""

from __future__ import annotations

import re
import shlex
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
import yaml
from click.testing import CliRunner

from adapter.cli import main
from adapter.prometheus import PrometheusUnavailable
from adapter.rules import ScheduleRule, parse_rules
from adapter.schedules.cron import Cron, instant
from adapter.schedules.schedule import Schedule
from autoscaler.core.config import Config
from autoscaler.core.model import HPA
from autoscaler.core.quantities import milli_value
from autoscaler.objects.hpa import default_hpa, track_hpa
from kube.api.status import StatusError
from tests.adapter.metrics_env import external_request, metrics_env
from tests.adapter.test_activation import TwoQueries, peaks, queues
from tests.autoscaler.simulated_cluster import SimulatedCluster
from tests.docs.blocks import Block, blocks, commands

BERLIN = ZoneInfo("Europe/Berlin")
SCHEDULES, ZERO = "docs/schedules.md", "docs/scale-to-zero.md"
TO_ZERO = Config(scale_to_zero=True)


def on_page(page: str, language: str) -> list[Block]:
    return [block for block in blocks(language) if block.page == page]


def rules_of(page: str, number: int) -> str:
    return [block.text for block in on_page(page, "yaml") if block.text.startswith("externalRules")][number]


def schedule_of(text: str) -> Schedule:
    [rule] = parse_rules(text, source="rules.yaml").external
    assert isinstance(rule, ScheduleRule)
    return rule.schedule


def document_of(page: str, name: str) -> dict[str, Any]:
    """The HPA of a page with a name."""
    documents = [yaml.safe_load(block.text) for block in on_page(page, "yaml")]
    hpas = [one for one in documents if one.get("kind") == "HorizontalPodAutoscaler"]
    [found] = [one for one in hpas if one["metadata"]["name"] == name]
    return dict(found)


def hpa_of(page: str, name: str) -> HPA:
    return tracked(document_of(page, name))


def tracked(document: dict[str, Any]) -> HPA:
    hpa = track_hpa(default_hpa(document))
    assert hpa is not None
    return hpa


def at(text: str) -> int:
    return instant(datetime.fromisoformat(text), BERLIN)


def test_preview_is_what_the_command_prints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [block] = on_page(SCHEDULES, "console")
    [(command, output)] = commands(block)
    (tmp_path / "rules.yaml").write_text(rules_of(SCHEDULES, 1))
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, shlex.split(command)[3:])
    assert result.output.strip().splitlines() == output.strip().splitlines()


def test_three_lines_are_a_floor_for_replicas() -> None:
    text = rules_of(SCHEDULES, 0)
    assert len(text.splitlines()) == 3
    schedule, document = schedule_of(text), document_of(SCHEDULES, "web")
    cluster = SimulatedCluster(tracked(document), replicas=2)
    for _ in range(20):
        cluster.reconcile(schedule.milli_at(at("2026-11-24T10:00")), "no CPU usage in this cluster")
    assert cluster.replicas == 12
    document["spec"]["metrics"] = document["spec"]["metrics"][:1]
    alone = SimulatedCluster(tracked(document), replicas=12)
    for _ in range(24):  # longer than the stabilization window of 5 minutes
        alone.reconcile(schedule.milli_at(at("2026-11-24T19:00")))
    assert alone.replicas == 2


@pytest.mark.parametrize(("behavior", "replicas"), [({}, 11), ({"scaleUp": {"tolerance": "0"}}, 12)])
def test_tolerance_applies_to_the_last_replica(behavior: dict[str, Any], replicas: int) -> None:
    document = document_of(SCHEDULES, "web")
    document["spec"] |= {"metrics": document["spec"]["metrics"][:1], "behavior": behavior}
    cluster = SimulatedCluster(tracked(document), replicas=11)
    cluster.reconcile(12_000)
    assert cluster.replicas == replicas


def test_holidays_of_the_example() -> None:
    schedule = schedule_of(rules_of(SCHEDULES, 2))
    days = {"2026-12-24T10:00": 12_000, "2026-12-25T10:00": 1000, "2026-12-26T23:00": 1000, "2026-12-27T10:00": 2000}
    assert {day: schedule.milli_at(at(day)) for day in days} == days


def test_table_of_daylight_saving_time() -> None:
    page = Path(__file__).parents[2].joinpath(SCHEDULES).read_text()
    rows = dict(re.findall(r"^\| `(.*?)`.*?\| (.*) \|$", page.partition("## Daylight saving time")[2], re.MULTILINE))
    assert list(rows) == ["30 2 * * *", "0 22 * * *", "*/30 2 * * *"]
    forward, back = datetime(2026, 3, 29, tzinfo=BERLIN).date(), datetime(2026, 10, 25, tzinfo=BERLIN).date()
    shown = {day: {text: times(text, day) for text in rows} for day in (forward, back)}
    assert shown[forward] == {"30 2 * * *": ["03:00"], "0 22 * * *": ["22:00"], "*/30 2 * * *": []}
    assert shown[back]["30 2 * * *"] == ["02:30"]
    assert shown[back]["*/30 2 * * *"] == ["02:00", "02:30", "02:00", "02:30"]
    window = "{start: 0 22 * * *, end: 0 6 * * *, value: 1}"
    night = schedule_of(f"externalRules: [{{name: a, schedule: {{timezone: Europe/Berlin, windows: [{window}]}}}}]")
    for day, hours in (("2026-03-28", 7), ("2026-10-24", 9)):
        start, end = night.changes(at(f"{day}T12:00"), at(f"{day}T12:00") + 86_400)
        assert end.at - start.at == hours * 3600
        assert f"{hours} hours" in rows["0 22 * * *"]


def times(text: str, day: Any) -> list[str]:
    return [f"{datetime.fromtimestamp(one, BERLIN):%H:%M}" for one in Cron(text, BERLIN).times(day)]


def activation_rows() -> list[tuple[str, str, str]]:
    page = Path(__file__).parents[2].joinpath(ZERO).read_text()
    table = page.partition("| `sum(jobs_waiting)` |")[2].partition("\n\n")[0]
    return re.findall(r"^\| (\w.*?) \| (.*?) \| (.*?) \|$", table, re.MULTILINE)


async def test_table_of_activation_is_what_is_served_and_decided(tmp_path: Path) -> None:
    """The rows follow each other."""
    rows = activation_rows()
    assert len(rows) == 6
    cluster = SimulatedCluster(hpa_of(ZERO, "worker"), replicas=1, config=TO_ZERO)
    cluster.reconcile(0)
    for query, metric, replicas in rows:
        prometheus = TwoQueries(recent=PrometheusUnavailable("down"))
        if number := re.match(r"\d+", query):
            prometheus.now = queues(sum=float(number[0]))
            prometheus.recent = peaks(sum=9) if "1 minute" in query else queues()
        async with metrics_env(tmp_path, parse_rules(rules_of(ZERO, 0), source="rules.yaml"), prometheus) as env:
            await env.catalog.relist()
            try:
                served = [one.milli for one in await env.external.values(external_request(metric="jobs_waiting"))]
            except StatusError:
                served = []
        assert served == ([] if metric == "none" else [milli_value(metric.partition(",")[0])]), query
        before = cluster.replicas
        cluster.reconcile(served[0] if served else "no value")
        assert cluster.replicas == (before if replicas == "unchanged" else int(replicas)), query


def test_workload_sleeps_at_night_and_is_started_in_the_morning() -> None:
    schedule, hpa = schedule_of(rules_of(ZERO, 1)), hpa_of(ZERO, "intranet")
    cluster = SimulatedCluster(hpa, replicas=2, config=TO_ZERO)
    for _ in range(24):  # longer than the stabilization window of 5 minutes
        cluster.reconcile(schedule.milli_at(at("2026-11-24T19:00")))
    assert cluster.replicas == 0
    cluster.reconcile(schedule.milli_at(at("2026-11-25T07:30")))
    assert cluster.replicas == 2


def test_metric_of_pods_keeps_a_replica() -> None:
    document = document_of(ZERO, "intranet")
    pods = {"metric": {"name": "m"}, "target": {"type": "AverageValue", "averageValue": "1"}}
    document["spec"]["metrics"].append({"type": "Pods", "pods": pods})
    cluster = SimulatedCluster(tracked(document), replicas=2, config=TO_ZERO)
    for _ in range(60):
        cluster.reconcile(0, 1)
    assert cluster.replicas == 1


def test_policies_in_percent_do_not_start_the_first_replica() -> None:
    document = document_of(ZERO, "worker")
    percent = {"policies": [{"type": "Percent", "value": 900, "periodSeconds": 15}]}
    document["spec"]["behavior"]["scaleUp"] = percent
    cluster = SimulatedCluster(tracked(document), replicas=1, config=TO_ZERO)
    cluster.reconcile(0)
    cluster.reconcile(40_000)
    assert cluster.replicas == 0
