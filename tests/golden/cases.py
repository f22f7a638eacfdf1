"""A recorded case: a request, its response, and the queries that Prometheus got meanwhile."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import parse_qs, unquote, urlsplit

from kube.values.selectors import LabelSelector, SelectorError

_DATA = Path(__file__).parent.parent / "data" / "golden"

RECORDED = _DATA / "cases.jsonl"
"""Responses of prometheus-adapter v0.12.0 behind a kube-apiserver 1.36."""

SIMILAR = _DATA / "similar.jsonl"
"""More of the same kind, by analogy: other versions, faults, selectors, users and media types."""

_FAULT_TITLE = re.compile(r"prometheus(?:: (\w+)| (down))\b")


class CaseFileError(ValueError):
    """A file has a line that is no case; the message says which and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One recorded request and its response."""

    number: int
    """The number of the recording."""
    title: str
    """What it is about."""
    via: Literal["aggregator", "direct"]
    """Through the API server's aggregation layer, or directly to the adapter."""
    user: str | None
    """The user of the client certificate; None for none."""
    method: str
    """The method of HTTP, or what was sent in its place."""
    path: str
    """URL-encoded, with its query."""
    headers: tuple[tuple[str, str], ...]
    """Those of the request beside `Accept: application/json`, as (name, value)."""
    status: int
    """The status of the response."""
    content_type: str
    """The content type of the response."""
    size: int
    """The bytes of the response's body, uncompressed."""
    document: Any
    """The body, where it was JSON and not too long to be kept."""
    text: str | None
    """The body, where it was a short text; `base64: ...` for binary."""
    queries: tuple[str, ...]
    """The PromQL of the instant queries meanwhile, each once."""
    fault: str | None
    """How Prometheus failed meanwhile; None where it did not."""

    @classmethod
    def read(cls, raw: dict[str, Any]) -> Case:
        """From the JSON of a recording; KeyError and the like where something is missing."""
        if raw["via"] not in ("aggregator", "direct"):
            raise ValueError(f"via is {raw['via']!r}")
        titled = _FAULT_TITLE.match(raw["title"])
        faults = [query["fault"] for query in raw["promql"] if query["fault"]]
        return cls(
            number=raw["n"],
            title=raw["title"],
            via=raw["via"],
            user=raw["user"],
            method=raw["method"],
            path=raw["path"],
            headers=tuple((name, value.strip()) for name, _, value in _split(raw["request_headers"])),
            status=raw["status"],
            content_type=raw["content_type"],
            size=raw["bytes"],
            document=raw["json"],
            text=raw["text"],
            queries=tuple(dict.fromkeys(dict(query["args"])["query"] for query in raw["promql"])),
            fault=faults[0] if faults else (titled[1] or titled[2]) if titled else None,
        )

    def __str__(self) -> str:
        return f"{self.number} {self.title}: {self.method} {self.path} ({self.via}, {self.user or 'nobody'})"

    @property
    def segments(self) -> tuple[str, ...]:
        """The parts of the path, decoded."""
        return tuple(unquote(part) for part in urlsplit(self.path).path.split("/") if part)

    @property
    def query(self) -> dict[str, str]:
        """The parameters of the path, each once."""
        return {key: values[0] for key, values in parse_qs(urlsplit(self.path).query, keep_blank_values=True).items()}

    @property
    def is_external(self) -> bool:
        """It is about an external metric."""
        return self.segments[:2] == ("apis", "external.metrics.k8s.io")

    @property
    def series_selector(self) -> LabelSelector | None:
        """The selector of the metric's series; None where it cannot be parsed."""
        try:
            return LabelSelector.parse(
                self.query.get("labelSelector" if self.is_external else "metricLabelSelector", "")
            )
        except SelectorError:
            return None

    def header(self, name: str) -> str | None:
        """A header of the request."""
        return next((value for key, value in self.headers if key.lower() == name.lower()), None)


def read_cases(path: Path) -> list[Case]:
    """All cases of a file of JSON lines, in their order.

    Raises:
        CaseFileError: a line is no case.
        OSError: the file cannot be read.
    """
    cases = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if not line.strip():
            continue
        try:
            cases.append(Case.read(json.loads(line)))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CaseFileError(f"{path}, line {number}: {type(error).__name__}: {error}") from error
    return cases


def _split(headers: list[str]) -> list[tuple[str, str, str]]:
    return [header.partition(":") for header in headers]
