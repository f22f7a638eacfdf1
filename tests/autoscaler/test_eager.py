"""Eager mode: what it changes between syncs, and that it changes nothing else."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import looptime
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from autoscaler.core.config import Config, Mode
from autoscaler.core.decide import decide
from autoscaler.core.history import History, Recommendation
from autoscaler.core.model import HPA, HPAKey
from autoscaler.core.observation import Observation, Pod, Scale, ValuesResponse
from autoscaler.loop.clocks import Clocks
from autoscaler.loop.eager import EagerEvaluator, Result
from autoscaler.loop.observe import Observer
from autoscaler.loop.options import Options
from autoscaler.records.decision_log import DecisionLog
from autoscaler.records.reaction import reaction_text
from autoscaler.records.record import DecisionRecord, time_text
from autoscaler.settings import EagerSettings
from kube.api.client import KubeClient
from kube.api.status import StatusError
from kube.controller.flowcontrol import ThrottledClient, TokenBucket
from kube.controller.workqueue import WorkQueue, run_workers
from tests.autoscaler.cluster import Cluster, running_cluster
from tests.autoscaler.test_controller import NEVER, autoscaler
from tests.autoscaler.test_reconcile import hpa, reconciler_of
from tests.eventually import until

SCALE = "/apis/apps/v1/namespaces/default/deployments/web/scale"
DEPTH = "/apis/external.metrics.k8s.io/v1beta1/namespaces/default/depth"
SYNC = 15.0
START = 1_767_323_045.0
EPOCH = 1024.0
"""The event loop's time at the start."""
FLAGS = Config(tolerance=0.0, downscale_stabilization_ms=60_000)

Load = Callable[[float], float | None]
"""The total of the metric at a time; None: it fails, HANGS: there is no response."""
HANGS = -1.0


@dataclass
class Api:
    """A Deployment with its scale, and an External metric; time is that of the event loop."""

    load: Load
    replicas: int = 2
    refuses_scales: bool = False
    metric_requests: list[float] = field(default_factory=list)
    scale_reads: list[float] = field(default_factory=list)
    scale_writes: list[tuple[float, int]] = field(default_factory=list)

    async def get(self, path: str, query: Any = None, **_: Any) -> dict[str, Any]:
        now = asyncio.get_running_loop().time()
        if path == "/apis":
            return {"groups": [{"name": "apps", "versions": [{"version": "v1"}]}]}
        if path == "/apis/apps/v1":
            return {"resources": [{"name": "deployments", "kind": "Deployment", "namespaced": True}]}
        assert path == SCALE
        self.scale_reads.append(now)
        return {
            "metadata": {"name": "web", "namespace": "default"},
            "spec": {"replicas": self.replicas},
            "status": {"replicas": self.replicas, "selector": "app=web"},
        }

    async def get_bytes(self, path: str, query: Any = None, **_: Any) -> bytes:
        assert path == DEPTH
        now = asyncio.get_running_loop().time()
        self.metric_requests.append(now)
        value = self.load(now)
        if value == HANGS:
            await asyncio.Event().wait()
        if value is None:
            raise StatusError.from_body(503, b"{}")
        item = {"value": str(value), "timestamp": time_text(round(1000 * (START + now - EPOCH)))}
        return msgspec.json.encode({"items": [item]})

    async def put(self, path: str, body: Mapping[str, Any], query: Any = None, **_: Any) -> dict[str, Any]:
        if path == SCALE:
            if self.refuses_scales:
                raise StatusError.from_body(403, b"{}")
            self.replicas = body["spec"]["replicas"]
            self.scale_writes.append((asyncio.get_running_loop().time(), self.replicas))
        return {}


@dataclass
class Run:
    """What an autoscaler did on a load."""

    api: Api
    syncs: list[float] = field(default_factory=list)
    records: list[DecisionRecord] = field(default_factory=list)
    changes_between_syncs: int = 0
    """Of the history, other than by a scale-up."""

    def replicas_at(self, time: float, first: int = 2) -> int:
        return next((count for at, count in reversed(self.api.scale_writes) if at <= time), first)

    @property
    def scale_downs(self) -> list[tuple[float, int, int]]:
        counts = [2, *(count for _, count in self.api.scale_writes)]
        steps = zip(self.api.scale_writes, counts, strict=False)
        return [(round(at, 1), before, after) for (at, after), before in steps if after < before]


