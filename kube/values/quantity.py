"""Kubernetes quantities: `100m`, `1.5Gi`, `2e3`.

Metric values, HPA targets, resource requests and tolerances are quantities in the API. In Python they are integers of
thousandths ("milli-values"), as in the HPA controller of Kubernetes 1.36. Only this module converts them.

The smallest unit is a nano: parsing rounds away from zero to 1e-9, as in Kubernetes. So the exact value is an integer
of nanos, and everything but `as_float` is integer arithmetic. `kubectl` and the HPA status show quantities as the API
server formats them: most short texts survive a round trip, the others are rewritten in canonical form.

Two differences from Kubernetes are intended. Integers beyond 64 bits are clamped, where Kubernetes overflows silently.
Exponents beyond +-2048 and texts beyond 1024 characters are refused, where Kubernetes may compute for minutes.
"""

import enum
import math
import re
from dataclasses import dataclass

_MAX_TEXT = 1024
_MAX_EXPONENT = 2048
_MAX_INT64 = 2**63 - 1
_NANO = -9
# The fast path of Kubernetes' parser: with at most this many digits the number keeps its scale.
_SHORT_DECIMAL_DIGITS = 18
_SHORT_BINARY_DIGITS = 14

_WRONG_FORMAT = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
_WRONG_NUMBER = "unable to parse numeric part of quantity"
_WRONG_SUFFIX = "unable to parse quantity's suffix"

# More lenient than the expression in the message: the digits may be missing ("E" and "." are zero).
# Possessive quantifiers never backtrack, so no text makes it slow.
_SPLIT = re.compile(r"([+-]?+)0*+([0-9]*+)(?:\.([0-9]*+))?+([eEinumkKMGTP]*+[+-]?+[0-9]*+)")
_EXPONENT = re.compile(r"[eE]([+-]?[0-9]+)")


class QuantityError(ValueError):
    """Invalid quantity; with the API server's message."""


class Format(enum.Enum):
    """The format of the canonical form."""

    DECIMAL_SI = "DecimalSI"  # 12M
    BINARY_SI = "BinarySI"  # 12Mi
    DECIMAL_EXPONENT = "DecimalExponent"  # 12e6


_DECIMAL_SUFFIXES = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_DECIMAL_SUFFIX_OF = {exponent: suffix for suffix, exponent in _DECIMAL_SUFFIXES.items()}
_BINARY_SUFFIXES = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_BINARY_SUFFIX_OF = {exponent: suffix for suffix, exponent in _BINARY_SUFFIXES.items()} | {0: ""}


@dataclass(frozen=True, slots=True, eq=False)
class Quantity:
    """An exact decimal number with its format.

    Two quantities are equal when their values are: `1000m == 1`.
    """

    mantissa: int
    """The number is `mantissa * 10**exponent`, in the same scale as in Kubernetes (this determines the last bit of
    `as_float`)."""
    exponent: int
    """Power of ten, at least -9."""
    format: Format = Format.DECIMAL_SI
    """The suffixes of the canonical form."""
    spelling: str = ""
    """The parsed text, where Kubernetes keeps it; else empty."""
    long: bool = False
    """The text had too many digits for a 64-bit mantissa, so Kubernetes has a big decimal, and rounds it
    differently."""

    @classmethod
    def parse(cls, text: str) -> "Quantity":
        """Parse a quantity. Upstream: resource.ParseQuantity.

        Raises:
            QuantityError: with the API server's message.
        """
        if not text:
            raise QuantityError(_WRONG_FORMAT)
        if len(text) > _MAX_TEXT:
            raise QuantityError(f"quantities must not be longer than {_MAX_TEXT} characters")
        parts = _SPLIT.fullmatch(text)
        if parts is None:
            raise QuantityError(_WRONG_FORMAT)
        sign, whole, fraction, suffix = parts[1], parts[2] or "0", parts[3] or "", parts[4]
        exponent, format_ = _interpret_suffix(suffix)
        magnitude = int(whole + fraction)
        signed = -magnitude if sign == "-" else magnitude

        if format_ is Format.BINARY_SI:
            digits_left = _SHORT_BINARY_DIGITS - len(whole) - exponent * 3 // 10
            if digits_left >= 0 and not fraction:
                survives = magnitude % 8 != 0
                return cls(signed << exponent, 0, format_, text if survives else "")
        elif len(whole) + len(fraction) <= _SHORT_DECIMAL_DIGITS and exponent - len(fraction) >= _NANO:
            scale = exponent - len(fraction)
            digits = whole + fraction
            survives = scale % 3 == 0 and not digits.endswith("000") and digits[0] != "0"
            return cls(signed, scale, format_, text if survives else "")

        if not any(character.isdigit() for character in text[: len(text) - len(suffix)]):
            raise QuantityError(_WRONG_NUMBER)
        return _parsed_long(signed, fraction_digits=len(fraction), exponent=exponent, format_=format_)

    @classmethod
    def from_milli(cls, milli: int, format: Format = Format.DECIMAL_SI) -> "Quantity":  # noqa: A002 - the field's name
        """Return the quantity of `milli` thousandths."""
        return cls(milli, -3, format)

    @property
    def sign(self) -> int:
        """-1, 0 or 1."""
        return (self.mantissa > 0) - (self.mantissa < 0)

    def milli_value(self) -> int:
        """Return the value in thousandths, rounded away from zero and clamped to 64 bits."""
        return self._rounded(10**6)

    def value(self) -> int:
        """Return the value in units, rounded away from zero and clamped to 64 bits."""
        return self._rounded(10**9)

    def as_float(self) -> float:
        """Return the double that Kubernetes computes tolerances with. Upstream: Quantity.AsApproximateFloat64.

        It is the mantissa times a power of ten, and so not always the nearest double: 0.018 gives 0.018000000000000002.
        Too large quantities give infinity.
        """
        if self.mantissa == 0:
            return 0.0
        try:
            base = float(self.mantissa)
        except OverflowError:
            return math.inf if self.mantissa > 0 else -math.inf  # copysign has the same limit as float
        return base * _power_of_ten(self.exponent)

    def _nanos(self) -> int:
        scale: int = 10 ** (self.exponent - _NANO)
        return self.mantissa * scale

    def _rounded(self, divisor: int) -> int:
        nanos = self._nanos()
        if self.long and nanos < 0:
            # Kubernetes truncates a big decimal and adds one, even below zero: -8.3181Gi is -8931491866213 thousandths.
            # HPA decisions depend on this.
            whole, rest = divmod(-nanos, divisor)
            return _clamp_int64(-whole + (rest != 0))
        return _clamp_int64(_divide_away_from_zero(nanos, divisor))

    def _canonical(self) -> str:
        nanos = self._nanos()
        if nanos == 0:
            return "0"
        format_ = self.format
        if format_ is Format.BINARY_SI:
            units, rest = divmod(nanos, 10**9)
            if rest == 0 and abs(units) >= 1024:
                return _canonical_binary(units)
            # Binary suffixes are for integers only.
            format_ = Format.DECIMAL_SI

        digits = str(nanos)
        zeros = len(digits) - len(digits.rstrip("0"))
        zeros -= zeros % 3
        digits, exponent = digits[: len(digits) - zeros], zeros + _NANO
        if format_ is Format.DECIMAL_SI:
            # Kubernetes 1.36 has no suffix above E and writes none, which loses the exponent ("1000E" is "1").
            return digits + _DECIMAL_SUFFIX_OF.get(exponent, "")
        return f"{digits}e{exponent}" if exponent else digits

    def __str__(self) -> str:
        return self.spelling or self._canonical()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Quantity):
            return NotImplemented
        return self._nanos() == other._nanos()

    def __hash__(self) -> int:
        return hash(self._nanos())


