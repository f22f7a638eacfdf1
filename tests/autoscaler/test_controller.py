"""The whole loop against a real API: HPAs, scales, pods, a custom metrics API, watches, TLS and RBAC."""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from autoscaler.core.decide import decide
from autoscaler.core.decision import Decision
from autoscaler.core.history import History, Recommendation
from autoscaler.core.model import KUBERNETES, MILLISCALE, HPAKey
from autoscaler.core.observation import Observation
from autoscaler.loop import controller
from autoscaler.loop.histories import Histories
from autoscaler.loop.options import Availability, Options
from autoscaler.loop.reconcile import Reconciler
from autoscaler.loop.saved_history import SavedHistoryLocation, SavedHistoryStore
from autoscaler.loop.sharding import Shard
from autoscaler.loop.telemetry import Telemetry
from autoscaler.objects.hpa import track_hpa
from autoscaler.settings import ReconciliationSettings, Settings, ShutdownSettings
from kube.controller.election import ElectionSettings
from kube.controller.events import EventRecorder
from kube.controller.flowcontrol import ThrottledClient, TokenBucket
from kube.controller.workqueue import WorkQueue
from tests.autoscaler.cluster import AUTOSCALER, QUICK, Cluster, Running, running_controller
from tests.autoscaler.test_modes import STANDBY, hold_lease, release_lease
from tests.eventually import eventually, until
from tests.kube.scripted import ScriptedServer

SOON = 10.0
NEVER = 3600.0


def autoscaler(
    cluster: Cluster, options: Options = QUICK, *, kubeconfig: Path | None = None, telemetry: Telemetry | None = None
) -> AbstractAsyncContextManager[Running]:
    """A running autoscaler, with the rights of Kubernetes' own HPA controller where no `kubeconfig` has others."""
    return running_controller(kubeconfig or cluster.kubeconfig, options, telemetry=telemetry)


def at_least(counter: Counter[float], number: int) -> bool:
    return counter.total() >= number


async def some_syncs(cluster: Cluster, number: int = 5) -> None:
    """Wait for so many more reconciliations."""
    goal = cluster.syncs() + number
    await until(lambda: cluster.syncs() >= goal)


async def test_a_pods_metric_scales_up_and_down(cluster: Cluster) -> None:
    cluster.add_deployment("web", replicas=2)
    cluster.add_hpa("web", most=3)
    cluster.metrics.value = "30"
    async with autoscaler(cluster):
        await until(lambda: cluster.replicas("web") == 3)
        await cluster.roll_out("web")
        await until(lambda: cluster.condition("web", "ScalingLimited") == ("True", "TooManyReplicas"))
        cluster.metrics.value = "1"
        await until(lambda: cluster.replicas("web") == 1)
        await cluster.roll_out("web")
        cluster.metrics.value = "10"
        await until(lambda: cluster.condition("web", "AbleToScale") == ("True", "ReadyForNewScale"))
    events = [(reason, message) for reason, message, _ in await cluster.events("web")]
    # On a busy machine a status may be written on a version that its own last write has replaced: that is refused.
    assert [event for event in events if event[0] != "FailedUpdateStatus"] == [
        ("SuccessfulRescale", "New size: 3; reason: pods metric packets_per_second above target"),
        ("SuccessfulRescale", "New size: 1; reason: All metrics below target"),
    ]
    stored = cluster.hpa("web")
    assert stored["metadata"]["labels"] == {"kept": "yes"}
    assert stored["status"]["currentReplicas"] == 1
    current = {"metric": {"name": "packets_per_second"}, "current": {"averageValue": "10"}}
    assert stored["status"]["currentMetrics"] == [{"type": "Pods", "pods": current}]


async def test_a_missing_target_is_reported_and_does_not_affect_others(cluster: Cluster) -> None:
    cluster.add_hpa("lost", target="nowhere")
    cluster.add_deployment("web", replicas=1)
    cluster.add_hpa("web")
    cluster.metrics.value = "20"
    async with autoscaler(cluster):
        await until(lambda: cluster.replicas("web") == 2)
        await until(lambda: cluster.condition("lost", "AbleToScale") == ("False", "FailedGetScale"))
        await some_syncs(cluster)
    events = await cluster.events("lost")
    assert [(reason, message) for reason, message, _ in events] == [
        ("FailedGetScale", 'deployments.apps "nowhere" not found')
    ]
    assert events[0][2] > 1


