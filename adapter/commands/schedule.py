"""The command `schedule`: what the schedules of a file will do, as a table of the changes of the value."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path

import click
import msgspec

from adapter.commands.printing import output_option, print_json, print_lines
from adapter.rules import RulesError, ScheduleRule
from adapter.rules.field_types import window
from adapter.rules.manifests import load_manifest_rules
from adapter.schedules.cron import instant
from adapter.schedules.schedule import Change
from kube.process.flags import FILE, Parsed
from kube.values.quantity import milli_text

_MAX_DAYS = 400
_YEARS = range(1970, 2100)
_MAX_CHANGES = 10_000


class Course(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """What a schedule does in a period, as `-o json` prints it."""

    rule: str
    """Where it is: externalRules[0], or the object."""
    metric: str
    """Its metric."""
    timezone: str
    """Its time zone."""
    start: datetime
    """The beginning of the period."""
    value: str
    """The value at the beginning, a quantity."""
    changes: tuple[PlannedChange, ...]
    """The changes after it, with times in the time zone."""


class PlannedChange(msgspec.Struct, frozen=True):
    """From `at` on the value is `value`, a quantity."""

    at: datetime
    value: str


def _moment(text: str) -> datetime:
    found = datetime.fromisoformat(text)
    if found.year not in _YEARS:
        raise ValueError(f"the year must be between {_YEARS[0]} and {_YEARS[-1]}")
    return found


@click.command()
@click.option(
    "--config", type=FILE, required=True, help="The rules file, or a ConfigMap, MetricRule or chart values with rules."
)
@click.option("--next", "length", type=Parsed("duration", window), default="14d", help="Length of the preview.")
@click.option(
    "--from",
    "start",
    type=Parsed("time", _moment),
    help="Start of the preview, such as 2026-03-28 or 2026-03-28T12:00; in the schedule's time zone.  [default: now]",
)
@click.option("--metric", default="", show_default=False, help="Show this metric only.")
@output_option
def schedule(*, config: Path, length: float, start: datetime | None, metric: str, output: str) -> None:
    """Show what the schedules of a rules file will do.

    Needs no Prometheus and no cluster.
    """
    if not 0 < length <= _MAX_DAYS * 86_400:
        raise click.UsageError(f"--next must be between 1s and {_MAX_DAYS}d")
    try:
        found = load_manifest_rules(config)
    except RulesError as error:
        raise click.ClickException(str(error)) from error
    rules = [rule for one in found for rule in one.rules.external if isinstance(rule, ScheduleRule)]
    rules = [rule for rule in rules if metric in ("", rule.metric)]
    if not rules:
        raise click.ClickException(f"{config}: there is no schedule{f' of {metric}' if metric else ''} in it")
    now = time.time()
    courses = []
    for rule in rules:
        first = now if start is None else _seconds(start, rule)
        changes = [*itertools.islice(rule.schedule.changes(first, first + length), _MAX_CHANGES)]
        courses.append(_course(rule, first, changes))
        if output == "text":
            print_lines(_preview(rule, first, changes))
    if output == "json":
        print_json(courses)


def _seconds(start: datetime, rule: ScheduleRule) -> float:
    return start.timestamp() if start.tzinfo is not None else instant(start, rule.schedule.zone)


def _preview(rule: ScheduleRule, start: float, changes: Sequence[Change]) -> Iterator[str]:
    """Yield the lines of a preview."""
    value = rule.schedule.milli_at(start)
    yield f"{rule.metric} ({rule.key}), times in {rule.schedule.zone.key}"
    yield ""
    yield f"{_shown(start, rule)}  {milli_text(value)}"
    yield from _table(rule, value, changes)
    if len(changes) == _MAX_CHANGES:
        yield "... and more"
    yield ""


def _course(rule: ScheduleRule, start: float, changes: Iterable[Change]) -> Course:
    zone = rule.schedule.zone
    return Course(
        rule=rule.key,
        metric=rule.metric,
        timezone=zone.key,
        start=datetime.fromtimestamp(int(start), zone),
        value=milli_text(rule.schedule.milli_at(start)),
        changes=tuple(
            PlannedChange(datetime.fromtimestamp(change.at, zone), milli_text(change.milli)) for change in changes
        ),
    )


def _table(rule: ScheduleRule, value: int, changes: Iterable[Change]) -> Iterator[str]:
    """Yield a line for each change; one for the steps of a ramp."""
    longest_step = max((window.step for window in rule.schedule.windows), default=0)
    runs: list[list[Change]] = []
    before, rising = value, False
    for change in changes:
        same_way = rising == (change.milli > before)
        if runs and same_way and change.at - runs[-1][-1].at <= longest_step:
            runs[-1].append(change)
        else:
            runs.append([change])
        before, rising = change.milli, change.milli > before
    for run in runs:
        first, last = run[0], run[-1]
        until = f"{datetime.fromtimestamp(last.at, rule.schedule.zone):%H:%M}"
        more = f" to {milli_text(last.milli)} in {len(run)} steps until {until}" if len(run) > 1 else ""
        yield f"{_shown(first.at, rule)}  {milli_text(first.milli)}{more}"


def _shown(at: float, rule: ScheduleRule) -> str:
    return f"{datetime.fromtimestamp(at, rule.schedule.zone):%a %Y-%m-%d %H:%M %Z}"
