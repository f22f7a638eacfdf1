"""One reconciliation: the order of its writes, the effect of each failure, and the history that it leaves."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from autoscaler.core.config import Config
from autoscaler.core.model import HPA, MILLISCALE
from autoscaler.core.observation import Pod, ReadyCondition
from autoscaler.loop.clocks import Clocks
from autoscaler.loop.histories import Histories
from autoscaler.loop.metrics_client import MetricsClient
from autoscaler.loop.observe import Observer
from autoscaler.loop.pod_owners import PodIndex
from autoscaler.loop.reconcile import Reconciler
from autoscaler.loop.scales import ScaleClient
from autoscaler.loop.selector_index import SelectorIndex
from autoscaler.loop.telemetry import Telemetry
from autoscaler.objects.hpa import track_hpa
from autoscaler.records.decision_log import DecisionLog
from autoscaler.records.record import Written
from autoscaler.records.shadow import Comparison, ShadowComparer, Verdict
from kube.api.client import KubeClient
from kube.api.mapping import RestMapper
from kube.controller.events import EventRecorder
from kube.controller.flowcontrol import ThrottledClient
from tests.kube.scripted_api import ScriptedApi

SCALE = "/apis/apps/v1/namespaces/default/deployments/web/scale"
STATUS = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers/web/status"
DEPTH = "/apis/external.metrics.k8s.io/v1beta1/namespaces/default/depth"
MILLISCALE_STATUS = "/apis/milliscale.io/v1/namespaces/default/horizontalpodautoscalers/web/status"
EVENTS = "/api/v1/namespaces/default/events"
FLAGS = Config(downscale_stabilization_ms=60_000)
PREFIX = "horizontal_pod_autoscaler_controller"


class WallClock:
    """A wall clock; in `monotonic` one that nobody sets, which is all that differs."""

    now = 1_767_323_045.0
    set_by = 0.0

    def __call__(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now - self.set_by - 1_767_000_000.0

    def set(self, seconds: float) -> None:
        """Set the wall clock forward, or back."""
        self.now += seconds
        self.set_by += seconds


def hpa(
    *,
    name: str = "web",
    uid: str = "u-1",
    metric_type: str = "External",
    status: Any = None,
    behavior: Any = None,
    **annotations: str,
) -> HPA:
    """An HPA that wants one replica for each 10 of `depth`; `annotations` are ours, with _ for -."""
    ours = {f"milliscale.io/{name.replace('_', '-')}": text for name, text in annotations.items()}
    metadata = {"name": name, "namespace": "default", "uid": uid, "resourceVersion": "1", "annotations": ours}
    target = {"type": "AverageValue", "averageValue": "10"}
    tracked = track_hpa(
        {
            "metadata": metadata,
            "spec": {
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
                "minReplicas": 1,
                "maxReplicas": 40,
                "metrics": [{"type": metric_type, "external": {"metric": {"name": "depth"}, "target": target}}],
                "behavior": behavior,
            },
            "status": status,
        }
    )
    assert tracked is not None
    return tracked


def reconciler_of(client: ThrottledClient, kube: KubeClient, config: Config = FLAGS, **parts: Any) -> Reconciler:
    """A reconciler of HPAs whose target has one pod, with other parts than the usual."""
    ready = ReadyCondition(status="True", last_transition_ms=0)
    web = Pod(name="web-0", namespace="default", labels={"app": "web"}, phase="Running", ready=ready)
    pods: PodIndex = PodIndex()
    pods.apply(("default", "web-0"), None, web)
    mapper = RestMapper(kube)
    scales = ScaleClient(client, mapper)
    metrics = MetricsClient(resource=client, custom=client, external=client, mapper=mapper, version_seconds=15)
    usual = {
        "recorder": EventRecorder(client, component="horizontal-pod-autoscaler"),
        "telemetry": Telemetry(),
        "decisions": DecisionLog(1000),
        "shadow": ShadowComparer(sync_period=15, config=config),
    }
    return Reconciler(
        observer=Observer(scales=scales, metrics=metrics, pods=pods, selectors=SelectorIndex(), config=config),
        scales=scales,
        client=client,
        histories=Histories(),
        **{**usual, **parts},
    )


def scaled_to(api: ScriptedApi, replicas: int) -> None:
    api.on("GET", SCALE, {"spec": {"replicas": replicas}, "status": {"replicas": replicas, "selector": "app=web"}})


def depth(api: ScriptedApi, value: int) -> None:
    api.on("GET", DEPTH, {"items": [{"value": str(value)}]})


@pytest.fixture
def clock() -> WallClock:
    return WallClock()


@pytest.fixture
def telemetry() -> Telemetry:
    return Telemetry()


@pytest.fixture
async def recorder(api: ScriptedApi, client: ThrottledClient) -> AsyncIterator[EventRecorder]:
    api.on("POST", EVENTS, lambda recorded: recorded.body)
    recorder = EventRecorder(client, component="horizontal-pod-autoscaler")
    task = asyncio.create_task(recorder.run())
    yield recorder
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
def decisions() -> DecisionLog:
    return DecisionLog(5)


@pytest.fixture
def shadow(telemetry: Telemetry) -> ShadowComparer:
    return ShadowComparer(sync_period=15, config=FLAGS, on_comparison=telemetry.compared)


@pytest.fixture
def reconciler(
    api: ScriptedApi,
    client: ThrottledClient,
    kube: KubeClient,
    recorder: EventRecorder,
    telemetry: Telemetry,
    shadow: ShadowComparer,
    decisions: DecisionLog,
    clock: WallClock,
) -> Reconciler:
    api.on("GET", "/apis", {"groups": [{"name": "apps", "versions": [{"version": "v1"}]}]})
    deployments = {"name": "deployments", "kind": "Deployment", "namespaced": True}
    api.on("GET", "/apis/apps/v1", {"resources": [deployments]})
    scaled_to(api, 2)
    api.on("PUT", SCALE, {})
    api.on("PUT", STATUS, {})
    return reconciler_of(
        client,
        kube,
        recorder=recorder,
        telemetry=telemetry,
        decisions=decisions,
        shadow=shadow,
        clocks=Clocks(clock, clock.monotonic),
    )


def condition(status: dict[str, Any], type_: str) -> tuple[str, str]:
    return next((each["status"], each["reason"]) for each in status["conditions"] if each["type"] == type_)


def written_status(api: ScriptedApi) -> dict[str, Any]:
    status: dict[str, Any] = api.named("PUT", STATUS)[-1].body["status"]
    return status


def shown(telemetry: Telemetry) -> list[str]:
    return telemetry.render().decode().splitlines()


async def reasons(api: ScriptedApi, recorder: EventRecorder) -> list[str]:
    await recorder.flush()
    return [recorded.body["reason"] for recorded in api.named("POST", EVENTS)]


async def test_an_early_reconciliation_that_does_not_scale_up_has_no_effect(
    api: ScriptedApi, reconciler: Reconciler, decisions: DecisionLog
) -> None:
    """The metric may have fallen since a look at it."""
    for depth in (20, 5):  # for two replicas, for one
        api.on("GET", DEPTH, {"items": [{"value": str(depth)}]})
        assert not await reconciler.scale_up_early(hpa(), timeout=5)
    assert api.named("PUT") == []
    assert decisions.newest_first(max_bytes=10**6) == []
    api.on("GET", DEPTH, {"items": [{"value": "30"}]})
    assert await reconciler.scale_up_early(hpa(), timeout=5)
    assert [each.body["spec"] for each in api.named("PUT", SCALE)] == [{"replicas": 3}]


async def test_the_scale_is_written_before_the_status(
    api: ScriptedApi, reconciler: Reconciler, recorder: EventRecorder
) -> None:
    depth(api, 35)
    assert await reconciler.reconcile(hpa()) is None
    assert [recorded.path for recorded in api.named("PUT")] == [SCALE, STATUS]
    assert api.named("PUT", SCALE)[0].body["spec"]["replicas"] == 4
    assert written_status(api)["desiredReplicas"] == 4
    assert written_status(api)["lastScaleTime"] == "2026-01-02T03:04:05Z"
    assert await reasons(api, recorder) == ["SuccessfulRescale"]


async def test_a_failed_scale_write_is_reported_and_the_status_stored(
    api: ScriptedApi, reconciler: Reconciler, recorder: EventRecorder
) -> None:
    depth(api, 35)
    api.fail("PUT", SCALE, 403, "admission webhook denied the request")
    error = await reconciler.reconcile(hpa())
    assert error == "failed to rescale Deployment/default/web: admission webhook denied the request"
    assert condition(written_status(api), "AbleToScale") == ("False", "FailedUpdateScale")
    assert await reasons(api, recorder) == ["FailedRescale"]


async def test_a_status_is_stored_on_the_version_that_was_decided_on_with_its_metadata(
    api: ScriptedApi, reconciler: Reconciler
) -> None:
    tracked = hpa(tolerance="0.2")
    depth(api, 20)
    await reconciler.reconcile(tracked)
    metadata = api.named("PUT", STATUS)[0].body["metadata"]
    assert metadata == {
        "name": "web",
        "namespace": "default",
        "uid": "u-1",
        "resourceVersion": "1",
        "annotations": {"milliscale.io/tolerance": "0.2"},
    }


async def test_an_unchanged_status_is_not_stored(api: ScriptedApi, reconciler: Reconciler) -> None:
    depth(api, 20)
    await reconciler.reconcile(hpa())
    await reconciler.reconcile(hpa(status=written_status(api)))
    assert len(api.named("PUT", STATUS)) == 1


async def test_a_failed_status_write_is_reported(
    api: ScriptedApi, reconciler: Reconciler, recorder: EventRecorder, decisions: DecisionLog
) -> None:
    depth(api, 35)
    api.fail("PUT", STATUS, 409, "the object has been modified")
    error = await reconciler.reconcile(hpa())
    assert error == "failed to update status for web: the object has been modified"
    assert await reasons(api, recorder) == ["SuccessfulRescale", "FailedUpdateStatus"]
    page = await decisions.page("default", "web")
    assert page is not None
    assert page.decisions[0].written == Written(replicas=4, status_error="the object has been modified")


@pytest.mark.parametrize("seconds", [600, -3600], ids=["ten minutes forward", "an hour back"])
async def test_a_wall_clock_that_is_set_moves_no_window(
    seconds: float, api: ScriptedApi, reconciler: Reconciler, clock: WallClock
) -> None:
    scaled_to(api, 10)
    depth(api, 100)
    await reconciler.reconcile(hpa())
    clock.set(seconds)
    clock.now += 59
    depth(api, 10)
    await reconciler.reconcile(hpa())
    assert not api.named("PUT", SCALE), "the window of a minute has not passed"
    clock.now += 2
    await reconciler.reconcile(hpa())
    assert api.named("PUT", SCALE)[0].body["spec"]["replicas"] == 1, "it has passed, by any clock but the wall's"


@pytest.mark.parametrize("seconds", [600, -3600], ids=["ten minutes forward", "an hour back"])
async def test_a_wall_clock_that_is_set_moves_no_rate_limit(
    seconds: float, api: ScriptedApi, reconciler: Reconciler, clock: WallClock
) -> None:
    two_a_minute = {"scaleUp": {"policies": [{"type": "Pods", "value": 2, "periodSeconds": 60}]}, "scaleDown": {}}
    depth(api, 200)
    await reconciler.reconcile(hpa(behavior=two_a_minute))
    scaled_to(api, 4)
    clock.set(seconds)
    clock.now += 59
    await reconciler.reconcile(hpa(behavior=two_a_minute))
    assert len(api.named("PUT", SCALE)) == 1, "the minute has not passed"
    clock.now += 2
    await reconciler.reconcile(hpa(behavior=two_a_minute))
    assert [recorded.body["spec"]["replicas"] for recorded in api.named("PUT", SCALE)] == [4, 6]


async def test_statuses_and_records_have_the_wall_clocks_time(
    api: ScriptedApi, reconciler: Reconciler, decisions: DecisionLog, clock: WallClock
) -> None:
    scaled_to(api, 4)
    depth(api, 40)
    await reconciler.reconcile(hpa())
    clock.set(-3600)
    clock.now += 15
    depth(api, 10)
    await reconciler.reconcile(hpa())
    clock.now += 46
    await reconciler.reconcile(hpa())
    assert written_status(api)["lastScaleTime"] == "2026-01-02T02:05:06Z"
    page = await decisions.page("default", "web")
    assert page is not None
    first, held, last = page.decisions
    assert [each.time[:19] for each in (first, held, last)] == [
        "2026-01-02T03:04:05",
        "2026-01-02T02:04:20",
        "2026-01-02T02:05:06",
    ]
    assert held.stabilization is not None
    assert held.stabilization.recommendation is not None
    assert held.stabilization.recommendation.time[:19] == "2026-01-02T02:04:05", "fifteen seconds before, as it was"


@pytest.mark.parametrize(
    ("next_hpa", "forgotten", "scaled"),
    [(hpa(), False, [4]), (hpa(), True, []), (hpa(uid="u-2"), False, [])],
    ids=["the same", "forgotten", "made anew under its name"],
)
async def test_a_new_hpa_has_no_history(
    next_hpa: HPA, forgotten: bool, scaled: list[int], api: ScriptedApi, reconciler: Reconciler
) -> None:
    scaled_to(api, 4)
    depth(api, 40)
    await reconciler.reconcile(hpa())
    if forgotten:
        reconciler.forget(hpa().key)
    # Somebody scales down by hand: with the recent recommendation of 4 the HPA goes back to that.
    scaled_to(api, 2)
    depth(api, 10)
    await reconciler.reconcile(next_hpa)
    assert [recorded.body["spec"]["replicas"] for recorded in api.named("PUT", SCALE)] == scaled


async def test_each_reconciliation_has_a_record_until_the_hpa_is_deleted(
    api: ScriptedApi, reconciler: Reconciler, decisions: DecisionLog
) -> None:
    depth(api, 35)
    tracked = hpa()
    await reconciler.reconcile(tracked)
    api.fail("PUT", SCALE, 403, "quota exceeded")
    await reconciler.reconcile(tracked)
    page = await decisions.page("default", "web")
    assert page is not None
    scaled, refused = page.decisions
    assert scaled.written == Written(replicas=4, status=True)
    assert refused.written is not None
    assert refused.written.scale_error == "quota exceeded"
    reconciler.forget(tracked.key)
    assert await decisions.page("default", "web") is None


async def test_verbosity_4_logs_each_decision_with_its_numbers(
    api: ScriptedApi, reconciler: Reconciler, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", logger="autoscaler.loop.reconcile")
    depth(api, 35)
    await reconciler.reconcile(hpa())
    api.fail("GET", DEPTH, 503, "no samples")
    await reconciler.reconcile(hpa())
    numbers = "depth is 35, 17.5 per replica, against a target of 10 per replica (ratio 1.75, outside tolerance 0.1)"
    error = (
        "unable to get external metric default/depth/nil: unable to fetch metrics from external metrics API: no samples"
    )
    assert [each.message for each in caplog.records if each.levelname == "DEBUG"] == [
        f"default/web: 2 -> 4: {numbers}, so it proposes 4",
        f"default/web: stays at 2: depth failed ({error})",
    ]


# --- modes and settings of a single HPA ----------------------------------------------------------------------------


def writes(api: ScriptedApi) -> list[str]:
    """The paths that were written to, events aside."""
    return [recorded.path for recorded in api.requests if recorded.method != "GET" and recorded.path != EVENTS]


async def test_a_dry_run_only_records_events(api: ScriptedApi, reconciler: Reconciler, recorder: EventRecorder) -> None:
    depth(api, 35)
    assert await reconciler.reconcile(hpa(mode="dry-run")) is None
    assert writes(api) == []
    assert await reasons(api, recorder) == ["WouldRescale"]
    message = api.named("POST", EVENTS)[0].body["message"]
    assert message == "New size would be: 4; reason: external metric depth(nil) above target"


@pytest.mark.parametrize("answer", ["ok", "fails"])
async def test_a_shadow_writes_nothing_at_all(
    answer: str, api: ScriptedApi, reconciler: Reconciler, recorder: EventRecorder
) -> None:
    if answer == "ok":
        depth(api, 35)
    await reconciler.reconcile(hpa(mode="shadow", tolerance="much"))
    await recorder.flush()
    assert {recorded.method for recorded in api.requests} == {"GET"}


@pytest.mark.parametrize(("mode", "written"), [("dry-run", []), ("shadow", []), ("act", [MILLISCALE_STATUS])])
async def test_an_invalid_hpa_is_reported_as_the_mode_allows(
    mode: str,
    written: list[str],
    api: ScriptedApi,
    reconciler: Reconciler,
    recorder: EventRecorder,
    telemetry: Telemetry,
) -> None:
    api.on("PUT", MILLISCALE_STATUS, {})
    metadata = {"name": "web", "namespace": "default", "annotations": {"milliscale.io/mode": mode}}
    refused = track_hpa({"apiVersion": "milliscale.io/v1", "metadata": metadata, "spec": {}}, api=MILLISCALE)
    assert refused is not None
    await reconciler.refuse(refused)
    assert writes(api) == written
    assert await reasons(api, recorder) == ([] if mode == "shadow" else ["InvalidSpec"])
    assert f'{PREFIX}_reconciliations_total{{action="none",error="spec"}} 1.0' in shown(telemetry)


async def test_a_shadow_compares_and_follows(
    api: ScriptedApi, reconciler: Reconciler, shadow: ShadowComparer, clock: WallClock
) -> None:
    """The other controller scales from 2 to 4, which uses up the rules' one pod in 60 s."""
    active = [{"type": "ScalingActive", "status": "True", "reason": "ValidMetricFound"}]
    slow = {"scaleUp": {"policies": [{"type": "Pods", "value": 2, "periodSeconds": 60}]}, "scaleDown": {}}
    before = {"currentReplicas": 2, "desiredReplicas": 2, "conditions": active}
    after = {"currentReplicas": 2, "desiredReplicas": 4, "conditions": active, "lastScaleTime": "2026-01-02T03:04:10Z"}
    old = hpa(mode="shadow", status=before, behavior=slow)
    reconciler.changed(None, old)
    depth(api, 90)
    await reconciler.reconcile(old)
    clock.now += 5
    new = hpa(mode="shadow", status=after, behavior=slow)
    reconciler.changed(old, new)
    scaled_to(api, 4)
    clock.now += 10
    await reconciler.reconcile(new)
    (compared,) = shadow.comparisons(round(clock.monotonic() * 1000)).values()
    assert compared.counts == {Verdict.AGREED: 2}
    assert compared.last is not None
    assert (compared.last.ours, compared.last.lag_seconds) == (4, 0), "without the other's scale, 6 would be allowed"


