"""The views accept any JSON: other things than objects are left out."""

from typing import Any

import pytest

from playground.views import Deployment, Event, Hpa, Pod, Service


def hpa_json(**status: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "worker"},
        "spec": {
            "scaleTargetRef": {"kind": "Deployment", "name": "worker"},
            "maxReplicas": 8,
            "metrics": [
                {
                    "type": "External",
                    "external": {
                        "metric": {"name": "queue_depth"},
                        "target": {"type": "AverageValue", "averageValue": "50"},
                    },
                }
            ],
        },
        "status": status,
    }


@pytest.mark.parametrize(
    "view",
    [Hpa.select, Deployment.select, Event.select, Pod.select, Service.select],
    ids=lambda view: view.__qualname__,
)
@pytest.mark.parametrize("entry", [{}, {"metadata": None}, {"metadata": {"name": 5}, "spec": [], "status": "x"}])
def test_other_objects_are_skipped(view: Any, entry: dict[str, Any]) -> None:
    assert view(entry) is None


CURRENT = {"external": {"metric": {"name": "queue_depth"}, "current": {"value": "300", "averageValue": "60"}}}


@pytest.mark.parametrize(("metrics", "value"), [([CURRENT], "60"), (None, ""), ([], ""), ([{"type": ""}], "")])
def test_external_metric_is_shown_per_pod(metrics: Any, value: str) -> None:
    hpa = Hpa.select(hpa_json(currentMetrics=metrics))
    assert hpa is not None
    assert (hpa.metric, hpa.value, hpa.goal, hpa.spec.max_replicas) == ("queue_depth", value, "50", 8)


def test_first_false_condition_is_the_problem() -> None:
    conditions = [
        {"type": "ScalingLimited", "status": "True", "reason": "TooManyReplicas"},
        {"type": "AbleToScale", "status": "True", "reason": "ReadyForNewScale"},
        {"type": "ScalingActive", "status": "False", "reason": "FailedGetExternalMetric", "message": "no metrics"},
    ]
    hpa = Hpa.select(hpa_json(conditions=conditions))
    assert hpa is not None
    assert hpa.problem == "FailedGetExternalMetric: no metrics"


@pytest.mark.parametrize(
    ("phase", "condition", "deleted", "ready"),
    [
        ("Running", "True", False, True),
        ("Running", "False", False, False),
        ("Pending", "True", False, False),
        ("Running", "True", True, False),
    ],
)
def test_pod_is_ready_while_it_runs_and_is_not_deleted(phase: str, condition: str, deleted: bool, ready: bool) -> None:
    metadata = {"name": "a", "labels": {"app": "shop"}} | (
        {"deletionTimestamp": "2026-01-01T00:00:00Z"} if deleted else {}
    )
    status = {"phase": phase, "conditions": [{"type": "Ready", "status": condition}]}
    pod = Pod.select({"metadata": metadata, "status": status})
    assert pod is not None
    assert pod.ready is ready
