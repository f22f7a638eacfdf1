"""`-o json` and `-o csv`: the documented shapes, written step by step."""

import csv
import io
import json
import math
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from autoscaler.core.model import HPA
from replay.load import Load
from replay.output.comparison import compare
from replay.output.documents import CSVDocument, Document, JSONDocument
from replay.results import Replayed
from replay.simulation import Settings, capacity_of, replay_hpa
from tests.replay.builders import GAP, external_metric, load_of, make_hpa, pods_metric
from tests.replay.comparisons import peak_load

SUMMARY = {
    *("seconds", "minReplicas", "meanReplicas", "maxReplicas", "podHours", "scaleEvents", "flaps", "overloadSeconds"),
    *("overloadRequests", "overloadRatio", "atMaxSeconds", "noMetricsSeconds", "cost"),
}
"""The documented fields."""


def write(document: Document, hpas: Sequence[HPA], load: Load) -> Sequence[Replayed]:
    named = {f"shop/web-{number}": hpa for number, hpa in enumerate(hpas)}
    return compare(named, load, Settings(capacity=capacity_of(hpas, {"": 100.0})), document=document).replays


def json_of(hpas: Sequence[HPA], load: Load) -> tuple[dict[str, Any], Sequence[Replayed]]:
    file = io.StringIO()
    replays = write(JSONDocument(file), hpas, load)
    return json.loads(file.getvalue()), replays


def test_json_has_the_documented_shape() -> None:
    document, replays = json_of([make_hpa(), make_hpa(pods_metric(average="70"))], peak_load(reality=True))
    assert document.keys() == {"version", "replays", "verdict", "notes", "reality"}
    assert document["version"] == 1
    assert document["reality"].keys() == {"summary"}
    assert document["reality"]["summary"].keys() == SUMMARY
    assert document["reality"]["summary"]["atMaxSeconds"] is None
    for number, (each, replayed) in enumerate(zip(document["replays"], replays, strict=True)):
        assert each.keys() == {"hpa", "summary", "steps", "worst"}
        assert (each["hpa"], len(each["steps"])) == (f"shop/web-{number}", 240)
        assert each["summary"].keys() == SUMMARY
        assert each["summary"] == msgspec.to_builtins(replayed.summary)
        for step in each["steps"]:
            assert step.keys() == {"time", "replicas", "ready", "desiredReplicas", "metrics", "sentence"}
            assert step["metrics"][0].keys() == {"name", "value"}
        for worst in each["worst"]:
            assert worst.keys() == {"start", "end", "overloadSeconds", "missingPodSeconds", "sentence"}
    assert document["replays"][0]["worst"]


def test_json_steps_continue_each_other_and_have_their_sentences() -> None:
    document, replays = json_of([make_hpa()], peak_load())
    steps = document["replays"][0]["steps"]
    assert [step["time"] for step in steps[:2]] == ["2026-05-28T20:26:40.000Z", "2026-05-28T20:26:55.000Z"]
    assert [step["replicas"] for step in steps[1:]] == [step["desiredReplicas"] for step in steps[:-1]]
    changes = [step["sentence"] for step in steps if step["replicas"] != step["desiredReplicas"]]
    assert changes == [scale.sentence for scale in replays[0].scales]
    assert changes[0].startswith(f"{replays[0].scales[0].replicas} -> ")
    assert all(step["sentence"] for step in steps)
    assert "reality" not in document
    gaps = [step for step in steps if step["metrics"][0]["value"] is None]
    assert (len(gaps), document["replays"][0]["summary"]["noMetricsSeconds"]) == (8, 120)


@pytest.mark.parametrize("name", ['a"b\\', "</script>", "line\nbreak", "🙂"])
def test_names_are_encoded(name: str) -> None:
    file = io.StringIO()
    document = JSONDocument(file)
    document.begin(name, make_hpa())
    document.end(replay_hpa(make_hpa(), peak_load(), Settings()))
    document.close(None, verdict="", notes=[])
    assert json.loads(file.getvalue())["replays"][0]["hpa"] == name


class Counting(io.StringIO):
    """A file that remembers nothing."""

    longest = 0

    def write(self, text: str) -> int:
        self.longest = max(self.longest, len(text))
        return len(text)


def test_each_step_is_written_at_once() -> None:
    file = Counting()
    write(JSONDocument(file), [make_hpa()], peak_load())
    assert 0 < file.longest < 1000


def test_csv_has_a_row_for_each_step_and_spec() -> None:
    file = io.StringIO()
    hpas = [make_hpa(pods_metric("rps")), make_hpa(external_metric("queue", averageValue="5"), pods_metric("rps"))]
    load = load_of(rps=[150.0, GAP, 250.5], queue=[7.0, 8.0, 9.0])
    write(CSVDocument(file, hpas), hpas, load)
    table = list(csv.DictReader(io.StringIO(file.getvalue())))
    assert list(table[0]) == ["timestamp", "hpa", "replicas", "ready", "desiredReplicas", "rps", "queue"]
    assert [(row["hpa"], row["rps"], row["queue"]) for row in table] == [
        ("shop/web-0", "150", ""),
        ("shop/web-0", "", ""),
        ("shop/web-0", "250.5", ""),
        ("shop/web-1", "150", "7"),
        ("shop/web-1", "", "8"),
        ("shop/web-1", "250.5", "9"),
    ]
    assert table[0]["timestamp"] == "2026-05-28T20:26:40.000Z"
    assert [row["replicas"] for row in table[1:3]] == [row["desiredReplicas"] for row in table[:2]]


def test_values_keep_their_digits() -> None:
    file = io.StringIO()
    hpas = [make_hpa()]
    value = 1234567890.12345
    write(CSVDocument(file, hpas), hpas, load_of(rps=[value, math.pi]))
    assert [float(row["rps"]) for row in csv.DictReader(io.StringIO(file.getvalue()))] == pytest.approx(
        [value, math.pi], rel=1e-14
    )
