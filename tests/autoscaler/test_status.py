"""Writing statuses: what goes to the API server, and what its refusals become."""

import pytest

from autoscaler.core.model import Status
from autoscaler.loop.status import StatusWriteError, StatusWriter
from autoscaler.loop.throttle import ThrottledClient
from autoscaler.objects.watched import RefusedHPA, TrackedHPA, track_hpa, track_pod
from tests.autoscaler.scripted_api import ScriptedApi

PATH = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers/web/status"
METADATA = {
    "name": "web",
    "namespace": "default",
    "uid": "u-1",
    "resourceVersion": "7",
    "labels": {"team": "a"},
    "annotations": {"note": "kept"},
}


@pytest.fixture
def tracked() -> TrackedHPA:
    tracked = track_hpa(
        {
            "apiVersion": "autoscaling/v2",
            "kind": "HorizontalPodAutoscaler",
            "metadata": {**METADATA, "managedFields": [{"manager": "kubectl"}]},
            "spec": {
                "scaleTargetRef": {"kind": "Deployment", "name": "web"},
                "minReplicas": 1,
                "maxReplicas": 3,
                "metrics": [{"type": "Pods", "pods": {"metric": {"name": "packets"}, "target": {"type": "Value"}}}],
            },
        }
    )
    assert isinstance(tracked, TrackedHPA)
    return tracked


async def test_metadata_goes_back_as_it_came(api: ScriptedApi, client: ThrottledClient, tracked: TrackedHPA) -> None:
    api.on("PUT", PATH, {})
    await StatusWriter(client).write(tracked, Status(current_replicas=2, desired_replicas=3))
    body = api.named("PUT", PATH)[0].body
    assert body["metadata"] == METADATA
    assert (body["status"]["currentReplicas"], body["status"]["desiredReplicas"]) == (2, 3)


async def test_a_conflict_is_an_error_for_this_step(
    api: ScriptedApi, client: ThrottledClient, tracked: TrackedHPA
) -> None:
    api.fail("PUT", PATH, 409, "the object has been modified")
    with pytest.raises(StatusWriteError, match="the object has been modified"):
        await StatusWriter(client).write(tracked, Status())
    assert len(api.named("PUT")) == 1


def test_what_cannot_be_understood_is_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    odd = {"metadata": {"name": "odd", "namespace": "default"}, "spec": {"maxReplicas": "many", "containers": 3}}
    assert isinstance(track_hpa(odd), RefusedHPA)  # which will be told so
    assert track_pod(odd) is None
    assert [record.message.count("default/odd") for record in caplog.records] == [1]