async def test_an_hpa_that_leaves_shadow_mode_is_no_longer_compared(
    reconciler: Reconciler, shadow: ShadowComparer, telemetry: Telemetry
) -> None:
    status = {"conditions": [{"type": "ScalingActive", "status": "True", "reason": "ValidMetricFound"}]}
    old, new = hpa(mode="shadow", status=status), hpa(mode="act", status=status)
    reconciler.changed(None, old)
    assert shadow.comparisons(0)
    telemetry.compared(old.key, Comparison(ours=2, theirs=2, verdict=Verdict.AGREED))
    reconciler.changed(old, new)
    assert not shadow.comparisons(0)
    assert "shadow_comparisons_total{" not in telemetry.render().decode()


async def test_in_act_mode_its_own_status_is_no_foreign_scale(
    api: ScriptedApi, reconciler: Reconciler, clock: WallClock
) -> None:
    fast = {"scaleUp": {"policies": [{"type": "Pods", "value": 2, "periodSeconds": 60}]}, "scaleDown": {}}
    old = hpa(behavior=fast)
    depth(api, 90)
    await reconciler.reconcile(old)
    new = hpa(behavior=fast, status=written_status(api))
    reconciler.changed(old, new)
    scaled_to(api, 4)
    clock.now += 61
    await reconciler.reconcile(new)
    assert [recorded.body["spec"]["replicas"] for recorded in api.named("PUT", SCALE)] == [4, 6]


async def test_an_invalid_annotation_is_reported_once_until_it_changes(
    api: ScriptedApi, reconciler: Reconciler, recorder: EventRecorder
) -> None:
    depth(api, 20)
    for annotation in ("much", "much", "more", "0.1", "much"):
        await reconciler.reconcile(hpa(tolerance=annotation))
    assert await reasons(api, recorder) == ["InvalidAnnotation"] * 3
    hint = "is ignored: write a number from 0 to 1, such as 0.05"
    events = [(recorded.body["type"], recorded.body["message"]) for recorded in api.named("POST", EVENTS)]
    assert events == [
        ("Warning", f'annotation milliscale.io/tolerance: "{text}" {hint}') for text in ("much", "more", "much")
    ]
