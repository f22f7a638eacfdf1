"""How shadow mode's comparisons stand, as the page /debug/shadow serves it and `shadow-report` prints it.

The JSON is documented for programs: names are stable, new fields may come. The table is for people: one line an HPA,
the ones that agree least at the top, and below it the latest differences.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

import msgspec

from autoscaler.core.model import HPAKey
from autoscaler.records.shadow import Comparison, Shadow, Standing, Verdict

_DIFFERENCES_SHOWN: Final = 10
_DIFFERENCES_OF_ONE: Final = 3
_WORDS: Final[Mapping[str, str]] = {
    Verdict.HIGHER: "ours is higher",
    Verdict.LOWER: "ours is lower",
    Verdict.PASSED: "the built-in controller went past ours",
    Verdict.ONLY_OURS: "the built-in controller found no count",
    Verdict.ONLY_THEIRS: "ours found no count",
    Verdict.WARMING_UP: "warming up, not counted",
}


class _Json(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    pass


class ComparisonEntry(_Json, frozen=True, kw_only=True):
    """One decision, compared."""

    time: str
    """When we decided: RFC 3339, UTC."""
    ours: int | None
    """None: no count was found."""
    theirs: int | None
    verdict: str
    lag_seconds: float
    """How much later the built-in controller came to the same; negative: how much earlier it had left that again."""


class HPAEntry(_Json, frozen=True, kw_only=True):
    """The comparisons on one HPA since the process started, or since the HPA is in shadow mode."""

    namespace: str
    name: str
    group: str
    comparisons: dict[str, int]
    """How many by verdict."""
    agreement: float | None
    """The part that agreed, of those that count: warming_up does not. None: there are none yet."""
    waiting: int
    """Decisions that are not compared yet."""
    last: ComparisonEntry | None
    differences: list[ComparisonEntry]
    """The latest that did not agree, oldest first."""


class ShadowPage(_Json, frozen=True, kw_only=True):
    """All HPAs in shadow mode."""

    version: int = 1
    window_seconds: float
    """How much earlier or later than we the built-in controller may want the same to agree."""
    agreement: float | None
    """Of all HPAs."""
    hpas: list[HPAEntry]


def page_of(shadow: Shadow, now_ms: int, *, monotonic_ms: int | None = None) -> ShadowPage:
    """How all comparisons stand now.

    Args:
        shadow: what compares.
        now_ms: the current time, in milliseconds since the Unix epoch.
        monotonic_ms: the same by the clock of the comparisons; None: `now_ms`.
    """
    monotonic_ms = now_ms if monotonic_ms is None else monotonic_ms
    standings = shadow.standings(monotonic_ms)
    ahead_ms = now_ms - monotonic_ms
    return ShadowPage(
        window_seconds=shadow.window_ms / 1000,
        agreement=_agreement(standings.values()),
        hpas=[_entry(key, standings[key], ahead_ms) for key in sorted(standings)],
    )


def as_table(page: ShadowPage) -> str:
    """The page for people, without a newline at its end."""
    if not page.hpas:
        return "No HPA is in shadow mode."
    hpas = sorted(page.hpas, key=lambda hpa: (2.0 if hpa.agreement is None else hpa.agreement, hpa.namespace, hpa.name))
    rows: list[tuple[str, ...]] = [
        ("NAMESPACE", "NAME", "AGREEMENT", "COMPARED", "HIGHER", "LOWER", "OTHER", "WARMING UP", "OURS", "THEIRS"),
    ]
    rows += [_row(hpa) for hpa in hpas]
    lines = _aligned(rows)
    differences = sorted(
        ((entry, hpa) for hpa in hpas for entry in hpa.differences[-_DIFFERENCES_OF_ONE:]),
        key=lambda pair: pair[0].time,
        reverse=True,
    )
    if differences:
        lines += ["", "Latest differences:"]
        lines += [
            f"  {entry.time}  {hpa.namespace}/{hpa.name}: ours {_count(entry.ours)}, theirs {_count(entry.theirs)} "
            f"({_WORDS.get(entry.verdict, entry.verdict)})"
            for entry, hpa in differences[:_DIFFERENCES_SHOWN]
        ]
    total = "Nothing has been compared yet."
    if page.agreement is not None:
        total = f"{_percent(page.agreement)} of all decisions agree, within {page.window_seconds:g} s of each other."
    return "\n".join([*lines, "", total])


def _entry(key: HPAKey, standing: Standing, ahead_ms: int) -> HPAEntry:
    return HPAEntry(
        namespace=key.namespace,
        name=key.name,
        group=key.group,
        comparisons={str(verdict): standing.counts[verdict] for verdict in Verdict},
        agreement=_agreement([standing]),
        waiting=len(standing.waiting),
        last=None if standing.last is None else _comparison(standing.last, ahead_ms),
        differences=[_comparison(each, ahead_ms) for each in standing.differences],
    )


def _comparison(comparison: Comparison, ahead_ms: int) -> ComparisonEntry:
    time = datetime.fromtimestamp((comparison.time_ms + ahead_ms) / 1000, UTC)
    return ComparisonEntry(
        time=time.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        ours=comparison.ours,
        theirs=comparison.theirs,
        verdict=comparison.verdict,
        lag_seconds=comparison.lag_ms / 1000,
    )


def _agreement(standings: Iterable[Standing]) -> float | None:
    agreed = counted = 0
    for standing in standings:
        agreed += standing.counts[Verdict.AGREED]
        counted += standing.counts.total() - standing.counts[Verdict.WARMING_UP]
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
    """Cut off rather than rounded, so that 100 % means all."""
    return f"{int(part * 1000) / 10:g}%"