def simulate(
    given_hpa: HPA,
    load: Load,
    *,
    eager: bool,
    seconds: float = 100.0,
    refuses_scales: bool = False,
    slowness: float = 1.0,
) -> Run:
    """Let the reconciler and, if `eager`, the evaluator run for some virtual seconds, with the controller's queue.

    `slowness`: the time in which the process does what takes a second otherwise.
    """
    loop = looptime.new_event_loop(start=EPOCH, noop_cycles=1)
    try:
        return loop.run_until_complete(_simulate(given_hpa, load, eager, seconds, refuses_scales, slowness))
    finally:
        loop.close()


async def _simulate(
    given_hpa: HPA,
    load: Load,
    eager: bool,
    seconds: float,
    refuses_scales: bool,
    slowness: float,
) -> Run:
    loop = asyncio.get_running_loop()
    start = loop.time()

    def clock() -> float:
        return (
            start + slowness * (loop.time() - start) + 1e-6
        )  # looptime rounds to microseconds, so it may never quite reach the end of a tick

    run = Run(Api(lambda now: load(now - start), refuses_scales=refuses_scales))
    kube = cast("KubeClient", run.api)
    client = ThrottledClient(kube, TokenBucket(qps=0, burst=1))
    queue: WorkQueue[HPAKey] = WorkQueue(tick=0.1, clock=clock)
    reconciler = reconciler_of(
        client,
        kube,
        FLAGS,
        clocks=Clocks(lambda: START + clock() - start, clock),
        decisions=DecisionLog(
            0, on_record=lambda line: run.records.append(msgspec.json.decode(line, type=DecisionRecord))
        ),
    )
    histories = reconciler.histories

    async def scale_up_early(_: HPA) -> bool:
        before, writes = histories.changes, len(run.api.scale_writes)
        if not queue.lock(given_hpa.key):
            return False
        scaled = await reconciler.scale_up_early(given_hpa, timeout=5)
        queue.unlock(given_hpa.key)
        if len(run.api.scale_writes) == writes:
            run.changes_between_syncs += histories.changes - before
        return scaled

    evaluator = EagerEvaluator(
        hpa=lambda _: given_hpa,
        is_eager=lambda _: True,
        observer=reconciler.observer,
        evaluate=reconciler.evaluate,
        scale_up=scale_up_early,
        on_evaluation=lambda _: None,
        max_delay=SYNC,
        settings=EagerSettings(),
        clock=clock,
    )

    if eager:
        reconciler.on_reconciled = evaluator.decided

    async def sync(key: HPAKey) -> None:
        run.syncs.append(round(clock() - start, 1))
        await reconciler.reconcile(given_hpa)
        queue.add_after(key, SYNC)

    stop = asyncio.Event()
    queue.add(given_hpa.key)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(run_workers(queue, sync, stop=stop))
        if eager:
            tasks.create_task(evaluator.run(stop))
        await asyncio.sleep(seconds)
        stop.set()
    run.api.scale_writes = [(at - start, count) for at, count in run.api.scale_writes]
    run.api.metric_requests = [at - start for at in run.api.metric_requests]
    return run


def steps(levels: Sequence[tuple[float | None, float]]) -> Load:
    """A load that has each level for so many seconds, and then the last one."""

    def load(now: float) -> float | None:
        for level, seconds in levels:
            if now < seconds:
                return level
            now -= seconds
        return levels[-1][0]

    return load


def rules(direction: str) -> st.SearchStrategy[Any]:
    policy = st.fixed_dictionaries(
        {
            "type": st.sampled_from(["Pods", "Percent"]),
            "value": st.integers(1, 120),
            "periodSeconds": st.sampled_from([1, 10, 15, 40]),
        }
    )
    windows = [0] if direction == "up" else [0, 10, 30, None]
    return st.fixed_dictionaries(
        {
            "policies": st.lists(policy, min_size=1, max_size=2),
            "selectPolicy": st.sampled_from(["Max", "Min"]),
            "stabilizationWindowSeconds": st.sampled_from(windows),
        }
    )


