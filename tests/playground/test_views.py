"""The views accept any JSON: other things than objects are left out."""

from typing import Any

import pytest

from playground.views import Deployment, Event, Hpa, Metadata, Pod, Service


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


def test_external_metric_is_shown_per_pod() -> None:
    current = {"external": {"metric": {"name": "queue_depth"}, "current": {"value": "300", "averageValue": "60"}}}
    hpa = Hpa.select(hpa_json(currentMetrics=[current]))
    assert hpa is not None
    assert (hpa.metric, hpa.value, hpa.goal, hpa.spec.max_replicas) == ("queue_depth", "60", "50", 8)


@pytest.mark.parametrize("metrics", [None, [], [{"type": ""}]], ids=["none yet", "empty", "failed"])
def test_metric_without_value_is_empty(metrics: Any) -> None:
    hpa = Hpa.select(hpa_json(currentMetrics=metrics))
    assert hpa is not None
    assert hpa.value == ""


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


def test_service_selects_pods_with_all_its_labels() -> None:
    def pod(**labels: str) -> Pod:
        return Pod(metadata=Metadata(name="a", labels=labels))

    service = Service.select({"metadata": {"name": "shop"}, "spec": {"selector": {"app": "shop", "tier": "web"}}})
    assert service is not None
    assert service.serves(pod(app="shop", tier="web", version="1"))
    assert not service.serves(pod(app="shop"))
    assert not Service(metadata=Metadata(name="manual")).serves(pod())
