"""StatusWriter: which statuses of MetricRules it writes, and when, with a real API server's HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from adapter.catalog.rule_states import Reason
from adapter.rule_objects import status_writer
from adapter.rule_objects.controller import RuleObjects
from adapter.rule_objects.state import ObjectState
from adapter.rule_objects.status import Verdict
from adapter.rule_objects.status_writer import LEASE, StatusWriter
from adapter.rules import AnyRule, QueryRule
from adapter.rules.objects import ObjectName, RuleObject
from adapter.settings import RuleObjectSettings
from kube.api.client import KubeClient
from kube.api.status import StatusError, conflict, forbidden
from kube.controller.election import ElectionSettings, LeaderElector
from playground.apiserver.server import PlaygroundApiServer
from tests.eventually import eventually, until

NOW = 1_800_000_000.0
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
EVENTS = "/api/v1/namespaces/shop/events"
RULES = "/apis/milliscale.io/v1/namespaces/shop/metricrules"
ELECTION = ElectionSettings(namespace="default", name=LEASE)
OTHER = ObjectName("MetricRule", "shop", "other")
READY = Verdict(ready=True, reason="Ready", message="makes queue", metrics=("queue",), value="4", query_seconds=0.01)


def rule(key: str) -> AnyRule:
    """A rule of an object."""
    return QueryRule(key=key, metric="queue", query="sum(queue)", external=True, namespace="shop")


@dataclasses.dataclass
class Env:
    """Rule objects in an API server, and a writer that knows them."""

    client: KubeClient
    known: dict[ObjectName, RuleObject] = dataclasses.field(default_factory=dict)
    reasons: dict[ObjectName, tuple[Reason, str]] = dataclasses.field(default_factory=dict)
    revision: int = 0
    result: Verdict = READY
    checked: list[str] = dataclasses.field(default_factory=list)
    hanging: asyncio.Event | None = None

    def objects(self) -> list[RuleObject]:
        return [*self.known.values()]

    def state(self, name: ObjectName) -> ObjectState | None:
        one = self.known.get(name)
        reason, message = self.reasons.get(name, (Reason.READY, ""))
        return ObjectState(object=one, reason=reason, message=message, metrics=("queue",)) if one is not None else None

    async def check(self, rule: AnyRule) -> Verdict:
        self.checked.append(rule.key)
        if self.hanging is not None:
            await self.hanging.wait()
        return self.result

    async def create(self, name: str, *, status: dict[str, Any] | None = None) -> ObjectName:
        """Create a MetricRule in the API server, and let the writer know it."""
        spec = {"type": "External", "metric": "queue", "query": "sum(queue)"}
        body = {"apiVersion": "milliscale.io/v1", "kind": "MetricRule", "metadata": {"name": name}, "spec": spec}
        made = await self.client.post(RULES, body)
        key = ObjectName("MetricRule", "shop", name)
        if status is not None:
            await self.client.patch(f"{RULES}/{name}/status", {"status": status})
        self.known[key] = RuleObject(
            name=key,
            uid=made["metadata"]["uid"],
            generation=made["metadata"]["generation"],
            rules=(rule(str(key)),),
        )
        return key

    async def change(self, name: ObjectName) -> None:
        """Change the spec of an object."""
        self.revision += 1
        spec = {"query": f"sum(queue) + {self.revision}"}
        changed = await self.client.patch(f"{RULES}/{name.name}", {"spec": spec})
        self.known[name] = msgspec.structs.replace(self.known[name], generation=changed["metadata"]["generation"])

    async def status(self, name: str) -> dict[str, Any]:
        found = await self.client.get(f"{RULES}/{name}")
        status: dict[str, Any] = found.get("status") or {}
        return status

    async def reason(self, name: str) -> str:
        conditions = (await self.status(name)).get("conditions") or [{}]
        return str(conditions[0].get("reason"))

    async def until_reason(self, name: str, reason: str) -> None:
        async def has_reason() -> bool:
            return await self.reason(name) == reason

        await eventually(has_reason, every=0.01)

    async def version(self, name: str) -> str:
        return str((await self.client.get(f"{RULES}/{name}"))["metadata"]["resourceVersion"])

    def writer(self, **options: Any) -> StatusWriter:
        return StatusWriter(
            self.client,
            cast("RuleObjects", self),
            self.check,
            election=ELECTION,
            wall_clock=lambda: NOW,
            **options,
        )

    @contextlib.asynccontextmanager
    async def running(self, **options: Any) -> AsyncIterator[StatusWriter]:
        """A writer that holds the Lease, and knows the objects."""
        stop, writer = asyncio.Event(), self.writer(**options)
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(writer.run(stop))
            await until(lambda: writer.active or running.done())
            try:
                yield writer
            finally:
                stop.set()


@pytest.fixture
async def env(tmp_path: Path) -> AsyncIterator[Env]:
    async with PlaygroundApiServer(tmp_path) as server, await KubeClient.connect(server.kubeconfig()) as client:
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}
        await client.post("/api/v1/namespaces", namespace)
        yield Env(client)


async def test_changed_object_is_checked_at_once(env: Env) -> None:
    name = await env.create("queue")
    async with env.running() as writer:
        await until(lambda: writer.counts() == {("MetricRule", "Ready"): 1})
        await env.change(name)
        env.result = Verdict(ready=False, reason="QueryFailed", message="no")
        writer.changed([name])
        for _ in range(100):
            await asyncio.sleep(0)  # no time
        assert len(env.checked) == 2
        await env.until_reason("queue", "QueryFailed")
    assert (await env.status("queue"))["observedGeneration"] == 2


async def test_fields_that_are_no_longer_known_are_removed(env: Env) -> None:
    name = await env.create("queue")
    async with env.running() as writer:
        await env.until_reason("queue", "Ready")
        env.reasons[name] = (Reason.CONFLICT, "queue is made by MetricRule shop/older, which is older")
        writer.changed([name])
        await env.until_reason("queue", "Conflict")
    status = await env.status("queue")
    assert "value" not in status
    assert "queryDuration" not in status
    assert status["conditions"][0]["message"] == "queue is made by MetricRule shop/older, which is older"
    assert len(env.checked) == 1, "an object that serves nothing is not checked"


async def test_status_that_is_the_same_is_not_written(env: Env) -> None:
    name = await env.create("queue")
    env.result = Verdict(ready=True, reason="NoValue", message="queue has no value")
    async with env.running() as writer:
        await env.until_reason("queue", "NoValue")
        version = await env.version("queue")
        writer.changed([name])
        await until(lambda: len(env.checked) == 2)
        await env.create("other")
        writer.changed([OTHER])
        await env.until_reason("other", "NoValue")
    assert await env.version("queue") == version


async def test_objects_that_are_first_seen_after_the_start_keep_their_status(env: Env) -> None:
    name = await env.create("queue")
    async with env.running():
        await env.until_reason("queue", "Ready")
    known, env.known = env.known, {}
    env.checked.clear()
    async with env.running(random=lambda: 0.9) as writer:
        env.known = known
        await env.create("other")
        writer.changed([name, OTHER])
        await env.until_reason("other", "Ready")
    assert env.checked == ["MetricRule shop/other"]


async def test_new_leader_leaves_statuses_that_another_replica_wrote(env: Env) -> None:
    await env.create("queue")
    async with env.running():
        await env.until_reason("queue", "Ready")
    version = await env.version("queue")
    await env.create("other")
    env.checked.clear()
    async with env.running(random=lambda: 0.9):
        await env.until_reason("other", "Ready")
    assert env.checked == ["MetricRule shop/other"]
    assert await env.version("queue") == version


async def test_new_leader_checks_objects_that_changed_meanwhile(env: Env) -> None:
    changed, refused_now, valid_again = [await env.create(name) for name in ("changed", "refused", "valid")]
    env.reasons[valid_again] = (Reason.INVALID, "spec: no")
    async with env.running():
        for name, reason in (("changed", "Ready"), ("refused", "Ready"), ("valid", "Invalid")):
            await env.until_reason(name, reason)
    await env.change(changed)
    env.reasons = {refused_now: (Reason.TOO_MANY_RULES, "more than 100")}
    async with env.running(random=lambda: 0.9):
        await env.until_reason("refused", "TooManyRules")
        await env.until_reason("valid", "Ready")
    assert (await env.status("changed"))["observedGeneration"] == 2


async def test_objects_are_checked_again_periodically(env: Env) -> None:
    await env.create("queue")

    async def has_value(value: str) -> bool:
        return (await env.status("queue")).get("value") == value

    settings = RuleObjectSettings(check_seconds=0.01)
    async with env.running(settings=settings):
        await env.until_reason("queue", "Ready")
        env.result = dataclasses.replace(READY, value="5")
        await eventually(functools.partial(has_value, "5"), every=0.01)
    env.result = dataclasses.replace(READY, value="6")
    async with env.running(settings=settings):
        await eventually(functools.partial(has_value, "6"), every=0.01)


async def test_object_without_a_value_is_checked_again_soon(env: Env) -> None:
    await env.create("queue")
    env.result = Verdict(ready=True, reason="NoValue", message="queue has no value")
    async with env.running(settings=RuleObjectSettings(unsettled_seconds=0.01), random=lambda: 0.9):
        await env.until_reason("queue", "NoValue")
        env.result = READY
        await env.until_reason("queue", "Ready")


@pytest.mark.parametrize("other", [{"uid": "of-the-deleted-one"}, {"generation": 7}])
async def test_object_that_is_another_one_now_keeps_its_status(env: Env, other: dict[str, Any]) -> None:
    name = await env.create("queue")
    async with env.running() as writer:
        await env.until_reason("queue", "Ready")
        env.known[name] = msgspec.structs.replace(env.known[name], **other)
        env.result = dataclasses.replace(READY, value="5")
        writer.changed([name])
        await until(lambda: len(env.checked) == 2)
        await env.create("other")
        writer.changed([OTHER])
        await env.until_reason("other", "Ready")
    assert (await env.status("queue"))["value"] == "4"


async def test_object_that_changes_during_its_check_is_checked_again_at_once(env: Env) -> None:
    name = await env.create("queue")
    env.hanging = asyncio.Event()
    async with env.running(settings=RuleObjectSettings(unsettled_seconds=3600.0)):
        await until(lambda: len(env.checked) == 1)
        await env.change(name)
        env.hanging.set()
        await env.until_reason("queue", "Ready")
    assert (await env.status("queue"))["observedGeneration"] == 2
    assert len(env.checked) == 2


async def test_pending_object_gets_its_status_when_its_series_are_listed(env: Env) -> None:
    name = await env.create("queue")
    env.reasons[name] = (Reason.PENDING, "its series are not listed yet")
    await env.create("other")
    async with env.running() as writer:
        await env.until_reason("other", "Ready")
        assert await env.status("queue") == {}
        env.reasons.clear()
        writer.changed([name])
        await env.until_reason("queue", "Ready")


async def test_object_that_stays_pending_gets_a_status_that_says_so(env: Env, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status_writer, "_PENDING_SECONDS", 0.01)
    env.reasons[await env.create("queue")] = (Reason.PENDING, "its series are not listed yet")
    async with env.running():
        await env.until_reason("queue", "Pending")


async def test_slow_namespace_does_not_delay_others(env: Env) -> None:
    env.hanging = asyncio.Event()
    for number in range(10):
        await env.create(f"slow-{number}")
    async with env.running() as writer:
        await until(lambda: len(env.checked) == 1)
        quick = ObjectName("MetricRule", "blog", "quick")
        env.known[quick] = RuleObject(name=quick, generation=1, rules=(rule("MetricRule blog/quick"),))
        writer.changed([quick])
        await until(lambda: len(env.checked) == 2)
        assert env.checked[1] == "MetricRule blog/quick"
        env.hanging.set()
        await env.until_reason("slow-9", "Ready")


@pytest.mark.parametrize(
    ("error", "logs"), [(forbidden("no right to patch metricrules/status"), 1), (conflict("it has changed"), 0)]
)
async def test_write_that_fails_is_retried_and_logged_once_unless_the_object_has_changed(
    env: Env, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, error: StatusError, logs: int
) -> None:
    patch, failures = KubeClient.patch, 0

    async def fail(self: KubeClient, path: str, *arguments: Any, **options: Any) -> dict[str, Any]:
        nonlocal failures
        failures += 1
        if failures <= 3:
            raise error
        return await patch(self, path, *arguments, **options)

    await env.create("queue")
    monkeypatch.setattr(KubeClient, "patch", fail)
    with caplog.at_level(logging.WARNING):
        async with env.running(settings=RuleObjectSettings(unsettled_seconds=0.01)):
            await env.until_reason("queue", "Ready")
    logged = [one.getMessage() for one in caplog.records if "cannot be written" in one.getMessage()]
    assert logged == [f"MetricRule shop/queue: its status cannot be written: {error}"] * logs


async def test_deleted_object_is_no_error(env: Env, caplog: pytest.LogCaptureFixture) -> None:
    name = await env.create("queue")
    await env.client.delete(f"{RULES}/queue")
    async with env.running() as writer:
        writer.changed([name])
        await until(lambda: bool(env.checked))
        await env.create("other")
        writer.changed([OTHER])
        await env.until_reason("other", "Ready")
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


async def test_conditions_are_counted_by_kind_and_reason(env: Env) -> None:
    first = await env.create("queue")
    env.reasons[await env.create("other")] = (Reason.INVALID, "spec: no")
    ready, invalid = ("MetricRule", "Ready"), ("MetricRule", "Invalid")
    async with env.running() as writer:
        await until(lambda: writer.counts() == {ready: 1, invalid: 1})
        del env.known[first]
        writer.changed([first])
        await until(lambda: writer.counts() == {invalid: 1})
    assert writer.counts() == {}, "only the replica that writes counts"


def invalid_config_map(env: Env, name: str) -> ObjectName:
    """Let the writers know a ConfigMap with an invalid rule."""
    key = ObjectName("ConfigMap", "shop", name)
    env.known[key] = RuleObject(name=key, uid=f"{name}-uid")
    env.reasons[key] = (Reason.INVALID, "externalRules[0]: no")
    return key


async def until_events(env: Env, *names: str) -> None:
    """Wait until there is exactly one event about each of these objects."""

    async def are_written() -> bool:
        return sorted(one["involvedObject"]["name"] for one in (await env.client.get(EVENTS))["items"]) == [*names]

    await eventually(are_written, every=0.01)


async def test_only_the_holder_of_the_lease_writes_events(env: Env) -> None:
    first = invalid_config_map(env, "first")
    async with env.running(statuses=False) as holder:
        stop, other = asyncio.Event(), env.writer(statuses=False)
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(other.run(stop))
            second = invalid_config_map(env, "second")
            for writer in (holder, other):
                writer.changed([first, second])
            await until_events(env, "first", "second")
            assert (holder.active, other.active, running.done()) == (True, False, False)
            stop.set()
        await until_events(env, "first", "second")


async def test_holder_whose_lease_has_expired_writes_no_events(env: Env, monkeypatch: pytest.MonkeyPatch) -> None:
    leading, has_expired, refused = LeaderElector.leading, [False], list[bool]()

    def expiring(elector: LeaderElector) -> bool:
        refused.extend(has_expired if has_expired[0] else [])
        return leading(elector) and not has_expired[0]

    monkeypatch.setattr(LeaderElector, "leading", expiring)
    async with env.running(statuses=False) as writer:
        writer.changed([invalid_config_map(env, "first")])
        await until_events(env, "first")
        has_expired[0] = True
        writer.changed([invalid_config_map(env, "second")])
        await until(lambda: bool(refused))
        has_expired[0] = False
        writer.changed([invalid_config_map(env, "third")])
        await until_events(env, "first", "third")