BEHAVIORS = st.none() | st.fixed_dictionaries({"scaleUp": rules("up"), "scaleDown": rules("down")})
LEVELS = st.lists(st.tuples(st.none() | st.integers(0, 300), st.floats(0.5, 40.0)), min_size=2, max_size=8)


@settings(max_examples=8)
@given(behavior=BEHAVIORS, levels=LEVELS)
def test_only_scale_ups_are_early_and_there_are_never_fewer_replicas(
    behavior: Any, levels: list[tuple[float | None, float]]
) -> None:
    """For any load and rules: syncs are when they would be without, and only scale-ups happen between them."""
    off = simulate(hpa(behavior=behavior), steps(levels), eager=False)
    on = simulate(hpa(behavior=behavior), steps(levels), eager=True)
    assert on.syncs == off.syncs
    assert on.changes_between_syncs == 0
    assert all(at in on.syncs for at, _, _ in on.scale_downs)
    for moment in sorted({at for at, _ in (*on.api.scale_writes, *off.api.scale_writes)}):
        assert on.replicas_at(moment) >= off.replicas_at(moment)


@settings(max_examples=4)
@given(levels=st.lists(st.tuples(st.integers(0, 300), st.floats(SYNC + 1, 60.0)), min_size=2, max_size=5))
def test_scale_downs_are_the_same_if_syncs_see_every_level(levels: list[tuple[float, float]]) -> None:
    behavior = {"scaleUp": {"policies": [{"type": "Percent", "value": 2000, "periodSeconds": 15}]}}
    off = simulate(hpa(behavior=behavior), steps(levels), eager=False, seconds=150)
    on = simulate(hpa(behavior=behavior), steps(levels), eager=True, seconds=150)
    assert on.scale_downs == off.scale_downs


def test_a_scale_up_is_written_within_two_seconds_and_a_scale_down_in_its_sync() -> None:
    run = simulate(hpa(), steps([(20, 17.3), (80, 20), (20, 90)]), eager=True, seconds=120)
    assert [count for _, count in run.api.scale_writes] == [4, 8, 2]
    first, second, down = (round(at, 1) for at, _ in run.api.scale_writes)
    assert 17.3 < first < 18.5
    assert second < first + 2  # without behavior, a sync at most doubles the replicas
    assert down in [sync for sync in run.syncs if sync > second + 60]


def test_a_scale_up_names_the_samples_of_evaluations() -> None:
    run = simulate(hpa(), steps([(20, 17.3), (80, 20)]), eager=True, seconds=20)
    first, second = (reaction_text(each.reaction) for each in run.records if each.reaction is not None)
    assert first.startswith("called for by the sample of 03:04:23.0, not yet by that of 03:04:22.0, written at")
    assert "windows and policies" not in first
    assert "1.0s of windows and policies" in second  # a sync at most doubles the replicas


def test_a_load_within_the_tolerance_of_what_was_written_is_no_scale_up() -> None:
    """Although it was not within that of the replicas that the last reconciliation saw."""
    run = simulate(hpa(tolerance="0.1"), steps([(20, 17.3), (41, 80)]), eager=True, seconds=29)
    ((written, replicas),) = run.api.scale_writes
    assert replicas == 4
    assert [at for at in run.api.scale_reads if at > EPOCH + written] == []


def test_evaluations_read_only_the_metric() -> None:
    on = simulate(hpa(), lambda _: 20.0, eager=True, seconds=44)
    off = simulate(hpa(), lambda _: 20.0, eager=False, seconds=44)
    assert 40 <= len(on.api.metric_requests) - len(off.api.metric_requests) <= 44
    assert len(on.api.scale_reads) == len(off.api.scale_reads)
    assert on.api.scale_writes == off.api.scale_writes == []


def test_an_hpa_with_a_window_for_scaling_up_waits_for_its_syncs() -> None:
    behavior = {"scaleUp": {"stabilizationWindowSeconds": 20}}
    load = steps([(20, 17.3), (80, 60)])
    on, off = (simulate(hpa(behavior=behavior), load, eager=eager, seconds=60) for eager in (True, False))
    assert on.api.scale_writes == off.api.scale_writes != []


