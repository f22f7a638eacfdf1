"""Cron expressions of KEDA, which robfig/cron reads, in Debian's form."""

from __future__ import annotations

_FIELDS = 5
_DAY_OF_MONTH, _DAY_OF_WEEK = 2, 4


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
