"""What is known of objects with rules while the API server cannot be reached, refuses, or has no such objects."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry

from adapter.catalog.listings import Listings
from adapter.catalog.rule_states import Reason
from adapter.commands.builtin_resources import FixedResources
from adapter.prometheus import PrometheusUnavailable
from adapter.rule_objects import controller
from adapter.rule_objects.controller import RuleObjects
from adapter.rule_objects.watches import METRIC_RULES
from adapter.rules.objects import ObjectName, Tenancy
from adapter.settings import DEFAULTS, RuleObjectSettings
from adapter.telemetry import RuleTelemetry
from kube.api.mapping import ResourceInfo
from tests.adapter.metrics_env import CannedPrometheus, series
from tests.eventually import eventually
from tests.kube.scripted import Collection, ScriptedServer, connected, respond, scripted_server

PODS = ResourceInfo("", "v1", "Pod", "pods", "pod", namespaced=True)
QUEUE = {"type": "External", "metric": "queue_length", "query": "sum(queue)"}
LONG = {"type": "External", "seriesQuery": "jobs", "metricsQuery": "sum(<<.Series>>)"}
NAME = ObjectName("MetricRule", "shop", "queue")


def rule(
    spec: dict[str, Any], *, version: str = "1", generation: int = 1, namespace: str = "shop", name: str = "queue"
) -> dict[str, Any]:
    """A MetricRule as the API server sends it."""
    metadata = {"namespace": namespace, "name": name, "resourceVersion": version, "generation": generation}
    return {"kind": "MetricRule", "metadata": {**metadata, "creationTimestamp": "2026-01-01T00:00:00Z"}, "spec": spec}


@dataclass
class Env:
    """Rules in the MetricRules of a scripted API server."""

    api: ScriptedServer
    collection: Collection
    prometheus: CannedPrometheus
    objects: RuleObjects
    read: list[str] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    now: float = 0.0

    async def until(self, condition: Callable[[], object]) -> None:
        async def check() -> bool:
            return bool(condition())

        await eventually(check, every=0.01)

    def makes(self, metric: str) -> bool:
        return bool(self.objects.catalog.makers("shop", (None, metric)))

    async def has_reason(self, reason: Reason) -> None:
        await self.until(lambda: (state := self.objects.state(NAME)) is not None and state.reason is reason)

    async def watch(self) -> Any:
        return await asyncio.wait_for(self.collection.watches.get(), 60)


@contextlib.asynccontextmanager
async def rule_objects(
    folder: Path,
    *,
    items: list[dict[str, Any]] | None = None,
    refusal: int = 0,
    settings: RuleObjectSettings = DEFAULTS.rule_objects,
    before_read: Callable[[Env, str], None] = lambda env, name: None,
) -> AsyncIterator[Env]:
    """Read MetricRules; with `refusal` the API server refuses to list them, with this status.

    `before_read` is called with the name of each object that is read.
    """
    collection, prometheus = Collection(), CannedPrometheus()
    collection.items = items or []
    read: list[str] = []

    def read_and_record(obj: Any, *rest: Any) -> Any:
        read.append(obj["metadata"]["name"])
        before_read(env, obj["metadata"]["name"])
        return METRIC_RULES.read(obj, *rest)

    async with scripted_server() as api, connected(api, folder) as client:
        refused = respond({"kind": "Status", "code": refusal, "message": "no"}, status=refusal or 200)
        api.handlers[METRIC_RULES.path] = refused if refusal else collection.handle
        env = Env(api, collection, prometheus, None, read)  # type: ignore[arg-type]
        listings = Listings(prometheus, FixedResources([PODS]), max_age=120.0, relist_interval=3600.0)
        env.objects = RuleObjects(
            [replace(METRIC_RULES, read=read_and_record)],
            client,
            listings,
            FixedResources([PODS]),
            tenancy=Tenancy(),
            settings=settings,
            forget=env.gone.extend,
            monotonic=lambda: env.now,
        )
        running = [asyncio.create_task(env.objects.run()), asyncio.create_task(listings.run())]
        try:
            yield env
        finally:
            for task in running:
                task.cancel()
            await asyncio.wait(running)


async def test_missing_definition_means_that_there_are_no_objects(tmp_path: Path) -> None:
    async with rule_objects(tmp_path, refusal=404) as env:
        await env.objects.known.wait()
        assert env.objects.readiness() is None
        assert env.objects.catalog.problem() is None
        assert env.objects.note() == (
            "there are no MetricRules, because their CustomResourceDefinition is not installed"
        )


async def test_missing_right_blocks_no_start_and_leaves_unknown_metrics_unknown(tmp_path: Path) -> None:
    async with rule_objects(tmp_path, refusal=403) as env:
        await env.until(lambda: env.objects.note())
        assert env.objects.readiness() is None
        assert str(env.objects.note()).startswith("MetricRules cannot be listed; the last known ones stay in use: ")
        assert str(env.objects.catalog.problem()).startswith("MetricRules cannot be listed: ")


async def test_start_waits_for_the_first_list_for_as_long_as_the_settings_say(tmp_path: Path) -> None:
    async with rule_objects(tmp_path, settings=RuleObjectSettings(start_seconds=7.0)) as env:
        env.api.handlers[METRIC_RULES.path] = _never
        await env.objects.apply()
        env.now = 6.9
        assert env.objects.readiness() == "MetricRules are not listed yet"
        env.now = 7.1
        assert env.objects.readiness() is None
        assert env.objects.catalog.problem() == "MetricRules are not listed yet"


async def test_start_waits_while_the_api_server_is_overloaded(tmp_path: Path) -> None:
    async with rule_objects(tmp_path, refusal=503) as env:
        await env.until(lambda: env.objects.note())
        assert str(env.objects.readiness()).startswith("MetricRules cannot be listed: ")


async def _never(_: web.Request) -> web.StreamResponse:
    await asyncio.Event().wait()
    raise AssertionError


async def test_start_waits_for_the_series_of_listed_objects(tmp_path: Path) -> None:
    async with rule_objects(tmp_path, items=[rule(LONG)]) as env:
        assert env.objects.readiness() is not None
        await env.objects.known.wait()
        assert env.objects.state(NAME) is not None
        assert env.prometheus.listed


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(0.1, "a b c queue"), (10, "a queue (served) b c")],
    ids=["soon", "long"],
)
async def test_objects_that_take_long_to_read_delay_those_of_other_namespaces_by_one(
    tmp_path: Path, seconds: float, expected: str
) -> None:
    """Those that take little time are read together."""
    found: list[str] = []

    def read_slowly(env: Env, name: str) -> None:
        found.extend(["(served)"] if env.makes("queue_length") and "(served)" not in found else [])
        found.append(name)
        env.now += seconds

    long = [rule({**QUEUE, "metric": name}, namespace="bank", name=name) for name in ("a", "b", "c")]
    async with rule_objects(tmp_path, items=[*long, rule(QUEUE)], before_read=read_slowly) as env:
        await env.objects.known.wait()
    assert " ".join(found) == expected


async def test_last_known_rules_stay_in_use_while_the_api_server_is_away(tmp_path: Path) -> None:
    async with rule_objects(tmp_path, items=[rule(QUEUE)]) as env:
        await env.has_reason(Reason.READY)
        watch = await env.watch()
        env.api.handlers[METRIC_RULES.path] = respond({"kind": "Status", "code": 500, "message": "no"}, status=500)
        watch.events.put_nowait(None)
        await env.until(lambda: env.objects.note())
        assert env.makes("queue_length")
        assert env.objects.readiness() is None
        assert env.objects.catalog.problem() is None


async def test_each_step_of_an_object_is_followed_by_a_yield_if_it_is_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading it, its share, its lists, its metrics and its reason: thousands of objects can change at once."""
    pauses: Counter[int] = Counter()

    class Counting:
        async def pause(self) -> None:
            pauses[sys._getframe(1).f_lineno] += 1

    monkeypatch.setattr(controller, "Pace", Counting)
    first = rule(QUEUE)
    items = [{**first, "metadata": {**first["metadata"], "name": f"queue-{number}"}} for number in range(20)]
    async with rule_objects(tmp_path, items=items) as env:
        await env.until(lambda: env.objects.known.is_set())
    assert [count >= len(items) for count in pauses.values()] == [True] * 5


