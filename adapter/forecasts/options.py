"""The `forecast` of a rule, and of `replay --forecast`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final
from zoneinfo import ZoneInfo

from adapter.promql.literals import parse_duration

_MINUTE: Final = 60
_HOUR: Final = 3600
_DAY: Final = 24 * _HOUR
_GATED_HISTORY: Final = 5 * _DAY
_NUMBER: Final = re.compile(r"[0-9]{1,6}(?:\.[0-9]{1,6})?")
_OFF: Final = ("off", "false", "no", "0", "0%")


def number_text(value: float) -> str:
    """Return a number with three digits at least."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastOptions:
    """What is forecast, and from what; see `read_options` for limits."""

    horizon: float
    """The forecast is the highest load expected within this time from now, in seconds: how long a pod needs to become
    ready."""
    history: float = 14 * _DAY
    """How much of the past is used, in seconds."""
    timezone: str = "UTC"
    """Whose clock the load follows: a name of the IANA time zone database."""
    ceiling: float = 1.1
    """The forecast is at most this many times the highest load of the last 7 days at that time of day; more, in
    proportion, once the load has been above these days for most of an hour."""
    gate: float = 0.03
    """The share of pod-hours that forecasts must have saved in the last days to be served; 0: always served."""
    text: str = field(default="", compare=False)
    """As it was given, such as `horizon: 5m, timezone: Europe/Berlin`."""

    @property
    def zone(self) -> ZoneInfo:
        """The time zone."""
        return ZoneInfo(self.timezone)


def read_options(entries: Mapping[str, object]) -> ForecastOptions:
    """Return the options of `{horizon: 5m, history: 2w, timezone: Europe/Berlin, ceiling: 1.1, gate: 3%}`.

    Only `horizon` is required. Values are text or numbers.

    Raises:
        ValueError: an option is invalid; the message begins with its key.
    """
    values: dict[str, object] = {"text": ", ".join(f"{key}: {value}" for key, value in entries.items())}
    for key, value in entries.items():
        if key not in _READERS:
            raise ValueError(f"unknown key `{key[:40]}`; there are {', '.join(_READERS)}")
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise ValueError(f"{key}: expected text or a number")
        try:
            values[key] = _READERS[key](str(value).strip())
        except ValueError as error:
            raise ValueError(f"{key}: {error}") from error
    if "horizon" not in values:
        raise ValueError("horizon: this key is required: how long a new pod needs to become ready, such as 5m")
    options = ForecastOptions(**values)  # type: ignore[arg-type]
    if options.gate and options.history < _GATED_HISTORY:
        raise ValueError("history: the gate needs 3 days for a model and 2 to replay: at least 5d, or `gate: off`")
    return options


def _duration(low: float, high: float, meaning: str) -> Callable[[str], float]:
    def read(text: str) -> float:
        seconds = parse_duration(text)
        if not low <= seconds <= high:
            raise ValueError(f"must be between {meaning}, got {text}")
        return seconds

    return read


def _timezone(text: str) -> str:
    try:
        ZoneInfo(text)
    except (ValueError, OSError, KeyError) as error:  # zoneinfo raises an OSError for the name of a directory
        raise ValueError(f"there is no time zone {text[:40]!r}; names are such as Europe/Berlin") from error
    return text


def _ceiling(text: str) -> float:
    if not _NUMBER.fullmatch(text) or not 1 <= float(text) <= 10:
        raise ValueError(f"must be a number between 1 and 10, such as 1.1, got {text[:40]}")
    return float(text)


def _gate(text: str) -> float:
    if text.lower() in _OFF:
        return 0.0
    number = text.removesuffix("%").rstrip()
    if not text.endswith("%") or not _NUMBER.fullmatch(number) or float(number) > 50:
        raise ValueError(f"must be a percentage up to 50%, such as 3%, or off; got {text[:40]}")
    return float(number) / 100


_READERS: Final[Mapping[str, Callable[[str], object]]] = {
    "horizon": _duration(_MINUTE, 2 * _HOUR, "1m and 2h"),
    "history": _duration(3 * _DAY, 28 * _DAY, "3d and 4w"),
    "timezone": _timezone,
    "ceiling": _ceiling,
    "gate": _gate,
}