async def test_a_bug_is_logged_and_counted_and_does_not_affect_others(
    cluster: Cluster, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def decide_unless_odd(
        observation: Observation, history: History, now_ms: int, *, monotonic_ms: int | None = None
    ) -> Decision:
        if observation.hpa.name == "odd":
            raise RuntimeError("unheard of")
        return decide(observation, history, now_ms, monotonic_ms=monotonic_ms)

    monkeypatch.setattr("autoscaler.loop.reconcile.decide", decide_unless_odd)
    for name in ("odd", "web"):
        cluster.add_deployment(name, replicas=1)
        cluster.add_hpa(name)
    cluster.metrics.value = "20"
    telemetry = Telemetry()
    async with autoscaler(cluster, telemetry=telemetry):
        await until(lambda: caplog.text.count("default/odd: internal error") >= 6)  # more often than there are workers
        await until(lambda: cluster.replicas("web") == 2)
    assert cluster.replicas("odd") == 1
    shown = telemetry.render().decode()
    assert 'horizontal_pod_autoscaler_controller_reconciliations_total{action="none",error="internal"} ' in shown


async def test_selectors_of_an_earlier_term_are_not_used(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    """While another process led, a target was replaced by one that selects other pods; no HPA's own spec changed."""
    caplog.set_level(logging.WARNING)
    election = ElectionSettings(namespace="default", name="lock", retry_period=0.05)
    options = Options(
        sync_period=NEVER,
        workers=1,  # one reconciliation after the other: the first ends before the second HPA's selector is known anew
        bind_address="127.0.0.1",
        metrics_port=0,
        availability=Availability(election=election),
    )
    lease = "/apis/coordination.k8s.io/v1/namespaces/default/leases/lock"
    cluster.add_deployment("one", replicas=1)
    cluster.add_deployment("two", replicas=1, selects="one")
    cluster.add_hpa("one")
    cluster.add_hpa("two")
    async with autoscaler(cluster, options, kubeconfig=cluster.server.kubeconfig()):
        await until(lambda: cluster.condition("two", "ScalingActive") == ("False", "AmbiguousSelector"))
        await cluster.admin.patch(lease, {"spec": {"holderIdentity": "another", "leaseDurationSeconds": 3600}})
        await until(lambda: "leader election lost" in caplog.text)
        await cluster.admin.delete("/apis/apps/v1/namespaces/default/deployments/two")
        cluster.add_deployment("two", replicas=1)
        await cluster.admin.patch(lease, {"spec": {"holderIdentity": ""}})
        await until(lambda: cluster.condition("two", "ScalingActive") == ("True", "ValidMetricFound"))
        assert cluster.condition("one", "ScalingActive") == ("True", "ValidMetricFound")
        assert "AmbiguousSelector" not in {reason for reason, _, _ in await cluster.events("one")}


async def test_a_standby_schedules_nothing_until_it_leads(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its queue would grow with each HPA that is created and deleted, and nothing would take keys from it.

    What it knows of a deleted HPA from an earlier term is dropped.
    """
    scheduled: set[str] = set()

    class Queue(WorkQueue[HPAKey]):
        def add_after(self, key: HPAKey, delay: float) -> None:
            scheduled.add(key.name)
            super().add_after(key, delay)

    forgotten: list[str] = []
    monkeypatch.setattr(controller, "WorkQueue", Queue)
    monkeypatch.setattr(Reconciler, "forget", lambda _, key: forgotten.append(key.name))
    await hold_lease(cluster)
    options = replace(QUICK, availability=STANDBY.availability)
    telemetry = Telemetry()
    cluster.add_deployment("web", replicas=1)
    async with autoscaler(cluster, options, kubeconfig=cluster.server.kubeconfig(), telemetry=telemetry):
        for name in ("one", "web"):
            cluster.add_hpa(name)
        await until(lambda: b"num_horizontal_pod_autoscalers 2.0" in telemetry.render())
        await cluster.admin.delete("/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers/one")
        await until(lambda: b"num_horizontal_pod_autoscalers 1.0" in telemetry.render())
        assert (scheduled, forgotten) == (set(), ["one"])
        await release_lease(cluster)
        await until(lambda: cluster.condition("web", "ScalingActive") == ("True", "ValidMetricFound"))
        assert scheduled == {"web"}


async def test_a_changed_spec_or_annotation_is_reconciled_at_once_and_a_changed_status_is_not(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    delays: list[float] = []

    class Queue(WorkQueue[HPAKey]):
        def add_after(self, key: HPAKey, delay: float) -> None:
            delays.append(delay)
            super().add_after(key, delay)

    monkeypatch.setattr(controller, "WorkQueue", Queue)
    cluster.add_deployment("web", replicas=3)
    async with autoscaler(cluster, Options(sync_period=NEVER, bind_address="127.0.0.1", metrics_port=0)):
        cluster.add_hpa("web")
        await until(lambda: cluster.condition("web", "ScalingActive") == ("True", "ValidMetricFound"))
        assert cluster.syncs() == 1
        await cluster.patch_hpa("web", maxReplicas=2)
        await until(lambda: cluster.replicas("web") == 2)
        assert cluster.syncs() == 2
        path = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers/web"
        await cluster.admin.patch(path, {"metadata": {"annotations": {"milliscale.io/tolerance": "0.5"}}})
        await until(lambda: cluster.syncs() == 3)
        await until(lambda: delays == [0.0, NEVER] * 3)


async def test_first_reconciliations_are_spread(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundredth of a second apart, and handed out at the end of each tenth."""
    now, taken = [1000.0], Counter[float]()
    queue = partial(WorkQueue, clock=lambda: now[0])

    def new_queue(*, on_lag: Callable[[float], None], **others: Any) -> WorkQueue[HPAKey]:
        def note(lag: float) -> None:
            on_lag(lag)
            taken[now[0]] += 1

        return queue(on_lag=note, **others)

    monkeypatch.setattr(controller, "WorkQueue", new_queue)
    for number in range(24):
        cluster.add_hpa(f"app-{number}")
    async with autoscaler(cluster, Options(qps=0, bind_address="127.0.0.1", metrics_port=0)):
        for count in (1, 11, 21, 24):
            await until(partial(at_least, taken, count))
            now[0] += 0.125
    assert [*taken.values()] == [1, 10, 10, 3]


async def test_first_reconciliations_take_no_longer_than_a_sync_period(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where there are too many to be a hundredth of a second apart, they are closer together."""
    schedule: dict[str, float] = {}

    class Queue(WorkQueue[HPAKey]):
        def add_after(self, key: HPAKey, delay: float) -> None:
            schedule.setdefault(key.name, delay)
            super().add_after(key, delay)

    monkeypatch.setattr(controller, "WorkQueue", Queue)
    for number in range(8):
        cluster.add_hpa(f"app-{number}")
    async with autoscaler(cluster, replace(QUICK, sync_period=0.04)):
        await until(lambda: len(schedule) == 8)
    assert schedule == pytest.approx({f"app-{number}": number * 0.005 for number in range(8)})


@pytest.mark.parametrize("unfinished", [False, True])
async def test_the_final_history_is_complete_unless_a_reconciliation_was_cancelled(
    unfinished: bool, cluster: Cluster
) -> None:
    """A cancelled reconciliation may have scaled, and the history does not have it."""
    settings = Settings(shutdown=ShutdownSettings(reconcile_seconds=0.1 if unfinished else SOON))
    cluster.add_deployment("web", replicas=1)
    cluster.add_hpa("web")
    location = SavedHistoryLocation(namespace="default", name="state")
    options = replace(QUICK, availability=Availability(saved_history=location), settings=settings)
    async with autoscaler(cluster, options, kubeconfig=cluster.server.kubeconfig()):
        await until(lambda: cluster.condition("web", "ScalingActive") == ("True", "ValidMetricFound"))
        if unfinished:
            cluster.metrics.held = asyncio.Event()
            before = cluster.metrics.requests
            await until(lambda: cluster.metrics.requests > before)
    if cluster.metrics.held is not None:
        cluster.metrics.held.set()
    client = ThrottledClient(cluster.admin, TokenBucket(qps=0, burst=1))
    (saved,) = (await SavedHistoryStore(client, location=location, shard=Shard()).load()).values()
    assert saved.history.recommendations
    assert saved.history.complete is not unfinished


async def test_a_reconciliation_in_flight_finishes_before_the_end(cluster: Cluster) -> None:
    cluster.add_deployment("web", replicas=1)
    cluster.add_hpa("web")
    cluster.metrics.value, cluster.metrics.held = "30", asyncio.Event()
    async with autoscaler(cluster) as running:
        await until(lambda: cluster.metrics.requests > 0)
        running.stop.set()
        await until(lambda: running.logged("stopping"))
        cluster.metrics.held.set()
    assert cluster.replicas("web") == 3
    assert cluster.condition("web", "AbleToScale") == ("True", "SucceededRescale")
    assert [reason for reason, _, _ in await cluster.events("web")] == ["SuccessfulRescale"]


async def test_the_end_does_not_wait_for_events_that_cannot_be_sent(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hang(_: EventRecorder) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(EventRecorder, "close", hang)
    cluster.add_deployment("web", replicas=1)
    cluster.add_hpa("web")
    settings = Settings(shutdown=ShutdownSettings(flush_seconds=0.05))
    async with autoscaler(cluster, replace(QUICK, settings=settings)) as running:
        await until(lambda: cluster.syncs() > 0)
    assert running.logged("stopping before all events were sent and the history was saved")


async def test_the_history_of_an_hpa_that_was_deleted_meanwhile_is_not_restored(cluster: Cluster) -> None:
    """An HPA of an API that is not listed may exist."""
    cluster.add_hpa("web")
    location = SavedHistoryLocation(namespace="default", name="state")
    store = SavedHistoryStore(
        ThrottledClient(cluster.admin, TokenBucket(qps=0, burst=1)), location=location, shard=Shard()
    )
    histories, recent = Histories(), History(recommendations=(Recommendation(1, round(time.monotonic() * 1000)),))
    names = [("web", KUBERNETES), ("deleted", KUBERNETES), ("unlisted", MILLISCALE)]
    for name, api in names:
        tracked = track_hpa({**cluster.hpa("web"), "metadata": {"name": name, "namespace": "default"}}, api=api)
        assert tracked is not None
        histories.replace(tracked, recent)
    await store.save(histories)
    options = replace(QUICK, availability=Availability(saved_history=location), optional_hpa_apis=())
    async with autoscaler(cluster, options, kubeconfig=cluster.server.kubeconfig()):
        await until(lambda: cluster.condition("web", "AbleToScale") is not None)
    assert {key.name for key in await store.load()} == {"web", "unlisted"}


async def test_with_more_hpas_there_are_more_workers(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autoscaler.loop.options._HPAS_PER_WORKER", 2)
    cluster.metrics.held = asyncio.Event()
    async with autoscaler(cluster, Options(qps=0, bind_address="127.0.0.1", metrics_port=0)):
        for number in range(8):
            cluster.add_deployment(f"app-{number}", replicas=1)
            cluster.add_hpa(f"app-{number}")
        await until(lambda: cluster.syncs() == 8)  # none of which ends
        cluster.metrics.held.set()


async def test_a_request_for_metrics_that_hangs_ends_before_others_do(cluster: Cluster) -> None:
    reconciliation = ReconciliationSettings(metrics_seconds=0.2)
    cluster.metrics.held = asyncio.Event()
    cluster.metrics.value = "20"
    cluster.add_deployment("web", replicas=1)
    cluster.add_hpa("web")
    async with autoscaler(cluster, replace(QUICK, settings=Settings(reconciliation=reconciliation))):
        await until(lambda: cluster.condition("web", "ScalingActive") == ("False", "FailedGetPodsMetric"))
        assert "the API server did not respond in time" in str(await cluster.events("web"))
        cluster.metrics.held.set()
        await until(lambda: cluster.replicas("web") == 2)


async def test_a_slow_metric_of_a_namespace_holds_no_worker_of_another(cluster: Cluster) -> None:
    cluster.metrics.held = asyncio.Event()
    cluster.metrics.held_namespace = "default"
    cluster.server.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}})
    for namespace in ("default", "other"):
        cluster.add_deployment("web", replicas=1, namespace=namespace)
        cluster.add_hpa("web", namespace=namespace)
    cluster.metrics.value = "20"
    async with autoscaler(cluster, replace(QUICK, workers=1)):
        await until(lambda: cluster.replicas("web", namespace="other") == 2)
        assert cluster.replicas("web") == 1
        assert cluster.condition("web", "ScalingActive") is None  # still in its first reconciliation
        cluster.metrics.held.set()
        await until(lambda: cluster.replicas("web") == 2)


async def test_only_the_rights_of_kubernetes_own_controller_are_used(cluster: Cluster) -> None:
    cluster.add_deployment("web", replicas=1)
    cluster.add_hpa("web")
    cluster.metrics.value = "20"
    async with autoscaler(cluster):
        await until(lambda: cluster.replicas("web") == 2)
        await some_syncs(cluster, 2)
    used = {(verb, what) for verb, what in cluster.server.requests.by_user(AUTOSCALER) if not what.startswith("/")}
    assert used == {
        ("list", "horizontalpodautoscalers"),
        ("watch", "horizontalpodautoscalers"),
        ("update", "horizontalpodautoscalers/status"),
        ("list", "pods"),
        ("watch", "pods"),
        ("get", "deployments/scale"),
        ("update", "deployments/scale"),
        ("get", "pods/packets_per_second"),
        ("create", "events"),
    }


@pytest.mark.looptime(start=time.monotonic)
async def test_a_disconnected_api_server_is_logged_once(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    cluster.add_deployment("web", replicas=1)
    cluster.add_hpa("web")
    async with autoscaler(cluster):
        await until(lambda: cluster.condition("web", "ScalingActive") == ("True", "ValidMetricFound"))
        caplog.clear()
        await cluster.server.hang_up()
        await until(lambda: len(caplog.records) >= 2)
        await asyncio.sleep(0.5)  # ten sync periods in which nothing more may be logged
        assert sorted(record.name for record in caplog.records if record.levelno >= logging.WARNING) == [
            "kube.cache.store",
            "kube.cache.store",
        ]
        await cluster.server.listen()
        cluster.metrics.value = "20"
        await until(lambda: cluster.replicas("web") == 2)


async def test_health_and_metrics_while_it_runs(cluster: Cluster) -> None:
    cluster.add_deployment("web", replicas=1)
    cluster.add_hpa("web")
    async with autoscaler(cluster) as running:
        await until(lambda: cluster.condition("web", "ScalingActive") == ("True", "ValidMetricFound"))
        assert await running.get("/readyz?verbose") == "[+]ping ok\n[+]hpas ok\n[+]pods ok\nreadyz check passed\n"
        assert await running.metric("num_horizontal_pod_autoscalers") == 1
        assert "# TYPE rest_client_request_retries_total counter" in await running.get("/metrics")
        desired = 'desired_replicas{hpa_name="web",namespace="default"}'
        await running.reaches(desired, 1)
        assert await running.metric("event_loop_lag_seconds_count") > 0
        await cluster.admin.delete("/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers/web")

        async def gone() -> bool:
            assert await running.metric("num_horizontal_pod_autoscalers") == 0
            return desired not in await running.get("/metrics")

        await eventually(gone, every=0.01)


async def test_an_api_server_that_is_away_is_waited_for_and_logged_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = 0

    async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal tries
        tries += 1
        writer.transport.abort()

    # A request is retried for 30 s at most, and an error is logged only then.
    monkeypatch.setattr("kube.api.retries._MAX_RETRIES", 0)
    async with await asyncio.start_server(hang_up, "127.0.0.1", 0) as nobody:
        kubeconfig = ScriptedServer(url=f"http://127.0.0.1:{nobody.sockets[0].getsockname()[1]}").kubeconfig(tmp_path)
        async with running_controller(kubeconfig, QUICK) as running:

            def away() -> list[str]:
                return [line for line in running.log_lines if "cannot be reached" in line]

            await until(lambda: len(away()) == 2)
            assert "hpas failed: not listed yet" in await running.get("/readyz")
            assert await running.get("/livez") == "ok"
            enough = tries + 4
            await until(lambda: tries >= enough)
            assert len(away()) == 2, "one for the HPAs, one for the pods"