@pytest.mark.parametrize(("depth", "is_early"), [(50, True), (40, False)])
def test_a_scale_up_that_only_an_earlier_recommendation_calls_for_waits_for_its_sync(
    depth: int, is_early: bool
) -> None:
    """There were 8 replicas a minute ago, and 4 since `kubectl scale`."""
    now_ms = round(START * 1000)
    observation = Observation(
        hpa=hpa(),
        scale=Scale(spec_replicas=4, status_replicas=4, selector="app=web"),
        pods=(Pod(name="web-0", namespace="default", labels={}, phase="Running"),),
        responses=(ValuesResponse(values=(1000 * depth,)),),
    )
    history = History(recommendations=(Recommendation(8, now_ms - 60_000),))
    decision = decide(observation, history, now_ms)
    assert decision.scale_to == 8
    assert decision.is_early_scale_up is is_early


def test_evaluations_that_fail_wait_up_to_a_sync_period() -> None:
    run = simulate(hpa(), lambda _: None, eager=True, seconds=120)
    between = len(run.api.metric_requests) - len(run.syncs)
    assert 8 <= between <= 12  # 1, 2, 4, 8 and then 15 s apart, with jitter


def test_a_scale_up_that_is_refused_is_repeated_up_to_a_sync_period_later() -> None:
    run = simulate(hpa(), steps([(20, 3.3), (80, 200)]), eager=True, seconds=120, refuses_scales=True)
    assert 8 <= len(run.api.scale_reads) - len(run.syncs) <= 20  # each early one reads the scale once


def test_evaluations_that_hang_end_and_wait() -> None:
    run = simulate(hpa(), steps([(20, 0.5), (HANGS, 14.0), (20, 60)]), eager=True, seconds=16)
    assert 2 <= len([at for at in run.api.metric_requests if 0.5 < at < 14.5]) <= 3  # 5 s each, 1 and 2 s apart
    assert run.syncs == [0, 15.1]


def test_evaluations_are_rare_while_the_process_is_late() -> None:
    """It has too little CPU, which syncs need first."""
    runs = {each: simulate(hpa(), lambda _: 20.0, eager=True, seconds=100, slowness=each) for each in (1.0, 4.0)}
    quick, slow = [(len(run.api.metric_requests) - len(run.syncs)) / (100 * each) for each, run in runs.items()]
    assert 0.9 <= quick <= 1.0  # of the process' seconds
    assert 0.1 <= slow <= 0.3


async def evaluated(
    hpas: Mapping[HPAKey, HPA],
    *,
    pods: Callable[[HPA], int],
    load: int,
    scale_up: Callable[[HPA], Awaitable[bool]],
    stop: asyncio.Event,
    on_refresh: Callable[[EagerEvaluator, HPA], None] = lambda _evaluator, _hpa: None,
) -> Counter[str]:
    """Evaluate HPAs of two replicas until `stop` is set; return how often by namespace."""
    counts: Counter[str] = Counter()
    pod = Pod(name="web-0", namespace="default", labels={}, phase="Running")
    scale, now_ms = Scale(spec_replicas=2, status_replicas=2, selector="app=web"), round(START * 1000)
    response = ValuesResponse(values=(1000 * load,), timestamp_ms=0)

    class Metrics:
        async def refresh(self, given_hpa: HPA, before: Observation) -> Observation:
            counts[given_hpa.namespace] += 1
            on_refresh(evaluator, given_hpa)
            return before

    evaluator = EagerEvaluator(
        hpa=hpas.get,
        is_eager=lambda _: True,
        observer=cast("Observer", Metrics()),
        evaluate=lambda _: Result.SCALE_UP if load > 20 else Result.NONE,
        scale_up=scale_up,
        on_evaluation=lambda _: None,
        max_delay=SYNC,
        settings=EagerSettings(),
        clock=asyncio.get_running_loop().time,
    )
    running = asyncio.create_task(evaluator.run(stop))
    await asyncio.sleep(0)
    for each in hpas.values():
        observation = Observation(hpa=each, scale=scale, pods=(pod,) * pods(each), responses=(response,))
        evaluator.decided(decide(observation, History(), now_ms), Mode.ACT, None)
    await running
    return counts


