"""Rules with a schedule: what a rules file may say, and the metric that is served."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from adapter.rules import RulesError, ScheduleRule, load_rules, parse_rules
from adapter.schedules.schedule import Schedule
from kube.api.status import StatusError
from kube.values.selectors import LabelSelector
from tests.adapter.metrics_env import CannedPrometheus, external_request, metrics_env

BERLIN = ZoneInfo("Europe/Berlin")
OFFICE_HOURS = """
externalRules:
- name: office-hours
  schedule:
    timezone: Europe/Berlin
    default: 2
    windows: [{start: "0 8 * * 1-5", end: "0 18 * * 1-5", value: 12, ramp: 10m}]
    dates: [{from: 2026-11-27T00:00, until: 2026-11-28, value: 30.5}]
"""
CHRISTMAS = """BEGIN:VCALENDAR
BEGIN:VEVENT
UID:christmas
SUMMARY:Christmas
DTSTART;VALUE=DATE:20201225
DTEND;VALUE=DATE:20201227
RRULE:FREQ=YEARLY
END:VEVENT
END:VCALENDAR
"""


def schedule_of(text: str) -> Schedule:
    [rule] = parse_rules(text, source="rules.yaml").external
    assert isinstance(rule, ScheduleRule)
    return rule.schedule


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=BERLIN).timestamp()


def test_schedule_without_keys_is_zero_in_utc() -> None:
    schedule = schedule_of("externalRules: [{name: nothing, schedule: {}}]")
    assert (schedule.milli_at(0), schedule.zone.key) == (0, "UTC")


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        ("{timezone: Europe/Bärlin}", ".timezone: there is no time zone 'Europe/Bärlin'"),
        ("{timezone: ../../etc/passwd}", ".timezone: there is no time zone"),
        ("{timezone: Europe}", ".timezone: there is no time zone"),
        (
            "{windows: [{start: 0 8 * *, end: 0 9 * * *, value: 1}]}",
            ".windows[0].start: '0 8 * *' is not a cron expression",
        ),
        (
            "{windows: [{start: 0 0 8 * * *, end: 0 9 * * *, value: 1}]}",
            ".windows[0].start: '0 0 8 * * *' is not a cron",
        ),
        ("{windows: [{start: 0 8 * * *, end: 0 25 * * *, value: 1}]}", ".windows[0].end: '0 25 * * *' is not a cron"),
        ("{windows: [{start: 0 0 30 2 *, end: 0 9 * * *, value: 1}]}", ".windows[0].start: '0 0 30 2 *'"),
        (
            "{windows: [{start: '0 0 */31 * MON#5', end: 0 9 * * *, value: 1}]}",
            ".windows[0].start: '0 0 */31 * MON#5' never matches a day",
        ),
        ("{windows: [{start: 0 8 * * *, end: 0  8 * * *, value: 1}]}", ".windows[0].end: a window cannot end when it"),
        ("{windows: [{start: '* * * * *', end: 0 9 * * *, value: 1}]}", ".windows: they start 1440 times a day"),
        ("{windows: [{start: 0 8 * * *, end: 0 9 * * *}]}", ".windows[0].value: this key is required"),
        ("{windows: [{start: 0 8 * * *, end: 0 9 * * *, value: -1}]}", ".windows[0].value: must be at least 0, got -1"),
        ("{windows: [{start: 0 8 * * *, end: 0 9 * * *, value: x}]}", ".windows[0].value: not a number: 'x'"),
        ("{windows: [{start: 0 8 * * *, end: 0 9 * * *, value: [1]}]}", ".windows[0].value: expected text, got a list"),
        ("{windows: [{start: 0 8 * * *, end: 0 9 * * *, value: 1, ramp: 48h}]}", ".windows[0].ramp: must be between"),
        ("{dates: [{from: tomorrow, until: 2026-01-01, value: 1}]}", ".dates[0].from: 'tomorrow' is not a time"),
        ("{dates: [{from: 2026-01-02, until: 2026-01-02, value: 1}]}", ".dates[0].until: it must be later than from"),
        ("{dates: [{from: 0001-01-01, until: 2026-01-02, value: 1}]}", ".dates[0].from: the year must be between 1970"),
        (
            f"{{windows: [{'{start: 0 8 1 1 *, end: 0 9 1 1 *, value: 1}, ' * 65}]}}",
            ".windows: there can be 64, and these are 65",
        ),
        (
            f"{{dates: [{'{from: 2026-01-01, until: 2026-01-02, value: 1}, ' * 65}]}}",
            ".dates: there can be 64, and these are 65",
        ),
        ("{holidays: {}}", ".holidays: expected either file or calendar"),
        ("{holidays: {calendar: hello}}", ".holidays.calendar: this is not an iCalendar"),
        ("{holidays: {file: a.ics}}", ".holidays.file: only the rules file can name a file"),
        ("{window: []}", ": unknown key `window`"),
        ("8-18", ": expected a mapping"),
    ],
)
def test_invalid_schedule_is_an_error_that_names_the_key(schedule: str, message: str) -> None:
    with pytest.raises(RulesError) as error:
        parse_rules(f"externalRules: [{{name: a, schedule: {schedule}}}]", source="rules.yaml")
    assert f"rules.yaml: externalRules[0].schedule{message}" in str(error.value)


def test_file_with_holidays_is_read_beside_the_rules_file(tmp_path: Path) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text("externalRules: [{name: a, schedule: {default: 1, holidays: {file: days.ics, value: 3}}}]")
    with pytest.raises(RulesError, match=r"schedule.holidays.file: .*days.ics: cannot be read"):
        load_rules(rules)
    (tmp_path / "days.ics").write_text(CHRISTMAS)
    before = load_rules(rules)
    assert before.other_files == (tmp_path / "days.ics",)
    [rule] = before.external
    assert isinstance(rule, ScheduleRule)
    assert rule.schedule.milli_at(datetime(2026, 12, 26, tzinfo=ZoneInfo("UTC")).timestamp()) == 3000
    assert rule.schedule.milli_at(datetime(2026, 12, 27, tzinfo=ZoneInfo("UTC")).timestamp()) == 1000
    (tmp_path / "days.ics").write_text(CHRISTMAS.replace("Christmas", "Xmas"))
    assert load_rules(rules).digest != before.digest


@pytest.mark.parametrize(
    ("section", "rule", "message"),
    [
        ("externalRules", "query: b, activation: {for: 2m}", "activation.threshold: this key is required"),
        ("externalRules", "query: b, activation: {threshold: 0}", "threshold: must be more than 0"),
        ("externalRules", "query: b, activation: {threshold: 5, for: 48h}", "for: must be between 1s and 24h"),
        ("externalRules", "query: b, activation: {threshold: 5, for: soon}", "activation.for"),
        ("rules", "query: b, resources: {pod: pod}, activation: {threshold: 5}", "activation is for external metrics"),
        ("externalRules", "query: b, schedule: {}", "externalRules[0]: unknown key `query`"),
        ("rules", "schedule: {}", "rules[0]"),
    ],
)
def test_keys_that_do_not_fit_a_schedule_or_an_activation_are_errors(section: str, rule: str, message: str) -> None:
    with pytest.raises(RulesError) as error:
        parse_rules(f"{section}: [{{name: a, {rule}}}]", source="rules.yaml")
    assert message in str(error.value)


async def test_schedule_is_served_without_prometheus(tmp_path: Path) -> None:
    prometheus = CannedPrometheus()
    rules = parse_rules("externalRules: [{name: floor, schedule: {default: 2.5}}]", source="rules.yaml")
    async with metrics_env(tmp_path, rules, prometheus) as env:
        with pytest.raises(StatusError):
            await env.external.values(external_request(metric="floor"))  # before the first relist
        await env.catalog.relist()
        assert env.catalog.snapshot.external == ("floor",)
        [value] = await env.external.values(external_request(metric="floor", namespace="any"))
        assert (value.milli, value.labels) == (2500, None)
        selector = LabelSelector.parse("queue=a")
        assert await env.external.values(external_request(metric="floor", selector=selector)) == []
    assert not prometheus.queries
