"""Series as discovery needs them: names and labels, without values."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from adapter.prometheus.errors import PrometheusBadAnswer


@dataclass(frozen=True, slots=True)
class Series:
    """All series of one name: every label that any of them has."""

    name: str
    labels: frozenset[str]


class _Listing(msgspec.Struct):
    data: list[dict[str, str]]
    status: str = "success"


_listing = msgspec.json.Decoder(_Listing)


def read_series(body: bytes) -> tuple[Series, ...]:
    """Decode what SeriesReducer left of a body: no series, if it decoded them all; those without a name do not count.

    Raises:
        PrometheusBadAnswer: it is no list of series.
    """
    try:
        listing = _listing.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise PrometheusBadAnswer(f"Prometheus' answer cannot be read: {error}") from error
    if listing.status != "success":
        raise PrometheusBadAnswer("Prometheus' answer cannot be read: it is an error with the status of a success")
    named = {entry["__name__"]: entry for entry in listing.data if "__name__" in entry}
    return tuple(Series(name, frozenset(entry.keys() - {"__name__"})) for name, entry in sorted(named.items()))