@pytest.mark.looptime
async def test_a_scale_up_in_flight_is_finished_at_the_end() -> None:
    finished, stop = asyncio.Event(), asyncio.Event()

    async def scale_up(_: HPA) -> bool:
        stop.set()
        await asyncio.sleep(3)
        finished.set()
        return True

    await evaluated({hpa().key: hpa()}, pods=lambda _: 2, load=80, scale_up=scale_up, stop=stop)
    assert finished.is_set()


@pytest.mark.looptime
async def test_an_hpa_that_is_deleted_during_its_evaluation_is_not_scaled_and_others_are(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scaled, stop = Counter[str](), asyncio.Event()
    asyncio.get_running_loop().call_later(3.5, stop.set)
    web, too, other = (hpa(name=name) for name in ("web", "too", "other"))
    hpas = {each.key: each for each in (web, too, other)}

    def delete(evaluator: EagerEvaluator, given: HPA) -> None:
        if given is web:
            del hpas[web.key], hpas[too.key]
            for _ in range(2):  # as its change is seen, and when its sync is due
                evaluator.forget(web.key)

    async def scale_up(given: HPA) -> bool:
        scaled[given.name] += 1
        return True

    await evaluated(hpas, pods=lambda _: 2, load=80, scale_up=scale_up, stop=stop, on_refresh=delete)
    assert scaled == {"other": 3}
    assert caplog.records == [], "an exception would be logged, and the others evaluated all the same"


@pytest.mark.looptime
async def test_many_hpas_or_pods_of_a_namespace_make_the_evaluations_of_no_other_rare() -> None:
    many = [structs.replace(hpa(name=f"web-{n}"), namespace="many") for n in range(300)]
    large = [structs.replace(hpa(name=f"web-{n}"), namespace="large") for n in range(20)]
    hpas = {each.key: each for each in (*many, *large, hpa())}
    stop = asyncio.Event()
    asyncio.get_running_loop().call_later(30.5, stop.set)

    async def scale_up(_: HPA) -> bool:
        return True

    pods = {"large": 5000}
    counts = await evaluated(hpas, pods=lambda each: pods.get(each.namespace, 2), load=20, scale_up=scale_up, stop=stop)
    assert counts["default"] >= 29
    assert 250 * 29 <= counts["many"] <= 350 * 31  # its share of 1,000 a second
    assert 20 * 3 <= counts["large"] <= 20 * 7  # each counts for 101


@pytest.mark.looptime
async def test_each_of_a_thousand_hpas_of_one_namespace_is_evaluated_every_second() -> None:
    hpas = {each.key: each for each in (hpa(name=f"web-{n}") for n in range(1000))}
    stop = asyncio.Event()
    asyncio.get_running_loop().call_later(5.5, stop.set)

    async def scale_up(_: HPA) -> bool:
        return True

    counts = await evaluated(hpas, pods=lambda _: 2, load=20, scale_up=scale_up, stop=stop)
    assert 4000 <= counts["default"] <= 5500


async def test_an_eager_hpa_is_scaled_up_without_a_sync(tmp_path: Path) -> None:
    options = Options(
        eager=True,
        sync_period=NEVER,
        bind_address="127.0.0.1",
        metrics_port=0,
        settings=replace(Options().settings, eager=EagerSettings(interval_seconds=0.2)),
    )
    async with running_cluster(tmp_path) as cluster:
        for name in ("web", "plain"):
            cluster.add_deployment(name, replicas=1)
            cluster.add_hpa(name)
        await annotate(cluster, "plain", "false")
        async with autoscaler(cluster, options):
            await until(lambda: cluster.condition("web", "ScalingActive") == ("True", "ValidMetricFound"))
            await until(lambda: cluster.condition("plain", "ScalingActive") == ("True", "ValidMetricFound"))
            cluster.metrics.value = "20"
            await until(lambda: cluster.replicas("web") == 2)
            await cluster.roll_out("web")
            await until(lambda: cluster.replicas("web") == 4)  # 20 of each pod, where 10 are wanted
            assert cluster.replicas("plain") == 1
            await annotate(cluster, "plain", "true")
            await until(lambda: cluster.replicas("plain") == 2)


async def annotate(cluster: Cluster, name: str, eager: str) -> None:
    path = f"/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers/{name}"
    await cluster.admin.patch(path, {"metadata": {"annotations": {"milliscale.io/eager": eager}}})
