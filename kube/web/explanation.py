"""Where a metric comes from, as the adapter explains it: in its JSON, on terminals, and on the pages of both processes.

The template of the pages is `explanation.html`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Final

import msgspec

from kube.values.printable import on_one_line

_Link = Annotated[str, msgspec.Meta(pattern="^https?://")]
_MILLI: Final = re.compile("(-?[0-9]{1,30})m")
_NO_FRACTION: Final = 1000


class _Json(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    pass


class Value(_Json, frozen=True, omit_defaults=True):
    """A value as a quantity."""

    of: str
    """The object, "namespace/name", or the labels of the series."""
    value: str
    latest: str = ""
    """What it would be over the last two scrapes; "" if the query has no rate."""

    @property
    def text(self) -> str:
        """The value for people: `585708m` is 585.7; others remain as they are."""
        return _text(self.value)

    @property
    def latest_text(self) -> str:
        """How `latest` is shown after the value."""
        return f"({_text(self.latest)} over the last two scrapes)" if self.latest else ""


def _text(quantity: str) -> str:
    found = _MILLI.fullmatch(quantity)
    if found is None:
        return quantity
    value = int(found[1]) / 1000
    return f"{value:.4g}" if abs(value) < _NO_FRACTION else f"{value:.0f}"


class Example(_Json, frozen=True):
    """The value of a metric for one object, requested as the HPA controller does."""

    of: str = ""
    """The object, or the namespace of an external metric; "" if none has a series."""
    queries: tuple[str, ...] = ()
    """The sent queries."""
    values: tuple[Value, ...] = ()
    problem: str = ""
    """Why there is no value."""
    note: str = ""
    """The next change of a schedule."""
    impossible: bool = False
    """The label's value is not a valid name of such an object."""
    existing: str = ""
    """Which of the query's series exist, if it finds nothing."""
    several: str = ""
    """If the query has several values for the object, a sentence about them with the corrected query."""
    samples: str = ""
    long_range: str = ""

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why there is no value."""
        return tuple(filter(None, (self.problem, self.existing)))


class Explanation(_Json, frozen=True):
    """The result of `explain`: where a metric comes from, its value, or why there is none."""

    target: str
    """The metric: "pods/packets_per_second", "external/queue_depth"."""
    rule: str = ""
    series: str = ""
    forwarded_to: str = ""
    """The adapter of forwardExternal, if the value comes from there: "NAME of forwardExternal (URL)"."""
    hidden: tuple[str, ...] = ()
    """Rules that also make the metric but are overridden by a later rule."""
    example: Example | None = None
    reasons: tuple[str, ...] = ()
    suggestions: tuple[str, ...] = ()
    """Metrics with similar names."""
    hidden_objects: tuple[str, ...] = ()
    """Objects that also make it; rules of the file come first, then the oldest object."""
    forecasts: tuple[str, ...] = ()
    """What is expected, and why, if its rule has `forecast`."""
    graphs: tuple[_Link, ...] = ()
    """For each query of the example the URL of its graph in Prometheus, if that has an address for users."""

    @property
    def headline(self) -> str:
        """Where the metric comes from, in one sentence."""
        if self.rule:
            of = f" of series {self.series}" if self.series else ""
            return f"{self.target} is made by {self.rule}{of}"
        if self.forwarded_to:
            return f"{self.target} is made by no rule, and the adapter {self.forwarded_to} has it"
        return f"{self.target} not found"

    @property
    def overridden(self) -> tuple[str, ...]:
        """A sentence for each rule or object that also makes the metric."""
        losers = dict.fromkeys(self.hidden, "the later rule wins")
        losers |= dict.fromkeys(self.hidden_objects, "the rules file wins, then the oldest object")
        return tuple(f"{name} also makes it and loses: {why}" for name, why in losers.items())

    @property
    def has_value(self) -> bool:
        """True if there is a value."""
        return self.example is not None and bool(self.example.values)

    def lines(self, *, values: bool = True) -> Iterator[str]:
        """Yield the explanation as text, with or without its `values`."""
        yield self.headline
        yield from (f"  {text}" for text in self.overridden)
        if (example := self.example) is not None:
            yield from (f"  query  {on_one_line(query)}" for query in example.queries)
            yield from (f"  graph  {graph}" for graph in self.graphs)
            if values:
                yield from (f"  value  {one.value}  {one.of}  {one.latest_text}".rstrip() for one in example.values)
            if example.samples:
                yield f"  {example.samples}"
            if example.several:
                yield f"  error: {example.several}"
            if example.long_range:
                yield f"  advice: {example.long_range}"
            if example.note:
                yield f"  {example.note}"
        for reason in self.reasons:
            yield f"  {'-' if example is None else 'no value:'} {reason}"
        for forecast in self.forecasts:
            yield f"  {forecast}"
        if self.suggestions:
            yield f"did you mean {' or '.join(self.suggestions)}?"
