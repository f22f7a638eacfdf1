"""`-o json` and `-o csv`: the documented shapes, written step by step."""

import csv
import io
import math
from collections.abc import Sequence

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


class _Strict(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    pass


class Metric(_Strict):
    name: str
    value: float | None


class Step(_Strict):
    time: str
    replicas: int
    ready: int
    desired_replicas: int
    metrics: list[Metric]
    sentence: str


class Summary(_Strict):
    seconds: float
    min_replicas: int
    mean_replicas: float
    max_replicas: int
    pod_hours: float
    scale_events: int
    flaps: int
    overload_seconds: float | None
    overload_requests: float | None
    overload_ratio: float | None
    at_max_seconds: float | None
    no_metrics_seconds: float | None
    cost: float | None


class Worst(_Strict):
    start: str
    end: str
    overload_seconds: float
    missing_pod_seconds: float
    sentence: str


class Replay(_Strict):
    hpa: str
    summary: Summary
    steps: list[Step]
    worst: list[Worst]


class Reality(_Strict):
    summary: Summary


class Whole(_Strict):
    version: int
    replays: list[Replay]
    verdict: str
    notes: list[str]
    reality: Reality | None = None


def write(document: Document, hpas: Sequence[HPA], load: Load) -> Sequence[Replayed]:
    named = {f"shop/web-{number}": hpa for number, hpa in enumerate(hpas)}
    return compare(named, load, Settings(capacity=capacity_of(hpas, {"": 100.0})), document=document).replays


def json_of(hpas: Sequence[HPA], load: Load) -> tuple[Whole, Sequence[Replayed]]:
    file = io.StringIO()
    replays = write(JSONDocument(file), hpas, load)
    return msgspec.json.decode(file.getvalue(), type=Whole, strict=True), replays


def test_json_has_the_documented_shape() -> None:
    document, replays = json_of([make_hpa(), make_hpa(pods_metric(average="70"))], peak_load(reality=True))
    assert document.version == 1
    assert [each.hpa for each in document.replays] == ["shop/web-0", "shop/web-1"]
    assert [len(each.steps) for each in document.replays] == [240, 240]
    assert document.reality is not None
    assert document.reality.summary.at_max_seconds is None
    for each, replayed in zip(document.replays, replays, strict=True):
        assert msgspec.to_builtins(each.summary) == msgspec.to_builtins(
            msgspec.convert(replayed.summary, Summary, from_attributes=True)
        )


def test_json_steps_continue_each_other_and_have_their_sentences() -> None:
    document, replays = json_of([make_hpa()], peak_load())
    steps = document.replays[0].steps
    assert [step.time for step in steps[:2]] == ["2026-05-28T20:26:40.000Z", "2026-05-28T20:26:55.000Z"]
    assert [step.replicas for step in steps[1:]] == [step.desired_replicas for step in steps[:-1]]
    changes = [step.sentence for step in steps if step.replicas != step.desired_replicas]
    assert changes == [scale.sentence for scale in replays[0].scales]
    assert changes[0].startswith(f"{replays[0].scales[0].replicas} -> ")
    assert all(step.sentence for step in steps)
    assert document.reality is None


def test_a_gap_is_null() -> None:
    document, _ = json_of([make_hpa()], peak_load())
    assert [step.metrics[0].value is None for step in document.replays[0].steps].count(True) == 8
    assert document.replays[0].summary.no_metrics_seconds == 120


@pytest.mark.parametrize("name", ['a"b\\', "</script>", "line\nbreak", "🙂"])
def test_names_are_encoded(name: str) -> None:
    file = io.StringIO()
    document = JSONDocument(file)
    document.begin(name, make_hpa())
    document.end(replay_hpa(make_hpa(), peak_load(), Settings()))
    document.close(None, verdict="", notes=[])
    assert msgspec.json.decode(file.getvalue(), type=Whole).replays[0].hpa == name


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
