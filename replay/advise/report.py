"""The report on many HPAs: a sentence, the table with the most to gain first, and what it assumes. The same as JSON."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, TextIO

import msgspec
from rich.table import Table
from rich.text import Text

from autoscaler.core.model import KUBERNETES
from autoscaler.core.status import rfc3339
from kube.values.printable import printable
from replay.advise.judge import Advice
from replay.output.table import console_of
from replay.reality import CARRIED_MS

_TIMES: Final = re.compile(r" between \S+ and \S+?Z")
_LONGEST_PHRASE: Final = 160
_HEADINGS: Final = ("HPA", "POD-HOURS", "OVERLOAD", "AT MAX", "ADVICE", "SAVES", "SURE?")
_NUMBERS: Final = ("POD-HOURS", "OVERLOAD", "AT MAX", "SAVES")


def ordered(advice: Sequence[Advice]) -> list[Advice]:
    """Return what saves the most pod-hours first, then HPAs at maxReplicas or in overload, then what is not sure."""

    def key(each: Advice) -> tuple[object, ...]:
        troubled = max(each.at_max or 0.0, each.overload or 0.0)
        saved, is_unsure = each.saved_pod_hours or 0.0, each.sure != "yes"
        return bool(each.reason), is_unsure, -saved, -troubled, each.namespace, each.name, each.api_version

    return sorted(advice, key=key)


def summary(advice: Sequence[Advice]) -> str:
    """Return the summary in one sentence."""
    judged, targets = [each for each in advice if not each.reason], [each for each in advice if each.targets]
    better = [each for each in targets if each.sure == "yes"]
    hours = sum(each.pod_hours or 0.0 for each in judged)
    saved = sum(each.saved_pod_hours or 0.0 for each in better)
    share = f" ({saved / hours:.0%})" if hours else ""
    parts = [
        f"a higher target would save {saved:,.0f} of {hours:,.0f} pod-hours{share} at {len(better)} of {_hpas(advice)}"
        if better
        else f"no higher target is surely better for {_hpas(advice)}",
        *([f"{len(targets) - len(better)} may save, but not surely"] if len(targets) > len(better) else []),
        f"{sum(each.advice.startswith('raise') for each in judged)} at maxReplicas",
        f"{len(advice) - len(judged)} cannot be judged",
    ]
    return f"{parts[0][0].upper()}{'; '.join(parts)[1:]}."


def print_report(advice: Sequence[Advice], file: TextIO, *, with_namespace: bool, max_target: float) -> None:
    """Print the sentence, the table and the assumptions."""
    console, terminal = console_of(file), file.isatty()
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for heading in _HEADINGS:
        table.add_column(heading, justify="right" if heading in _NUMBERS else "left", overflow="fold")
    for each in advice:
        table.add_row(*(Text(printable(text), style=style) for text, style in _cells(each, with_namespace)))
    for text in (summary(advice), ""):
        console.print(Text(text, style="bold"), soft_wrap=not terminal)
    with console.capture() as captured:
        console.print(table)
    for line in captured.get().splitlines():
        file.write(f"{line.rstrip()}\n")
    for text in ("", *_notes(max_target)):
        console.print(Text(text), soft_wrap=not terminal)


def _cells(each: Advice, with_namespace: bool) -> list[tuple[str, str]]:
    group = each.api_version.rpartition("/")[0]
    suffix = f" ({group})" if each.api_version not in ("", KUBERNETES.api_version) else ""
    name = f"{each.namespace}/{each.name}" if with_namespace else each.name
    if each.reason:
        return [(name + suffix, ""), *[("-", "")] * 3, (_phrase(each.reason), "dim"), ("", ""), ("", "")]
    style = "green" if each.targets else "yellow" if each.advice.startswith("raise") else ""
    saves, sure = "", each.sure
    if each.saved_share is not None:
        saves = f"{each.saved_pod_hours:,.0f} ({each.saved_share:.0%})"
        if each.saved_low is not None and each.saved_high is not None and sure == "yes":
            sure = f"yes, {each.saved_low:.1%} to {each.saved_high:.1%}"
    figures = (f"{each.pod_hours:,.0f}", _percent(each.overload), _percent(each.at_max))
    return [(name + suffix, ""), *((text, "") for text in figures), (each.advice, style), (saves, style), (sure, "")]


def _phrase(reason: str) -> str:
    """Return a reason in short, without what to do about it, which JSON has."""
    text = _TIMES.sub("", reason).partition(";")[0]
    return text if len(text) <= _LONGEST_PHRASE else f"{text[:_LONGEST_PHRASE]}..."


def _percent(share: float | None) -> str:
    if share is None:
        return "-"
    return f"{share:.0%}" if share == 0 or share >= 0.0995 else f"{share:.2g}" if share > 1 else f"{100 * share:.2g}%"


def _hpas(advice: Sequence[Advice]) -> str:
    return f"{len(advice)} HPA{'' if len(advice) == 1 else 's'}"


def _notes(max_target: float) -> list[str]:
    bound = (
        "Capacity is not known, only a lower bound of it: the load per ready pod that reality has carried for "
        f"{CARRIED_MS // 60_000} minutes in all, below maxReplicas. OVERLOAD is the share of the load above that, and "
        f"no target here is above {max_target:.0%} of it."
    )
    return [
        bound,
        "If you know what a pod can serve: kubectl milliscale tune NAME --capacity=... finds more, and shows each day.",
    ]


def json(advice: Sequence[Advice], *, start_ms: int, end_ms: int, max_overload: float, max_target: float) -> bytes:
    """Return the advice as JSON."""
    document = {
        "version": 1,
        "start": rfc3339(start_ms),
        "end": rfc3339(end_ms),
        "maxOverload": max_overload,
        "maxTarget": max_target,
        "hpas": list(advice),
    }
    return msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"