def milli_text(milli: int) -> str:
    """Return `str(Quantity.from_milli(milli))`, much faster."""
    if milli % 1000:
        return f"{milli}m"
    units = milli // 1000
    return str(units) if units % 1000 else str(Quantity.from_milli(milli))


def _interpret_suffix(suffix: str) -> tuple[int, Format]:
    """Return the exponent of a suffix, of ten, or of two for BINARY_SI."""
    if suffix in _DECIMAL_SUFFIXES:
        return _DECIMAL_SUFFIXES[suffix], Format.DECIMAL_SI
    if suffix in _BINARY_SUFFIXES:
        return _BINARY_SUFFIXES[suffix], Format.BINARY_SI
    written = _EXPONENT.fullmatch(suffix)
    if written is None:
        raise QuantityError(_WRONG_SUFFIX)
    exponent = int(written[1])
    if abs(exponent) > _MAX_EXPONENT:
        raise QuantityError(_WRONG_SUFFIX)
    return exponent, Format.DECIMAL_EXPONENT


def _parsed_long(signed: int, *, fraction_digits: int, exponent: int, format_: Format) -> Quantity:
    """Return the quantity of a number with too many digits for the fast path, in nanos."""
    if format_ is Format.BINARY_SI:
        signed <<= exponent
        exponent = 0
    shift = exponent - fraction_digits - _NANO
    nanos = signed * 10**shift if shift >= 0 else _divide_away_from_zero(signed, 10**-shift)
    if format_ is Format.BINARY_SI:
        most = _MAX_INT64 * 10**9
        nanos = max(-most, min(most, nanos))
        if 0 < abs(nanos) < 10**9:
            format_ = Format.DECIMAL_SI
    return Quantity(nanos, _NANO, format_, long=True)


def _canonical_binary(units: int) -> str:
    exponent = 0
    while units % 1024 == 0:
        units //= 1024
        exponent += 10
    return f"{units}{_BINARY_SUFFIX_OF[exponent]}"


def _divide_away_from_zero(number: int, divisor: int) -> int:
    quotient = -(-abs(number) // divisor)
    return -quotient if number < 0 else quotient


def _clamp_int64(number: int) -> int:
    return max(-_MAX_INT64 - 1, min(_MAX_INT64, number))


def _power_of_ten(exponent: int) -> float:
    """Return 10**exponent as Go's math.Pow10 does: the product of two exact table entries, or a quotient below one."""
    if exponent > 308:
        return math.inf
    if exponent < 0:
        return 1 / float(f"1e{-exponent}")  # never below 1e-9
    high, low = divmod(exponent, 32)
    return float(f"1e{high * 32}") * float(f"1e{low}")
