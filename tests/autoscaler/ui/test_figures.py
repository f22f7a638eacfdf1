"""The charts of one HPA: which lines they have, and where these have gaps."""

from typing import Any

import plotly.graph_objects
import pytest

from autoscaler.records.record import DecisionRecord
from autoscaler.ui.figures import Point, figure
from tests.autoscaler.simulated_cluster import SimulatedCluster, external_metric, hpa, object_metric, pods_metric
from tests.autoscaler.ui.pages import Controller


def records(cluster: SimulatedCluster, *values: tuple[int | str, ...]) -> list[DecisionRecord]:
    controller = Controller()
    return [controller.reconcile(cluster, *each) for each in values]


def drawn(*decisions: DecisionRecord) -> dict[str, Any]:
    built = figure([Point.of(each) for each in decisions])
    plotly.graph_objects.Figure(built)  # raises an error if plotly.js does not know a field
    return built


def line(built: dict[str, Any], name: str, axis: str | None = None) -> list[float | None]:
    """The values of a line."""
    (found,) = [each["y"] for each in built["data"] if each["name"] == name and each.get("yaxis") == axis]
    return list(found)


def titles(built: dict[str, Any]) -> list[str]:
    return [each["text"] for each in built["layout"]["annotations"]]


def test_replicas_are_drawn_between_their_bounds() -> None:
    built = drawn(*records(SimulatedCluster(hpa(minimum=2, maximum=9), replicas=3), (100,), (200,), (100,)))
    assert line(built, "current") == [3, 3, 6]
    assert line(built, "desired") == [3, 6, 6]
    assert line(built, "min") == [2, 2]
    assert line(built, "min, max") == [9, 9]


def test_decision_that_scales_has_a_mark_with_its_sentence() -> None:
    decisions = records(SimulatedCluster(hpa(), replicas=3), (100,), (200,), (50,))
    (marks,) = [each for each in drawn(*decisions)["data"] if each["name"] == "scales"]
    assert marks["y"] == [6]
    assert marks["marker"]["symbol"] == ["triangle-up"]
    assert marks["text"][0].replace("<br>", " ") == decisions[1].sentence.replace(">", "&gt;")


def test_each_metric_has_a_chart_with_its_target_and_tolerance() -> None:
    cluster = SimulatedCluster(hpa(pods_metric(100_000), external_metric(50_000), object_metric(10)), replicas=2)
    built = drawn(*records(cluster, (105_000, 90_000, 5)))
    assert titles(built) == ["replicas", "packets, per pod", "queue, per pod", "requests of Service front"]
    assert line(built, "value", "y2") == [105.0]
    assert line(built, "target", "y2") == [100.0]
    assert line(built, "tolerance, from", "y2") == [90.0]
    assert line(built, "tolerance", "y2") == pytest.approx([110.0])
    assert (line(built, "value", "y3"), line(built, "target", "y3")) == ([45.0], [50.0])
    assert (line(built, "value", "y4"), line(built, "target", "y4")) == ([0.005], [0.01])


def test_decision_without_a_value_is_a_gap() -> None:
    built = drawn(*records(SimulatedCluster(hpa(), replicas=3), (100,), ("no metrics",), (100,)))
    assert line(built, "value", "y2") == [0.1, None, 0.1]
    assert line(built, "desired") == [3, None, 3]
    assert line(built, "target", "y2") == [0.1, 0.1], "a level has a point where it changes, and at the end"


def test_metric_that_the_spec_no_longer_has_comes_last() -> None:
    old = records(SimulatedCluster(hpa(pods_metric(100, "old")), replicas=3), (100,))
    new = records(SimulatedCluster(hpa(pods_metric(100, "new")), replicas=3), (100,))
    built = drawn(*old, *new)
    assert titles(built) == ["replicas", "new, per pod", "old, per pod"]
    assert line(built, "value", "y2") == [None, 0.1]


def test_changed_target_is_a_step_of_its_line() -> None:
    decisions = [
        record
        for target in (100, 200)
        for record in records(SimulatedCluster(hpa(pods_metric(target)), replicas=3), (100,), (100,))
    ]
    assert line(drawn(*decisions), "target", "y2") == [0.1, 0.2, 0.2]


def test_names_are_no_markup_of_plotly() -> None:
    built = drawn(*records(SimulatedCluster(hpa(pods_metric(100, "<a href='x'>m</a>")), replicas=3), (200,)))
    assert "<a" not in " ".join(titles(built))
    assert not any("<a" in text for each in built["data"] for text in each.get("text", ()))
