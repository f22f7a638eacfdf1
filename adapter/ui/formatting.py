"""Format values for the pages: ages, times, names of metrics, ids of elements, and rules as YAML."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any, Final
from urllib.parse import quote, urlencode

import yaml

_HEADERS: Final = "headers"
_TITLE_NAMES: Final = 2
_TITLE_METRICS: Final = 100
"""Metrics of a rule that are searched for different names: it may have thousands, with a few names."""


def rounded_age(seconds: float) -> int:
    """Return an age in seconds, rounded down so that a page does not change with every second."""
    step = next((step for below, step in ((60, 10), (3600, 60), (86400, 3600)) if seconds < below), 86400)
    return int(max(seconds, 0.0) // step * step)


def age_text(seconds: float) -> str:
    """Return an age in words: "just now", "40 s ago", "3 min ago"."""
    age = rounded_age(seconds)
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if age >= size:
            return f"{age // size} {unit} ago"
    return f"{age} s ago" if age else "just now"


def time_text(at: float) -> str:
    """Return a time in seconds since the epoch, as "2026-01-31 12:00:00 UTC"."""
    return datetime.datetime.fromtimestamp(at, datetime.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def rule_title(key: str, metrics: Iterable[str]) -> str:
    """Return the names of a rule's first metrics; the rule's key if it has none."""
    first = list(islice(metrics, _TITLE_METRICS))
    names = list(dict.fromkeys(first))
    more = " and more" if len(names) > _TITLE_NAMES or len(first) == _TITLE_METRICS else ""
    return ", ".join(names[:_TITLE_NAMES]) + more or key


def metric_target(metric: str) -> str:
    """Return the name of a report's metric as `explain` takes it: external metrics begin with "external/"."""
    return metric if "/" in metric else f"external/{metric}"


def rule_url(key: str) -> str:
    """Return the URL of a rule's page, by its key: "rules[2]", "MetricRule shop/queue"."""
    kind, space, name = key.partition(" ")
    if not space:
        return f"/rules/{quote(key)}"
    name = name.partition(" ")[0]  # without the key in a ConfigMap
    namespace, _, name = name.rpartition("/")
    return object_url(kind, namespace, name)


def object_url(kind: str, namespace: str, name: str) -> str:
    """Return the URL of the page of an object with rules."""
    return f"/object?{urlencode({'kind': kind, 'namespace': namespace, 'name': name})}"


def element_id(key: str) -> str:
    """Return the id of an element for a rule's key: "rules-2"."""
    return key.replace("[", "-").replace("]", "")


class BlockDumper(yaml.SafeDumper):
    """Writes texts of several lines as blocks, and equal parts twice: people read the output."""

    def ignore_aliases(self, data: Any) -> bool:
        """Return True."""
        del data
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


BlockDumper.add_representer(str, _text)


def rule_yaml(entry: Mapping[str, object]) -> str:
    """Return a rule as YAML. Its headers are left out, since they may have credentials."""
    tree: dict[str, Any] = {key: value for key, value in entry.items() if key != _HEADERS}
    return yaml.dump([tree], Dumper=BlockDumper, sort_keys=False, width=10_000, allow_unicode=True)
