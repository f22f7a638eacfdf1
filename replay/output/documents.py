"""`-o json` and `-o csv`: every reconciliation, written while the replay runs.

Both are used alike: `begin` an HPA, pass each `step`, `end` it, and `close` the document at the end. The shapes are
documented in docs/replay.md. VERSION changes when a field changes its meaning or is removed; new fields may be added
at any time.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Sequence
from typing import Final, TextIO

import msgspec

from autoscaler.core.model import HPA
from autoscaler.records.record import time_text
from kube.values.printable import printable
from replay.load import metric_key
from replay.results import Replayed, Step, sentence

VERSION: Final = 1

# Control characters that encoders of JSON do not escape.
_UNESCAPED: Final = re.compile(r"[\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069]")


class Document:
    """A document with all steps. This one ignores them: others override what they write."""

    has_steps = True
    """False: `step` need not be called."""

    def begin(self, name: str, hpa: HPA) -> None:
        """Begin the steps of an HPA."""

    def step(self, step: Step) -> None:
        """Write a step."""

    def end(self, replayed: Replayed) -> None:
        """End the steps of an HPA."""

    def close(
        self, reality: Replayed | None, *, verdict: str, notes: Sequence[str], plain: Replayed | None = None
    ) -> None:
        """End the document, with the summaries of reality and without forecasts, the verdict, and the assumptions."""


class JSONDocument(Document):
    """One JSON object. The summary of an HPA follows its steps, because it is known only then."""

    def __init__(self, file: TextIO, *, has_steps: bool = True) -> None:
        self._file, self.has_steps = file, has_steps
        self._encode = msgspec.json.Encoder().encode
        self._metrics: list[str] = []
        self._before_replay, self._before_step = "\n", "\n"
        file.write(f'{{"version":{VERSION},"replays":[')

    def begin(self, name: str, hpa: HPA) -> None:
        """Begin the steps of an HPA."""
        self._metrics = [metric_key(spec.source) for spec in hpa.spec.metrics]
        self._file.write(f'{self._before_replay}{{"hpa":{self._text(name)},')
        if self.has_steps:
            self._file.write('"steps":[')
        self._before_replay, self._before_step = ",\n", "\n"

    def step(self, step: Step) -> None:
        """Write a step, on one line."""
        metrics = zip(self._metrics, step.values, strict=True)
        row = {
            "time": time_text(step.time_ms),
            "replicas": step.replicas,
            "ready": step.ready,
            "desiredReplicas": step.desired_replicas,
            "metrics": [{"name": name, "value": value} for name, value in metrics],  # NaN becomes null
            "sentence": sentence(step.decision),
        }
        self._file.write(self._before_step + self._text(row))
        self._before_step = ",\n"

    def end(self, replayed: Replayed) -> None:
        """End the steps of an HPA, and write its summary and worst moments."""
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
        closing = "\n]," if self.has_steps else ""
        self._file.write(f'{closing}"summary":{self._text(replayed.summary)},"worst":{self._text(worst)}}}')

    def close(
        self, reality: Replayed | None, *, verdict: str, notes: Sequence[str], plain: Replayed | None = None
    ) -> None:
        """End the document."""
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
        self._name, self._metrics = "", list[int]()
        names = map(printable, self._columns)
        self._rows.writerow(["timestamp", "hpa", "replicas", "ready", "desiredReplicas", *names])

    def begin(self, name: str, hpa: HPA) -> None:
        """Begin the steps of an HPA."""
        self._name = printable(name)
        self._metrics = [self._columns.index(metric_key(spec.source)) for spec in hpa.spec.metrics]

    def step(self, step: Step) -> None:
        """Write a step; a metric without a value has an empty field."""
        values = [""] * len(self._columns)
        for column, value in zip(self._metrics, step.values, strict=True):
            values[column] = "" if math.isnan(value) else f"{value:.15g}"
        self._rows.writerow(
            [time_text(step.time_ms), self._name, step.replicas, step.ready, step.desired_replicas, *values]
        )


def printable_json(encoded: bytes) -> str:
    """Return the same JSON, with escapes for the control characters in its strings."""
    return _UNESCAPED.sub(lambda found: f"\\u{ord(found[0]):04x}", encoded.decode())
