"""The report on shadow mode: JSON for /debug/shadow, and a table for `shadow-report`.

The JSON is documented for programs: names are stable, new fields may be added. The table has one line per HPA, the
lowest agreement first, followed by the latest differences.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from autoscaler.core.model import HPAKey
from autoscaler.records.shadow import Comparison, HPAComparisons, ShadowComparer, Verdict

_MAX_DIFFERENCES: Final = 10
_MAX_DIFFERENCES_PER_HPA: Final = 3
_VERDICTS: Final[Mapping[str, str]] = {
    Verdict.HIGHER: "ours is higher",
    Verdict.LOWER: "ours is lower",
    Verdict.PASSED: "theirs went past ours",
    Verdict.ONLY_OURS: "only ours found a count",
    Verdict.ONLY_THEIRS: "only theirs found a count",
    Verdict.WARMING_UP: "warming up, not counted",
}


class _Json(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    pass


class HPAEntry(_Json, frozen=True, kw_only=True):
    """The comparisons on one HPA since the process started, or since the HPA entered shadow mode."""

    namespace: str
    name: str
    group: str
    comparisons: dict[str, int]
    """The number per verdict."""
    agreement: float | None
    """The fraction that agreed, without those of verdict warming_up; null: there are none yet."""
    waiting: int
    """The number of decisions that are not compared yet."""
    last: Comparison | None
    differences: list[Comparison]
    """The latest that did not agree, oldest first."""


class ShadowPage(_Json, frozen=True, kw_only=True):
    """All HPAs in shadow mode."""

    version: int = 1
    window_seconds: float
    """How much earlier or later an equal value of kube-controller-manager agrees."""
    agreement: float | None
    """Of all HPAs."""
    hpas: list[HPAEntry]


def page_of(comparer: ShadowComparer, now_ms: int) -> ShadowPage:
    """Return the comparisons at a time by their clock."""
    comparisons = comparer.comparisons(now_ms)
    return ShadowPage(
        window_seconds=comparer.window_ms / 1000,
        agreement=_agreement(comparisons.values()),
        hpas=[_entry(key, comparisons[key]) for key in sorted(comparisons)],
    )


def as_table(page: ShadowPage) -> str:
    """Return the page as a table, without a final newline."""
    if not page.hpas:
        return "No HPA is in shadow mode."
    hpas = sorted(page.hpas, key=lambda hpa: (2.0 if hpa.agreement is None else hpa.agreement, hpa.namespace, hpa.name))
    rows: list[tuple[str, ...]] = [
        ("NAMESPACE", "NAME", "AGREEMENT", "COMPARED", "HIGHER", "LOWER", "OTHER", "WARMING UP", "OURS", "THEIRS"),
    ]
    rows += [_row(hpa) for hpa in hpas]
    lines = _aligned(rows)
    differences = sorted(
        ((entry, hpa) for hpa in hpas for entry in hpa.differences[-_MAX_DIFFERENCES_PER_HPA:]),
        key=lambda pair: pair[0].time,
        reverse=True,
    )
    if differences:
        lines += ["", "Latest differences:"]
        lines += [
            f"  {entry.time}  {hpa.namespace}/{hpa.name}: ours {_count(entry.ours)}, theirs {_count(entry.theirs)} "
            f"({_VERDICTS.get(entry.verdict, entry.verdict)})"
            for entry, hpa in differences[:_MAX_DIFFERENCES]
        ]
    total = "Nothing has been compared yet."
    if page.agreement is not None:
        total = f"{_percent(page.agreement)} of all decisions agree, within {page.window_seconds:g} s of each other."
    return "\n".join([*lines, "", total])


def _entry(key: HPAKey, compared: HPAComparisons) -> HPAEntry:
    return HPAEntry(
        namespace=key.namespace,
        name=key.name,
        group=key.group,
        comparisons={str(verdict): compared.counts[verdict] for verdict in Verdict},
        agreement=_agreement([compared]),
        waiting=len(compared.pending),
        last=compared.last,
        differences=list(compared.differences),
    )


def _agreement(hpas: Iterable[HPAComparisons]) -> float | None:
    agreed = counted = 0
    for compared in hpas:
        agreed += compared.counts[Verdict.AGREED]
        counted += compared.counts.total() - compared.counts[Verdict.WARMING_UP]
    return agreed / counted if counted else None


def _row(hpa: HPAEntry) -> tuple[str, ...]:
    counts = hpa.comparisons
    warming = counts.get(Verdict.WARMING_UP, 0)
    compared = sum(counts.values()) - warming
    higher, lower, agreed = (counts.get(each, 0) for each in (Verdict.HIGHER, Verdict.LOWER, Verdict.AGREED))
    return (
        hpa.namespace,
        hpa.name,
        "-" if hpa.agreement is None else _percent(hpa.agreement),
        *(str(number) for number in (compared, higher, lower, compared - agreed - higher - lower, warming)),
        "-" if hpa.last is None else _count(hpa.last.ours),
        "-" if hpa.last is None else _count(hpa.last.theirs),
    )


def _aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _count(replicas: int | None) -> str:
    return "none" if replicas is None else str(replicas)


def _percent(part: float) -> str:
    """Round down, so that 100% means all."""
    return f"{int(part * 1000) / 10:g}%"
