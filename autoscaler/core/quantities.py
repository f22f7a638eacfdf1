"""Quantities in HPAs and pods, of which many are equal: conversions are cached."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from kube.values.quantity import Format, Quantity, milli_text

_CACHED: Final = 4096


class CanonicalQuantity(str):
    """A quantity as the API server returns it. Equal texts are equal quantities."""

    __slots__ = ()

    @property
    def quantity(self) -> Quantity:
        """The number."""
        return Quantity.parse(self)

    @property
    def milli(self) -> int:
        """The number in thousandths, rounded away from zero."""
        return milli_value(self)


@lru_cache(_CACHED)
def canonical_quantity(text: str) -> CanonicalQuantity:
    """Return `text` in canonical form.

    Raises:
        QuantityError: with the API server's message.
    """
    return CanonicalQuantity(Quantity.parse(text))


@lru_cache(_CACHED)
def milli_value(text: str) -> int:
    """Return a quantity in thousandths, rounded away from zero.

    Raises:
        QuantityError: with the API server's message.
    """
    return Quantity.parse(text).milli_value()


@lru_cache(_CACHED)
def quantity_text(milli: int, *, binary: bool) -> str:
    """Format a milli-value as the API server would return it after a write; binary: with Ki, Mi, ... if it is whole."""
    is_whole = binary and milli % 1_024_000 == 0
    return str(Quantity.from_milli(milli, Format.BINARY_SI)) if is_whole else milli_text(milli)
