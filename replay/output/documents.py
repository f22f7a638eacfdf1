"""`-o json` and `-o csv`: every reconciliation, written while the replay runs.

The shapes are documented in docs/replay.md. VERSION changes when a field changes its meaning or is removed; new fields
may be added at any time.
"""

from __future__ import annotations

import csv
import itertools
import math
import re
from collections.abc import Callable, Sequence
from typing import Final, TextIO, TypeAlias

import msgspec

from autoscaler.core.model import HPA
from autoscaler.records.record import time_text
from kube.values.printable import printable
from replay.load import metric_key
from replay.results import Replayed, Step, sentence

VERSION: Final = 1

# Control characters that encoders of JSON do not escape.
_UNESCAPED: Final = re.compile(r"[\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069]")


OnStep: TypeAlias = Callable[[Step], None]


class Document:
    """A document with the steps of one HPA after the other. This one is empty: others override what they write."""

    def begin(self, name: str, hpa: HPA) -> OnStep | None:
        """Begin an HPA, and return what writes a step of it; None: steps are not written."""

    def end(self, replayed: Replayed) -> None:
        """End the HPA."""

    def close(
        self, reality: Replayed | None, *, verdict: str, notes: Sequence[str], plain: Replayed | None = None
    ) -> None:
        """End the document, with the summaries of reality and without forecasts, the verdict, and the assumptions."""


class JSONDocument(Document):
    """One JSON object. The summary of an HPA follows its steps, because it is known only then."""

    def __init__(self, file: TextIO, *, has_steps: bool = True) -> None:
        self._file, self._has_steps = file, has_steps
        self._encode = msgspec.json.Encoder().encode
        self._before_replay = "\n"
        file.write(f'{{"version":{VERSION},"replays":[')

    def begin(self, name: str, hpa: HPA) -> OnStep | None:
        """See Document. A step is on one line."""
        self._file.write(f'{self._before_replay}{{"hpa":{self._text(name)},')
        self._before_replay = ",\n"
        if not self._has_steps:
            return None
        names, before = (
            [metric_key(spec.source) for spec in hpa.spec.metrics],
            itertools.chain("\n", itertools.repeat(",\n")),
        )
        self._file.write('"steps":[')

        def write(step: Step) -> None:
            row = {
                "time": time_text(step.time_ms),
                "replicas": step.replicas,
                "ready": step.ready,
                "desiredReplicas": step.desired_replicas,
                # NaN becomes null.
                "metrics": [{"name": name, "value": value} for name, value in zip(names, step.values, strict=True)],
                "sentence": sentence(step.decision),
            }
            self._file.write(next(before) + self._text(row))

        return write

    def end(self, replayed: Replayed) -> None:
        """End the HPA, with its summary and worst moments."""
        worst = [
            {
                "start": time_text(each.start_ms),
                "end": time_text(each.end_ms),
                "overloadSeconds": each.overload_ms / 1000,
                "missingPodSeconds": each.missing_pod_seconds,
                "sentence": sentence(each.decision),
            }
            for each in replayed.worst
        ]
        closing = "\n]," if self._has_steps else ""
        self._file.write(f'{closing}"summary":{self._text(replayed.summary)},"worst":{self._text(worst)}}}')

    def close(
        self, reality: Replayed | None, *, verdict: str, notes: Sequence[str], plain: Replayed | None = None
    ) -> None:
        """See Document."""
        self._file.write(f'\n],"verdict":{self._text(verdict)},"notes":{self._text(notes)}')
        if reality is not None:
            self._file.write(f',"reality":{{"summary":{self._text(reality.summary)}}}')
        if plain is not None:
            self._file.write(f',"withoutForecast":{{"summary":{self._text(plain.summary)}}}')
        self._file.write("}\n")

    def _text(self, value: object) -> str:
        return printable_json(self._encode(value))


class CSVDocument(Document):
    """One row per step and HPA, with a column for each metric of any HPA; it has no summaries."""

    def __init__(self, file: TextIO, hpas: Sequence[HPA]) -> None:
        self._rows = csv.writer(file, lineterminator="\n")
        self._columns = list(dict.fromkeys(metric_key(spec.source) for hpa in hpas for spec in hpa.spec.metrics))
        names = map(printable, self._columns)
        self._rows.writerow(["timestamp", "hpa", "replicas", "ready", "desiredReplicas", *names])

    def begin(self, name: str, hpa: HPA) -> OnStep:
        """See Document. A metric without a value has an empty field."""
        columns = [self._columns.index(metric_key(spec.source)) for spec in hpa.spec.metrics]

        def write(step: Step) -> None:
            values = [""] * len(self._columns)
            for column, value in zip(columns, step.values, strict=True):
                values[column] = "" if math.isnan(value) else f"{value:.15g}"
            replicas = step.replicas, step.ready, step.desired_replicas
            self._rows.writerow([time_text(step.time_ms), printable(name), *replicas, *values])

        return write


def printable_json(encoded: bytes) -> str:
    """Return the same JSON, with escapes for the control characters in its strings."""
    return _UNESCAPED.sub(lambda found: f"\\u{ord(found[0]):04x}", encoded.decode())
