"""Lists of series, reduced while they arrive to one object per name, with all labels of its series.

The values of labels are dropped, since discovery needs only their names. So memory never holds an object per series.
"""

from __future__ import annotations

import math
import re
import sys
from dataclasses import dataclass

import msgspec

from adapter.gil import releasing_gil
from adapter.prometheus.errors import PrometheusBadResponse, PrometheusResultError
from adapter.prometheus.long_responses import UNREADABLE, ListReader, unreadable
from adapter.prometheus.results import Notices
from adapter.promql import label_text
from adapter.settings import DEFAULTS

# The bytes of a name with its set of labels, without the text, and those of each label in the set.
_NAME_BYTES = 400
_LABEL_BYTES = 100


@dataclass(frozen=True, slots=True)
class Series:
    """All series of one name, and all their labels."""

    name: str
    labels: frozenset[str]


class _Listing(Notices, kw_only=True):
    data: list[dict[str, str]]
    status: str = "success"


_listing = msgspec.json.Decoder(_Listing)
_entries = msgspec.json.Decoder(list[dict[str, str]])


class Names(Notices, kw_only=True):
    """The names of labels, or the values of one."""

    data: list[str]


_names = msgspec.json.Decoder(Names)


def decode_names(body: bytes) -> Names:
    """Decode a list of names; raises PrometheusBadResponse."""
    try:
        return _names.decode(body)
    except UNREADABLE as error:
        raise unreadable(error) from error


def with_label(selector: str, label: str) -> str:
    """Return a selector of those of its series that have a label."""
    head, brace, _ = selector.rstrip().rpartition("}")
    head, matcher = (head or selector).rstrip().rstrip(","), f'{label_text(label)}!=""'
    return f"{head}{',' * (head[-1:] != '{')}{matcher}}}" if brace else f"{selector}{{{matcher}}}"


class SeriesReader(ListReader[tuple[Series, ...]]):
    """Decodes the response to a series request. Series without a name are ignored.

    Attributes:
        notices: the response's warnings, after `finish`.
    """

    start = re.compile(rb'"data"\s*:\s*\[')
    # Inside a string this cannot match: only white space or punctuation follows a closing quote.
    next = re.compile(rb'\}\s*,\s*(\{)\s*"[^\s,:\]}"]')

    def __init__(self, *, max_series: float = math.inf, max_names: int = DEFAULTS.prometheus.names) -> None:
        """A list of more than `max_series` is a PrometheusResultError, one of more than `max_names` a bad response."""
        super().__init__()
        self._max_names = max_names
        self._left = max_series
        self._max_series = max_series
        self._labels: dict[str, set[str]] = {}
        self.notices = Notices()

    def take(self, entries: bytes) -> int:
        """See ListReader.take."""
        return self._add(_entries.decode(entries))

    def finish(self) -> tuple[Series, ...]:
        """Return the series, sorted by name; see ListReader.finish."""
        try:
            listing = _listing.decode(self.rest)
        except UNREADABLE as error:
            raise unreadable(error) from error
        if listing.status != "success":
            raise unreadable("it is an error with the status of a success")
        self._add(listing.data)
        self.notices = listing.alone()
        return tuple(Series(name, frozenset(labels)) for name, labels in releasing_gil(sorted(self._labels.items())))

    def _add(self, entries: list[dict[str, str]]) -> int:
        self._left -= len(entries)
        if self._left < 0:
            raise PrometheusResultError(
                f"more than {self._max_series} series, the limit of --tenant-max-samples; select fewer with seriesQuery"
            )
        memory = 0
        for entry in entries:
            name = entry.pop("__name__", "")
            if not name:
                continue
            labels = self._labels.get(name)
            if labels is None:
                if len(self._labels) >= self._max_names:
                    raise PrometheusBadResponse(
                        f"the series have more than {self._max_names} names; select fewer with the rule's seriesQuery"
                    )
                labels = self._labels[name] = set()
                memory += _NAME_BYTES + len(name.encode())
            for label in entry.keys() - labels:
                labels.add(sys.intern(label))
                memory += _LABEL_BYTES + len(label.encode())
        return memory
