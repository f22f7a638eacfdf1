"""The `schedule` and `activation` of a rule as they are written, and from a `schedule` to a Schedule."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import msgspec

from adapter.rules.field_types import Duration, MilliValue, RequiredText, Section
from adapter.schedules.cron import instant, shared_cron
from adapter.schedules.holidays import Holidays, read_holidays
from adapter.schedules.schedule import MAX_STARTS_PER_DAY, STEPS, OneOff, Recurring, Schedule, Window

_MAX_WINDOWS = 64
_MAX_RAMP_SECONDS = 86_400
_MAX_INLINE_CALENDAR = 16 * 1024
_MAX_ACTIVATION_SECONDS = 86_400
_YEARS = range(1970, 2100)


class WindowSpec(Section, frozen=True, kw_only=True):
    """An entry of `windows`: from each match of a cron expression until the next match of the other."""

    start: RequiredText
    """Minute, hour, day of month, month, day of week: `0 8 * * 1-5`."""
    end: RequiredText
    """Likewise; not the same as `start`."""
    value: MilliValue
    """A number such as 12 or 2.5, at least 0."""
    ramp: Duration | None = None
    """How long the value rises before the start, and falls after the end, in seconds; at most a day."""


class DateSpec(Section, frozen=True, kw_only=True):
    """An entry of `dates`: a window that happens once."""

    from_: RequiredText = msgspec.field(name="from")
    """`2026-12-24T08:00` in the schedule's time zone, or with an offset: `2026-12-24T08:00+01:00`; or a day."""
    until: RequiredText
    """Likewise, and not included."""
    value: MilliValue
    """As in WindowSpec."""
    ramp: Duration | None = None
    """As in WindowSpec."""


class HolidaysSpec(Section, frozen=True, kw_only=True):
    """`holidays`: when windows do not hold. Either `file` or `calendar`."""

    file: Path | None = None
    """An iCalendar file; only in the rules file, whose directory a relative path begins at."""
    calendar: str = ""
    """The text of an iCalendar, at most 16 KiB."""
    value: MilliValue | None = None
    """The value on holidays; None for the default."""


class ScheduleSpec(Section, frozen=True, kw_only=True):
    """`schedule` of an external rule, and of a MetricRule."""

    timezone: RequiredText = "UTC"
    """A name of the IANA time zone database."""
    default: MilliValue = MilliValue(0)
    """The value where no window and no date holds."""
    windows: tuple[WindowSpec, ...] = ()
    """At most 64."""
    dates: tuple[DateSpec, ...] = ()
    """At most 64."""
    holidays: HolidaysSpec | None = None
    """When windows do not hold."""


class Activation(Section, frozen=True, kw_only=True):
    """`activation` of an external rule with a query: each value below the threshold is 0."""

    threshold: MilliValue
    """More than 0, in milli-units."""
    for_: Duration | None = msgspec.field(name="for", default=None)
    """How long a value must have been below the threshold before it is 0, in seconds; None: not at all."""

    def __post_init__(self) -> None:
        """Raise ValueError, which msgspec reports with the path."""
        if self.threshold <= 0:
            raise ValueError("threshold: must be more than 0; a value of 0 is 0 anyway")
        if self.for_ is not None and not 1 <= self.for_ <= _MAX_ACTIVATION_SECONDS:
            raise ValueError("for: must be between 1s and 24h")


class SpecError(ValueError):
    """`key` names the wrong part, such as `.windows[2].start`."""

    def __init__(self, key: str, why: object) -> None:
        super().__init__(str(why))
        self.key = key


ReadFile = Callable[[Path], str]
"""Returns the text of a file with holidays. Raises ValueError."""