async def test_change_of_status_only_is_not_read(tmp_path: Path) -> None:
    async with rule_objects(tmp_path, items=[rule(QUEUE)]) as env:
        await env.has_reason(Reason.READY)
        watch = await env.watch()
        watch.send("MODIFIED", {**rule(QUEUE, version="2"), "status": {"metrics": ["queue_length"]}})
        watch.send("MODIFIED", rule({**QUEUE, "metric": "other"}, version="3", generation=2))
        await env.until(lambda: env.makes("other"))
        assert env.read == ["queue", "queue"]
        watch.send("DELETED", rule(QUEUE, version="4"))
        await env.until(lambda: env.gone)
        assert (env.objects.objects(), env.gone) == ([], ["MetricRule shop/queue"])


async def test_failed_list_of_series_keeps_the_last_metrics_of_the_same_rule_only(tmp_path: Path) -> None:
    async with rule_objects(tmp_path, items=[rule(LONG)]) as env:
        env.prometheus.found["jobs"] = (series("jobs", "namespace"),)
        await env.until(lambda: env.makes("jobs"))
        watch = await env.watch()
        env.prometheus.found["jobs"] = env.prometheus.found["tasks"] = PrometheusUnavailable("no response")
        watch.send("MODIFIED", rule({**LONG, "seriesQuery": "tasks"}, version="2"))
        await env.has_reason(Reason.PROMETHEUS_UNAVAILABLE)
        await env.until(lambda: not env.makes("jobs"))
        state = env.objects.state(NAME)
        assert state is not None
        assert (state.message, state.metrics) == ("no response", ())


