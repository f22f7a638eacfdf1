"""The pods of benchmarks are as large as real ones."""

from __future__ import annotations

import msgspec

from autoscaler.objects.workloads import track_pod
from bench.hpa_pods import running_pod


def test_pod_is_ready_and_as_large_as_real_ones() -> None:
    pod = running_pod("shop", "web", "web-0")
    assert 5000 < len(msgspec.json.encode(pod)) < 7000
    assert 2000 < len(msgspec.json.encode(pod["metadata"])) < 4000
    tracked = track_pod(pod)
    assert tracked is not None
    assert tracked.ready is not None
    assert (tracked.phase, tracked.ready.status, tracked.labels["app"]) == ("Running", "True", "web")


def test_pods_differ_as_in_a_cluster() -> None:
    first, other = (running_pod("shop", "web", f"web-{number}") for number in range(2))
    assert first["status"]["podIP"] != other["status"]["podIP"]
    assert first["metadata"]["ownerReferences"] == other["metadata"]["ownerReferences"]
    assert first == running_pod("shop", "web", "web-0")
