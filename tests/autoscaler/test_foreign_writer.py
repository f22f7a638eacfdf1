"""Kubernetes' own controller writes the same HPAs: which writes count, and the effects."""

from dataclasses import replace
from typing import Any

import pytest

from autoscaler.core.config import Mode
from autoscaler.core.model import HPAKey
from autoscaler.loop.foreign_writer import EVENT_REASON, ForeignWriterDetector, event_message
from autoscaler.objects.hpa import track_hpa
from kube.api.mapping import GroupResource
from tests.autoscaler.cluster import QUICK, Cluster, running_controller
from tests.autoscaler.test_modes import STANDBY, hold_lease, release_lease
from tests.eventually import until

WEB = HPAKey("default", "web")
RESOURCE = GroupResource("autoscaling", "horizontalpodautoscalers")
BEFORE, AFTER, LATER = "2026-01-01T00:00:00Z", "2026-01-01T00:00:15Z", "2026-01-01T00:10:00Z"
KCM, NEVER = "kube-controller-manager", ("", "")
SERIES = "foreign_status_writes_total"


class Clock:
    now = 0.0


def entry(manager: str = "kube-controller-manager", time: str = BEFORE, subresource: str = "status") -> dict[str, Any]:
    return {"manager": manager, "operation": "Update", "subresource": subresource, "time": time, "fieldsV1": {}}


# --- what tells ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("managed_fields", "write"),
    [
        ([entry("kubectl", AFTER, ""), entry("milliscale-autoscaler", AFTER), entry(time=BEFORE)], (BEFORE, KCM)),
        *(([entry(manager)], (BEFORE, manager)) for manager in ("k3s", "kubelite", "microshift", "unheard-of")),
        ([entry(time=AFTER), entry("k3s", BEFORE)], (AFTER, KCM)),
        ([entry(subresource="scale")], NEVER),
        ([entry("milliscale-autoscaler")], NEVER),
        ([], NEVER),
        (None, NEVER),
        (["strange", {"manager": 3}], NEVER),
    ],
)
def test_the_last_status_write_of_another_is_read_from_managed_fields(
    managed_fields: object, write: tuple[str, str]
) -> None:
    metric = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization"}}}
    tracked = track_hpa(
        {
            "metadata": {"namespace": "default", "name": "web", "managedFields": managed_fields},
            "spec": {
                "scaleTargetRef": {"kind": "Deployment", "name": "web"},
                "maxReplicas": 3,
                "metrics": [metric],
            },
        }
    )
    assert tracked is not None
    assert tracked.foreign_write == write
    assert b"managedFields" not in tracked.metadata


class Detector(ForeignWriterDetector):
    """A detector with a clock that a test sets; calls are recorded."""

    def __init__(self, *, allowed: bool = False) -> None:
        self.time = Clock()
        self.writes = 0
        self.released: list[HPAKey] = []
        super().__init__(
            allowed=allowed, on_write=self._count, on_release=self.released.append, clock=lambda: self.time.now
        )

    def _count(self) -> None:
        self.writes += 1


def seen(*times: str, acting: bool = True, allowed: bool = False) -> tuple[Detector, list[bool]]:
    """A detector that has seen an HPA with these times of foreign writes, and its response to each."""
    detector = Detector(allowed=allowed)
    return detector, [detector.changed(WEB, (each, KCM if each else ""), acting=acting) for each in times]


def test_earlier_writes_of_the_other_controller_do_not_count() -> None:
    """An old entry does not count: it stays until another manager has written all of its fields."""
    detector, stops = seen(BEFORE, BEFORE, "", BEFORE)
    assert stops == [False] * 4
    assert not detector.is_foreign(WEB)
    assert detector.writes == 0
    assert detector.problem is None


@pytest.mark.parametrize("before", ["", BEFORE])
def test_a_new_write_ends_acting_on_that_hpa_and_no_other(before: str) -> None:
    detector, stops = seen(before, AFTER)
    assert stops == [False, True]
    assert detector.is_foreign(WEB)
    assert not detector.is_foreign(replace(WEB, name="api"))
    assert (len(detector), detector.writes) == (1, 1)


def test_foreign_hpa_is_reported_once() -> None:
    assert seen(BEFORE, AFTER, LATER, LATER)[1] == [False, True, False, False]


def test_a_process_that_does_not_act_only_records_the_time() -> None:
    detector, stops = seen(BEFORE, AFTER, acting=False)
    assert stops == [False, False]
    assert not detector.changed(WEB, (AFTER, KCM), acting=True), "written before this process began to act"
    assert not detector.is_foreign(WEB)
    assert detector.changed(WEB, (LATER, KCM), acting=True)


def test_hpa_is_released_after_ten_minutes_with_an_outdated_status() -> None:
    detector, _ = seen(BEFORE, AFTER)
    detector.decided(WEB, True)
    detector.time.now += 400
    detector.changed(WEB, (LATER, KCM), acting=True)
    for _ in range(2):
        detector.decided(WEB, True)
        detector.time.now += 600
    detector.time.now -= 600
    detector.decided(WEB, True)
    assert detector.is_foreign(WEB)
    assert detector.released == []
    detector.time.now += 1
    detector.decided(WEB, True)
    assert not detector.is_foreign(WEB)
    assert detector.released == [WEB]
    assert len(detector) == 0
    assert detector.changed(WEB, ("2026-01-01T00:20:00Z", KCM), acting=True), "and the next begins it again"


