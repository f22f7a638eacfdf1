"""The examples of a page: sections with blocks of rules, HorizontalPodAutoscalers and decisions, and their series."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import promql_parser
import yaml
from promql_parser import VectorSelector

from tests.docs.remote_write import NativeHistogram, WrittenSeries

DOCS = Path(__file__).parent.parent.parent / "docs"
DATA = Path(__file__).parent / "data"
_HEADING = re.compile(r"^#{2,3} (.+)$", re.MULTILINE)
_DECISION = re.compile(r"^```text\n(.*?)^```$|[ (]`(\d+ -> \d+)`", re.MULTILINE | re.DOTALL)
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_RULES = {"rules", "externalRules", "prometheusServers"}
_SCRAPE = 15.0
_PAST = 1200.0
# Prometheus refuses samples that are more than ten minutes ahead.
_FUTURE = 540.0
# A value just below the intended one would be truncated to the milli-unit below it.
_ABOVE = 1e-5


@dataclass(frozen=True, slots=True)
class Section:
    """A section of a page: its title, its YAML documents, and its decisions.

    A decision is a block of text, as one line, or only its beginning in the prose: `2 -> 4`.
    """

    title: str
    documents: tuple[dict[str, Any], ...]
    decisions: tuple[str, ...]

    @property
    def rules(self) -> dict[str, Any]:
        """The rules file that the section shows; {} if it shows none."""
        return merged(*(one for one in self.documents if _RULES & set(one)))

    @property
    def recording_rules(self) -> list[dict[str, Any]]:
        """The groups of Prometheus' rules that the section shows."""
        return [group for one in self.documents for group in one.get("groups", ())]

    def of_kind(self, kind: str) -> list[dict[str, Any]]:
        """Return the section's Kubernetes objects of a kind."""
        return [one for one in self.documents if one.get("kind") == kind]


def sections(page: Path) -> Iterator[Section]:
    """Yield the sections of a page."""
    parts = _HEADING.split(page.read_text())
    for title, text in zip(parts[1::2], parts[2::2], strict=True):
        blocks = _BLOCK.findall(text)
        yield Section(
            title,
            tuple(one for language, body in blocks if language == "yaml" for one in yaml.safe_load_all(body)),
            tuple(" ".join((block or change).split()) for block, change in _DECISION.findall(text)),
        )


def merged(*files: Mapping[str, Any]) -> dict[str, Any]:
    """Return one rules file that has the rules and servers of all."""
    result: dict[str, Any] = {}
    for file in files:
        for key, value in file.items():
            if isinstance(value, list):
                result[key] = [*result.get(key, ()), *value]
            else:
                result[key] = {**result.get(key, {}), **value}
    return result


def series_of(entries: Mapping[str, Any]) -> list[WrittenSeries]:
    """Return series around now.

    Args:
        entries: {selector of one series: value}. A value is a number, the constant value of a gauge; "N/s", a counter's
            rate; {value: N, ended: SECONDS}, a gauge whose last sample is that old; {rate: N, every: SECONDS}, a
            counter scraped as often; or {first: I, counts: [N, ...]}, what each scrape adds to a native histogram.
    """
    return [WrittenSeries(_labels(selector), list(_points(value, time.time()))) for selector, value in entries.items()]


def _labels(selector: str) -> dict[str, str]:
    tree = promql_parser.parse(selector)
    assert isinstance(tree, VectorSelector), selector
    labels = {one.name: one.value for one in tree.matchers.matchers}
    return {"__name__": tree.name, **labels} if tree.name else labels


def _points(value: Any, now: float) -> Iterator[tuple[float, float | NativeHistogram]]:
    options = value if isinstance(value, dict) else {}
    ended, step = float(options.get("ended", -_FUTURE)), float(options.get("every", _SCRAPE))
    for number in range(int((_PAST - ended) / step) + 1):
        at = now - _PAST + number * step
        match value:
            case str():
                yield at, (float(value.removesuffix("/s")) + _ABOVE) * number * step
            case {"rate": rate}:
                yield at, (rate + _ABOVE) * number * step
            case {"value": gauge}:
                yield at, float(gauge)
            case {"first": first, "counts": counts}:
                yield at, NativeHistogram(first, [count * number for count in counts])
            case _:
                yield at, float(value)
