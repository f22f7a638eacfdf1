"""Cron expressions of KEDA, which robfig/cron reads, in Debian's form."""

from __future__ import annotations

from datetime import datetime, timedelta

from cronsim import CronSim, CronSimError

_FIELDS = 5
_DAY_OF_MONTH, _DAY_OF_WEEK = 2, 4
_ANY_TIME = datetime(2026, 1, 1)  # noqa: DTZ001 - without a time zone there are no clock changes
_CYCLES = 20


def debian_cron(text: str) -> str:
    """Return the expression for Debian's cron that means the same.

    Raises:
        ValueError: there is none; the message says why.
    """
    fields = text.replace("?", "*").split()
    if len(fields) != _FIELDS:
        raise ValueError(f"{text!r} is no cron expression of five fields")
    days = fields[_DAY_OF_MONTH], fields[_DAY_OF_WEEK]
    # Either may match in KEDA; in Debian's cron both must, because the field starts with a star.
    if all(day != "*" for day in days) and any(day.startswith("*") for day in days):
        raise ValueError(f"in {text!r}, write the step of days as a list, such as 1,3,5")
    return " ".join(fields)


def repeats(start: str, end: str) -> bool:
    """Return True if the start matches again before the end does, or the end again before the next start.

    KEDA's trigger is active from the last start until the last end, a window from the first start until the first end.
    """
    try:
        before, first, second = _ANY_TIME, start, end
        for _ in range(_CYCLES):
            matched = next(CronSim(first, before))
            if next(CronSim(first, matched)) < next(CronSim(second, matched - timedelta(seconds=1))):
                return True
            before, first, second = matched, second, first
    except (CronSimError, StopIteration):
        pass  # the reader of schedules says what is wrong
    return False