def made_schedule(spec: ScheduleSpec, *, read_file: ReadFile | None) -> Schedule:
    """Return the schedule of a spec; `read_file` is None where files may not be named.

    Raises:
        SpecError: a part is invalid.
    """
    zone = _zone(spec.timezone)
    for key, count in (("windows", len(spec.windows)), ("dates", len(spec.dates))):
        if count > _MAX_WINDOWS:
            raise SpecError(f".{key}", f"there can be {_MAX_WINDOWS}, and these are {count}")
    windows = [_window(f".windows[{index}]", one, zone) for index, one in enumerate(spec.windows)]
    starts = sum(one.when.start.per_day for one in windows if isinstance(one.when, Recurring))
    if starts > MAX_STARTS_PER_DAY:
        raise SpecError(
            ".windows", f"they start {starts} times a day; together they may start {MAX_STARTS_PER_DAY} times"
        )
    windows += [_date(f".dates[{index}]", one, zone) for index, one in enumerate(spec.dates)]
    holidays = _holidays(spec.holidays, zone, read_file) if spec.holidays is not None else None
    value = spec.holidays.value if spec.holidays is not None else None
    return Schedule(
        zone=zone,
        default_milli=spec.default,
        windows=tuple(windows),
        holidays=holidays,
        holiday_milli=spec.default if value is None else value,
    )


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, KeyError) as error:  # zoneinfo raises an OSError for the name of a directory
        raise SpecError(".timezone", f"there is no time zone {name!r}; names are such as Europe/Berlin") from error


def _window(key: str, spec: WindowSpec, zone: ZoneInfo) -> Window:
    crons = {}
    for name, text in (("start", spec.start), ("end", spec.end)):
        try:
            crons[name] = shared_cron(text, zone)
        except ValueError as error:
            raise SpecError(f"{key}.{name}", error) from error
    if crons["start"] == crons["end"]:
        raise SpecError(f"{key}.end", "a window cannot end when it starts; for a value at all times use default")
    return Window(when=Recurring(**crons), milli=spec.value, step=_step(key, spec.ramp))


def _date(key: str, spec: DateSpec, zone: ZoneInfo) -> Window:
    span = (_instant(f"{key}.from", spec.from_, zone), _instant(f"{key}.until", spec.until, zone))
    if span[0] >= span[1]:
        raise SpecError(f"{key}.until", "it must be later than from")
    return Window(when=OneOff(span), milli=spec.value, step=_step(key, spec.ramp), on_holidays=True)


def _instant(key: str, text: str, zone: ZoneInfo) -> int:
    try:
        time = datetime.fromisoformat(text)
    except ValueError as error:
        raise SpecError(key, f"{text[:40]!r} is not a time such as 2026-12-24T08:00") from error
    if time.year not in _YEARS:
        raise SpecError(key, f"the year must be between {_YEARS[0]} and {_YEARS[-1]}")
    return instant(time.replace(microsecond=0), zone) if time.tzinfo is None else int(time.timestamp())


def _step(key: str, ramp: Duration | None) -> int:
    if ramp is None:
        return 0
    if not STEPS <= ramp <= _MAX_RAMP_SECONDS:
        raise SpecError(f"{key}.ramp", f"must be between {STEPS}s and 24h")
    return round(ramp / STEPS)


def _holidays(spec: HolidaysSpec, zone: ZoneInfo, read_file: ReadFile | None) -> Holidays:
    if bool(spec.calendar) == (spec.file is not None):
        raise SpecError(".holidays", "expected either file or calendar")
    if spec.file is not None and read_file is None:
        raise SpecError(".holidays.file", "only the rules file can name a file; write its text as `calendar`")
    if len(spec.calendar) > _MAX_INLINE_CALENDAR:
        raise SpecError(".holidays.calendar", f"longer than {_MAX_INLINE_CALENDAR} characters; leave out past years")
    key = ".holidays.calendar" if spec.file is None else ".holidays.file"
    try:
        text = spec.calendar if spec.file is None or read_file is None else read_file(spec.file)
        return read_holidays(text, zone)
    except ValueError as error:
        raise SpecError(key, error) from error