async def test_object_whose_resource_is_missing_is_looked_up_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = {"type": "Object", "metric": "lag", "query": "lag", "labels": {"deployment": "deployment.apps"}}
    async with rule_objects(tmp_path, items=[rule(spec)]) as env:
        await env.has_reason(Reason.INVALID)
        state = env.objects.state(NAME)
        assert state is not None
        assert state.message == "the cluster has no resource deployment.apps"
        apps = ResourceInfo("apps", "v1", "Deployment", "deployments", "deployment", namespaced=True)
        monkeypatch.setattr(env.objects._listings, "_mapper", FixedResources([apps]))
        await env.has_reason(Reason.READY)


async def test_bug_affects_one_object(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise RecursionError("too deep")

    async with rule_objects(tmp_path, items=[rule(QUEUE)]) as env:
        await env.has_reason(Reason.READY)
        watch = await env.watch()
        monkeypatch.setattr("adapter.rule_objects.watches.read_object", broken)
        watch.send("MODIFIED", rule({**QUEUE, "metric": "other"}, version="2"))
        await env.has_reason(Reason.INVALID)
        monkeypatch.undo()
        watch.send("MODIFIED", rule(QUEUE, version="3"))
        await env.has_reason(Reason.READY)


def test_metrics_of_rules_in_objects_survive_a_reload_of_the_file() -> None:
    registry = CollectorRegistry()
    telemetry = RuleTelemetry(registry)

    def failures() -> set[str]:
        found = [family for family in registry.collect() if family.name == "milliscale_adapter_rule_query_errors"]
        return {sample.labels["rule"] for family in found for sample in family.samples}

    for key in ("rules[0]", "MetricRule shop/queue", "MetricRule shop/gone"):
        telemetry.query_errors[key,] += 1
    telemetry.begin(["rules[1]"], others={"MetricRule shop/queue"}, digest="", now=0.0, paused=tuple)
    assert failures() == {"rules[1]", "MetricRule shop/queue"}
    telemetry.forget(["MetricRule shop/queue"])
    assert failures() == {"rules[1]"}