def test_a_controller_that_has_nothing_to_write_is_not_gone() -> None:
    """While the metrics do not change it writes nothing, and scales all the same as soon as they do."""
    detector, _ = seen(BEFORE, AFTER)
    for outdated in (False, True, False, False):
        detector.time.now += 599
        detector.decided(WEB, outdated)
    assert detector.is_foreign(WEB)
    assert detector.problem is not None


def test_an_hpa_without_decisions_is_not_released() -> None:
    """As by a standby, which takes over hours later."""
    detector, _ = seen(BEFORE, AFTER)
    detector.time.now += 7200
    assert detector.is_foreign(WEB)
    detector.decided(WEB, True)
    assert detector.is_foreign(WEB)


def test_allow_foreign_controller_only_reports() -> None:
    detector, stops = seen(BEFORE, AFTER, allowed=True)
    assert stops == [False, False]
    assert not detector.is_foreign(WEB)
    assert detector.writes == 1
    assert detector.problem is not None
    assert "so two controllers scale the same targets" in detector.problem


def test_an_hpa_created_again_is_not_foreign() -> None:
    detector, _ = seen(BEFORE, AFTER)
    detector.forget(WEB)
    assert not detector.is_foreign(WEB)
    assert not detector.changed(WEB, (LATER, KCM), acting=True)


def test_foreign_hpas_are_logged_again_after_there_were_none(caplog: pytest.LogCaptureFixture) -> None:
    detector = Detector()
    for number in range(4):
        detector.changed(WEB, (f"2026-01-01T00:{number:02}:00Z", "k3s"), acting=True)
        detector.time.now += 700
    assert len(caplog.records) == 1
    assert "k3s writes the status of HPAs, too" in caplog.text
    assert "default/web" in caplog.text
    assert "so this process does not act on those" in caplog.text
    assert "--controllers=*,-horizontal-pod-autoscaler-controller" in caplog.text
    detector.forget(WEB)
    assert detector.problem is None
    for time in (LATER, "2026-01-02T00:00:00Z", "2026-01-03T00:00:00Z"):
        detector.changed(WEB, (time, "k3s"), acting=True)
    assert len(caplog.records) == 2


# --- the whole loop ------------------------------------------------------------------------------------------------


@pytest.fixture
async def cluster(cluster: Cluster) -> Cluster:
    cluster.add_deployment("web", replicas=2)
    cluster.add_hpa("web", most=8)
    return cluster


def foreign_write(cluster: Cluster, time: str) -> None:
    """Store the HPA with a status write of kube-controller-manager."""
    hpa = cluster.hpa("web")
    cluster.server.storage.put(RESOURCE, {**hpa, "metadata": {**hpa["metadata"], "managedFields": [entry(time=time)]}})


async def test_in_other_modes_than_act_foreign_writes_do_not_count(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_controller(cluster.kubeconfig, replace(QUICK, mode=Mode.DRY_RUN)) as running:
        await running.reaches("schedule_lag_seconds_count", 1)
        foreign_write(cluster, AFTER)
        await running.reaches("schedule_lag_seconds_count", 3)
        ready = await running.get("/readyz?verbose")
    assert "foreignWriter" not in ready
    assert not any(record.name == "autoscaler.loop.foreign_writer" for record in caplog.records)


async def test_hpa_written_by_another_controller_is_not_scaled(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.add_deployment("api", replicas=2)
    cluster.add_hpa("api", most=8)
    async with running_controller(cluster.kubeconfig, QUICK) as running:
        await until(lambda: cluster.status_writes() >= 2)
        foreign_write(cluster, AFTER)
        await running.reaches(SERIES, 1)
        cluster.metrics.value = "20"
        await until(lambda: cluster.replicas("api") == 4)
        decided = 'decisions_total{action="scale_up",reason="ValidMetricFound"}'
        await running.reaches(decided, 4)
        assert await running.metric("foreign_controlled_hpas") == 1
        ready = await running.get("/readyz?verbose")
    assert cluster.replicas("web") == 2
    assert "[!]foreignWriter: kube-controller-manager writes the status of HPAs, too (last seen: default/web)" in ready
    assert ready.endswith("readyz check passed\n")
    assert (EVENT_REASON, event_message(KCM), 1) in await cluster.events("web")
    assert "SuccessfulRescale" not in [reason for reason, _, _ in await cluster.events("web")]


async def test_standby_knows_foreign_hpas_when_it_becomes_leader(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    await hold_lease(cluster)
    async with running_controller(cluster.server.kubeconfig(), STANDBY) as running:
        await until(lambda: running.logged("1 HPAs, 2 pods"))
        foreign_write(cluster, AFTER)
        await running.reaches(SERIES, 1)
        cluster.metrics.value = "20"
        await release_lease(cluster)
        decided = 'decisions_total{action="scale_up",reason="ValidMetricFound"}'
        await running.reaches(decided, 2)
    assert cluster.replicas("web") == 2


async def test_allow_foreign_controller_keeps_acting(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    async with running_controller(cluster.kubeconfig, replace(QUICK, allow_foreign_controller=True)) as running:
        await until(lambda: cluster.status_writes() >= 1)
        foreign_write(cluster, AFTER)
        await running.reaches(SERIES, 1)
        cluster.metrics.value = "20"
        await until(lambda: cluster.replicas("web") == 4)
