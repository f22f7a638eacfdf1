"""Field types of the rules file's schema, and the functions that parse them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import msgspec

from adapter.forecasts.options import ForecastOptions, read_options
from adapter.promql.literals import parse_duration as parse_prometheus_duration
from adapter.upstream import header
from kube.api.mapping import GroupResource
from kube.values.durations import parse_duration
from kube.values.quantity import Quantity, QuantityError

QUERY_FIELDS = ("Series", "LabelMatchers", "LabelValuesByName", "GroupBy", "GroupBySlice")
"""The fields of a metricsQuery."""

_BOOLEANS = {
    spelling: value
    for value, words in ((True, ("true", "yes", "on", "y")), (False, ("false", "no", "off", "n")))
    for word in words
    for spelling in (word, word.capitalize(), word.upper())
}


class Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """A mapping with known keys."""


RequiredText = Annotated[str, msgspec.Meta(pattern=r"\S")]
"""Text that is not blank."""


class Boolean(int):
    """A boolean as YAML 1.1 and Go's yaml.v2 spell it."""


class Duration(float):
    """Seconds, more than 0; in the file a duration of Go's, such as 1m30s."""


class Window(float):
    """Seconds; in the file a duration of Prometheus', such as 1d12h."""


class MilliValue(int):
    """A value of a metric in milli-units, at least 0; in the file a number, such as 12 or 2.5."""


class Forecasting(tuple[ForecastOptions, str]):
    """`forecast`: what the metric's value is expected to be."""

    __slots__ = ()

    @property
    def options(self) -> ForecastOptions:
        """How it is expected."""
        return self[0]

    @property
    def as_(self) -> str:
        """The name of a further metric that has it, the template of the name for a rule with a seriesQuery.

        "" for the metric itself.
        """
        return self[1]


class Headers(tuple[tuple[str, str], ...]):
    """HTTP headers in the order of the file."""

    __slots__ = ()


class Overrides(tuple[tuple[str, GroupResource], ...]):
    """Labels and the resources that they name, in the order of the file."""

    __slots__ = ()


class ShortOverrides(Overrides):
    """Overrides of a short rule, where `deployment.apps` stands for {group: apps, resource: deployment}."""

    __slots__ = ()


def boolean(text: str) -> Boolean:
    """Parse true, no, ON, ..."""
    if text not in _BOOLEANS:
        raise ValueError(f"expected true or false, got {text!r}")
    return Boolean(_BOOLEANS[text])


def duration(text: str) -> Duration:
    """Parse a duration of Go's."""
    seconds = Duration(parse_duration(text))
    if seconds <= 0:
        raise ValueError(f"must be more than 0, got {text}")
    return seconds


def milli_value(text: str) -> MilliValue:
    """Parse a number, as a Quantity."""
    try:
        value = MilliValue(Quantity.parse(text).milli_value())
    except QuantityError as error:
        raise ValueError(f"not a number: {text[:40]!r}") from error
    if value < 0:
        raise ValueError(f"must be at least 0, got {text[:40]}")
    return value


def window(text: str) -> Window:
    """Parse a duration of Prometheus'."""
    return Window(parse_prometheus_duration(text))


def forecasting(entries: Mapping[str, object]) -> Forecasting:
    """Parse `forecast`."""
    as_ = entries.get("as", "")
    if not isinstance(as_, str):
        raise ValueError("as: expected text")
    return Forecasting((read_options({key: value for key, value in entries.items() if key != "as"}), as_))


def headers(entries: Mapping[str, object]) -> Headers:
    """Parse a mapping of names to values."""
    out = []
    for name, value in entries.items():
        if not isinstance(value, str):
            raise ValueError(f"{name}: expected text")
        out.append(header(name, value))
    return Headers(out)


def overrides(entries: Mapping[str, object]) -> Overrides:
    """Parse a mapping of labels to resources, each such as {group: apps, resource: deployment}."""
    out = []
    for label, entry in entries.items():
        if not isinstance(entry, dict) or not {"resource"} <= entry.keys() <= {"group", "resource"}:
            raise ValueError(f"{label}: expected a mapping with the key resource, and maybe group")
        group, resource = entry.get("group", ""), entry["resource"]
        if not isinstance(group, str) or not isinstance(resource, str) or not resource:
            raise ValueError(f"{label}: group and resource must be text, and resource is required")
        out.append((label, GroupResource(group, resource)))
    return Overrides(out)


def short_overrides(entries: Mapping[str, object]) -> ShortOverrides:
    """Parse a mapping of labels to resources, such as {ns: namespace, deploy: deployment.apps}."""
    out = []
    for label, word in entries.items():
        if not isinstance(word, str) or not word.strip():
            raise ValueError(f"{label}: expected a resource, such as pod or deployment.apps")
        resource, _, group = word.partition(".")
        out.append((label, GroupResource(group, resource)))
    return ShortOverrides(out)
