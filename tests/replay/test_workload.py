"""The model of the workload: start-up, deletion, and load above capacity."""

from __future__ import annotations

from autoscaler.core.pods import calculate_pod_requests, is_pod_ready
from replay.workload import Workload, integrate_overload
from tests.replay.builders import GAP, START_MS, series_of


def make_workload(replicas: int = 2, *, startup_ms: int = 30_000, requests: dict[str, int] | None = None) -> Workload:
    return Workload(
        namespace="shop",
        name="web",
        requests=requests or {},
        replicas=replicas,
        startup_ms=startup_ms,
        now_ms=START_MS,
    )


def test_pods_of_the_beginning_are_old_and_ready() -> None:
    workload = make_workload(2)

    assert (workload.replicas, workload.ready) == (2, 2)
    assert all(is_pod_ready(pod) for pod in workload.pods)
    assert all(pod.start_ms is not None and pod.start_ms <= START_MS - 3_600_000 for pod in workload.pods)


def test_new_pods_are_pending_until_their_start_up_is_over() -> None:
    workload = make_workload(1)

    workload.scale(3, START_MS)
    workload.advance(START_MS + 29_999)

    assert [pod.phase for pod in workload.pods] == ["Running", "Pending", "Pending"]
    assert workload.ready_names == (workload.pods[0].name,)

    workload.advance(START_MS + 30_000)

    assert all(is_pod_ready(pod) for pod in workload.pods)
    assert workload.pods[1].start_ms == START_MS
    assert workload.pods[1].ready is not None
    assert workload.pods[1].ready.last_transition_ms == START_MS + 30_000
    assert len({pod.name for pod in workload.pods}) == 3


def test_scale_down_deletes_starting_pods_first_and_then_the_youngest() -> None:
    workload = make_workload(2)
    workload.scale(3, START_MS)
    workload.advance(START_MS + 30_000)
    workload.scale(5, START_MS + 45_000)
    names = [pod.name for pod in workload.pods]

    workload.scale(3, START_MS + 60_000)
    assert ([pod.name for pod in workload.pods], workload.ready) == (names[:3], 3)

    workload.scale(1, START_MS + 75_000)
    assert ([pod.name for pod in workload.pods], workload.ready) == (names[:1], 1)

    workload.scale(2, START_MS + 90_000)
    assert workload.pods[1].name not in names


def test_ready_pods_change_between_steps() -> None:
    workload = make_workload(1, startup_ms=20_000)
    workload.scale(2, START_MS)
    workload.scale(4, START_MS + 5_000)

    assert workload.ready_over(START_MS + 15_000, START_MS + 30_000) == [
        (START_MS + 15_000, START_MS + 20_000, 1),
        (START_MS + 20_000, START_MS + 25_000, 2),
        (START_MS + 25_000, START_MS + 30_000, 4),
    ]


def test_pods_state_requests_of_the_pod_and_of_its_containers() -> None:
    pod = make_workload(1, requests={"cpu": 500, "memory": 10**12, "app/cpu": 300}).pods[0]

    assert calculate_pod_requests(pod, "cpu") == 500
    assert calculate_pod_requests(pod, "memory") == 10**12
    assert calculate_pod_requests(pod, "cpu", "app") == 300


def test_pods_state_requests_of_any_resource() -> None:
    pod = make_workload(1, requests={"example.com/gpu": 2000}).pods[0]

    assert calculate_pod_requests(pod, "example.com/gpu") == 2000


def test_overload_is_integrated_over_samples_and_ready_pods() -> None:
    # 50, 150 and 250 units for 10 s each; one pod of 100 until 15 s, two until 25 s, then three.
    load = series_of([50, 150, 250], step_ms=10_000)
    ready = [
        (START_MS, START_MS + 15_000, 1),
        (START_MS + 15_000, START_MS + 25_000, 2),
        (START_MS + 25_000, START_MS + 30_000, 3),
    ]

    overload = integrate_overload([(load, 100.0)], ready)

    # 50 too many from 10 s to 15 s, none until 20 s, 50 from 20 s to 25 s, none until 30 s.
    assert [*overload.loads] == [(50 * 5 + 50 * 5, (50 + 150 + 250) * 10)]
    assert overload.times == ((START_MS + 10_000, START_MS + 15_000), (START_MS + 20_000, START_MS + 25_000))


def test_overloads_of_two_metrics_are_counted_once() -> None:
    first, second = series_of([150, 50, 50]), series_of([3, 3, 1])

    overload = integrate_overload([(first, 100.0), (second, 2.0)], [(START_MS, START_MS + 45_000, 1)])

    assert overload.times == ((START_MS, START_MS + 30_000),)
    assert [above for above, _ in overload.loads] == [50 * 15, 2 * 15]


def test_gaps_have_no_overload() -> None:
    overload = integrate_overload([(series_of([200, GAP]), 100.0)], [(START_MS, START_MS + 60_000, 1)])

    assert overload.times == ((START_MS, START_MS + 15_000),)
    assert overload.loads == ((1500.0, 3000.0),)
