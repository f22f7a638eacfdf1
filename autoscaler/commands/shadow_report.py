"""`shadow-report`: compare a running autoscaler's decisions with kube-controller-manager's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import click
import msgspec

from autoscaler.commands.debug_client import SERVER_URL, fetch
from autoscaler.records.shadow import SHADOW_PATH, HPAEntry, ShadowPage, Verdict
from kube.process.runtime import run

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


@click.command("shadow-report")
@click.option(
    "--server",
    type=SERVER_URL,
    default="http://127.0.0.1:8080",
    help="URL of the running autoscaler, for example behind kubectl port-forward.",
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json"]),
    default="table",
    help="Output format.",
)
def shadow_report(*, server: str, output: str) -> None:
    """Compare the decisions of shadow mode with those of kube-controller-manager.

    HPAs are in shadow mode by --mode=shadow or by the annotation milliscale.io/mode.
    """
    page = run(fetch(f"{server}{SHADOW_PATH}", ShadowPage))
    click.echo(as_table(page) if output == "table" else msgspec.json.format(msgspec.json.encode(page)).decode())


def as_table(page: ShadowPage) -> str:
    """Return one line per HPA, the lowest agreement first, then the latest differences; without a final newline."""
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
