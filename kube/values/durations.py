"""Durations in Go's syntax: `30s`, `1m30s`, `1.5h`.

Flags that have the names of prometheus-adapter's and kube-controller-manager's flags take the same values. In Python a
duration is a float of seconds; parsing computes in integer nanoseconds, so it is exact.
"""

import re

_MAX_TEXT = 64
_MAX_NANOSECONDS = 2**63 - 1
_NANOSECONDS = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,  # U+00B5, micro sign
    "μs": 10**3,  # U+03BC, Greek letter mu; Go accepts both
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
}
_PART = re.compile(r"([0-9]+)?(?:\.([0-9]*))?([^0-9.]*)")


class DurationError(ValueError):
    """Invalid duration; the message has an example of a valid one.

    Attributes:
        what: Go's message, without that hint.
    """

    def __init__(self, what: str, *, hint: str = "") -> None:
        super().__init__(f"{what}: {hint}" if hint else what)
        self.what = what


def parse_duration(text: str) -> float:
    """Return the seconds of a duration such as `1h15m30.5s`. Go: time.ParseDuration.

    Raises:
        DurationError: it is invalid, or longer than Go can represent (292 years).
    """
    unsigned = text[1:] if text[:1] in ("+", "-") else text
    if unsigned == "0":
        return 0.0
    if not unsigned or len(text) > _MAX_TEXT:
        raise _not_a_duration(text)
    nanoseconds = 0
    position = 0
    while position < len(unsigned):
        part = _PART.match(unsigned, position)
        if part is None or not (part[1] or part[2]):
            raise _not_a_duration(text)
        whole, fraction, unit = part[1] or "", part[2] or "", part[3]
        if not unit:
            raise DurationError(f'missing unit in duration "{text}"', hint=f"write for example {unsigned}s")
        if unit not in _NANOSECONDS:
            raise DurationError(f'unknown unit "{unit}" in duration "{text}"', hint="units are ns, us, ms, s, m and h")
        nanoseconds += int(whole + fraction) * _NANOSECONDS[unit] // 10 ** len(fraction)
        position = part.end()
    if nanoseconds > _MAX_NANOSECONDS:
        raise DurationError(f'duration "{text}" is too long')
    return (-nanoseconds if text[0] == "-" else nanoseconds) / 10**9


def format_duration(seconds: float) -> str:
    """Return seconds in Go's notation, to the nanosecond: 90 is `1m30s`, 0.25 is `250ms`."""
    nanoseconds = round(seconds * 10**9)
    sign = "-" if nanoseconds < 0 else ""
    nanoseconds = abs(nanoseconds)
    if nanoseconds == 0:
        return "0s"
    if nanoseconds < 10**9:
        unit = "ns" if nanoseconds < 10**3 else "µs" if nanoseconds < 10**6 else "ms"
        return sign + _decimal(nanoseconds, _NANOSECONDS[unit]) + unit
    minutes, rest = divmod(nanoseconds, 60 * 10**9)
    text = _decimal(rest, 10**9) + "s"
    if minutes:
        hours, minutes = divmod(minutes, 60)
        text = (f"{hours}h" if hours else "") + f"{minutes}m" + text
    return sign + text


def _decimal(number: int, divisor: int) -> str:
    whole, rest = divmod(number, divisor)
    fraction = f"{rest:0{len(str(divisor)) - 1}}".rstrip("0") if rest else ""
    return f"{whole}.{fraction}" if fraction else str(whole)


def _not_a_duration(text: str) -> DurationError:
    shown = text if len(text) <= _MAX_TEXT else text[:_MAX_TEXT] + "..."
    return DurationError(f'invalid duration "{shown}"', hint="write a number and a unit, such as 30s, 1m30s or 500ms")
