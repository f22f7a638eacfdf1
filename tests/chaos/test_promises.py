"""The promises themselves: each is broken by what it forbids."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

import pytest

from tests.chaos.measured import Usage
from tests.chaos.promises import CONNECTION, compare, repeated_scales, wrong_scales
from tests.chaos.proxy import Write

SCALE = "/apis/apps/v1/namespaces/default/deployments/shop/scale"
TASKS = Counter({"Store.run": 3, "serve": 1, CONNECTION: 16})
BEFORE = Usage(tasks=TASKS, files=30, memory_mib=100.0, peak_mib=120.0)


def write(replicas: int, *, path: str = SCALE, status: int | None = 200) -> Write:
    body = json.dumps({"spec": {"replicas": replicas}}).encode()
    return Write(time=0.0, method="PUT", path=path, body=body, status=status)


def test_scale_that_is_not_needed_breaks_a_promise() -> None:
    assert wrong_scales([write(4), write(6)], {4, 6}) == []
    assert wrong_scales([write(4), write(1)], {4, 6}) == [f"{SCALE} was set to 1"]


def test_two_writes_of_one_decision_break_a_promise() -> None:
    assert repeated_scales([write(6), write(4), write(6)]) == []
    assert repeated_scales([write(6), write(6)]) == [f"{SCALE} was set to 6 twice"]


def test_writes_that_the_server_rejected_do_not_count() -> None:
    rejected = [write(6, status=409), write(6, status=None), write(6)]
    assert repeated_scales(rejected) == []
    assert wrong_scales([write(1, status=500)], {4}) == []


def test_writes_of_other_objects_do_not_count() -> None:
    assert wrong_scales([write(1, path="/apis/autoscaling/v2/namespaces/default/x/status")], {4}) == []


@pytest.mark.parametrize(
    ("after", "leak"),
    [
        (
            replace(BEFORE, tasks=TASKS + Counter({"prefetch": 4, "Store.run": 5, CONNECTION: 1})),
            "20 tasks before, 30 after; new: 5 of Store.run, 4 of prefetch",
        ),
        (replace(BEFORE, files=90), "30 open files before, 90 after"),
        (replace(BEFORE, memory_mib=300.0), "100 MiB before, 300 MiB after"),
        (replace(BEFORE, peak_mib=600.0), "600 MiB at most, above the manifests' limit"),
    ],
    ids=["tasks", "files", "memory", "peak"],
)
def test_resource_use_above_the_margin_is_a_leak(after: Usage, leak: str) -> None:
    assert compare(BEFORE, after) == [leak]


def test_as_much_as_before_is_no_leak() -> None:
    assert compare(BEFORE, BEFORE) == []


def test_connection_is_counted_as_a_file() -> None:
    assert compare(BEFORE, replace(BEFORE, tasks=TASKS + Counter({CONNECTION: 12}), files=42)) == []
