"""External metrics without a rule are forwarded to one of several adapters, by the metric's name."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from adapter.content.encoding import Representation
from adapter.content.values import EXTERNAL_GROUP
from adapter.metrics.forward import Forwarder
from adapter.rules import ForwardOptions, parse_rules
from adapter.telemetry import RuleTelemetry
from adapter.upstream import upstream_session
from kube.api.status import StatusError
from tests.adapter.test_forward import API, VALUES, fetch, forwarding, other_adapter
from tests.eventually import eventually
from tests.kube.scripted import Held, ScriptedServer, respond

NONE = parse_rules("externalRules: []", source="x")


@contextlib.asynccontextmanager
async def two_adapters(
    folder: Path,
) -> AsyncIterator[tuple[ScriptedServer, ScriptedServer, tuple[ForwardOptions, ForwardOptions]]]:
    """KEDA, for s*-* only, and Datadog for datadog*; both list and serve more than that."""
    async with contextlib.AsyncExitStack() as stack:
        servers, options = [], []
        for name, pattern in (("keda", "s*-*"), ("datadog", "datadog*")):
            (folder / name).mkdir()
            server, access = await stack.enter_async_context(other_adapter(folder / name))
            listed = [{"name": metric} for metric in ("s0-queue", "datadog-hits", "other")]
            server.handlers[API] = respond({"resources": listed})
            for metric in ("datadog-hits", "datadog-misses"):
                server.handlers[f"{API}/namespaces/shop/{metric}"] = respond(VALUES)
            servers.append(server)
            options.append(dataclasses.replace(access, name=name, metrics=(pattern,)))
        yield servers[0], servers[1], (options[0], options[1])


def requests(server: ScriptedServer) -> list[str]:
    return [line.partition("?")[0].rpartition("/")[2] for line in server.requests if "/namespaces/" in line]


async def both_listed(forwarder: Forwarder) -> bool:
    return all(adapter.names for adapter in forwarder.adapters)


async def test_first_adapter_with_a_matching_pattern_gets_the_request(tmp_path: Path) -> None:
    async with two_adapters(tmp_path) as (keda, datadog, (first, second)):
        everything = dataclasses.replace(second, name="rest", metrics=())
        async with forwarding(tmp_path, first, second, everything, rules=NONE) as (external, _, _, _):
            for metric in ("s0-queue", "datadog-hits", "datadog-misses"):
                assert len(await fetch(external, metric)) == 2
            with pytest.raises(StatusError) as missing:
                await fetch(external, "other")
        assert requests(keda) == ["s0-queue"]
        assert requests(datadog) == ["datadog-hits", "datadog-misses", "other"]
        assert (missing.value.code, missing.value.message) == (404, "no route"), "the last adapter's own response"


async def test_metric_that_matches_no_pattern_is_not_found(tmp_path: Path) -> None:
    async with two_adapters(tmp_path) as (keda, datadog, options):
        async with forwarding(tmp_path, *options, rules=NONE) as (external, _, _, _):
            with pytest.raises(StatusError) as missing:
                await fetch(external, "other")
        assert (missing.value.code, missing.value.message) == (404, "the server could not find the metric other for ")
        assert requests(keda) == requests(datadog) == []


async def test_discovery_has_the_metrics_that_each_adapter_lists_and_serves(tmp_path: Path) -> None:
    async with (
        two_adapters(tmp_path) as (keda, _, options),
        forwarding(tmp_path, *options, rules=NONE) as (_, discovery, forwarder, _),
    ):
        keda.handlers[API] = respond({"resources": [{"name": "s1-orders"}, {"name": "datadog-of-keda"}]})
        assert await eventually(lambda: both_listed(forwarder), within=10, every=0.01)
        document = await discovery.resources(EXTERNAL_GROUP, "v1beta1", Representation())
        names = [resource["name"] for resource in json.loads(document.body)["resources"]]
        assert names == ["datadog-hits", "s1-orders"], "neither other, nor what the other adapter would be asked for"
        assert await discovery.resources(EXTERNAL_GROUP, "v1beta1", Representation()) is document


async def test_names_that_no_request_can_have_are_not_in_discovery(tmp_path: Path) -> None:
    async with (
        two_adapters(tmp_path) as (keda, _, options),
        forwarding(tmp_path, *options, rules=NONE) as (_, _, forwarder, _),
    ):
        names = ["s1-orders", "", "s1-a/b", "s1-..%2Fx", "s1-\n", "s1-\u202e"]
        keda.handlers[API] = respond({"resources": [{"name": name} for name in names]})
        assert await eventually(lambda: both_listed(forwarder), within=10, every=0.01)
        assert forwarder.names == (("s1-orders",), ("datadog-hits",))


async def test_hanging_adapter_delays_only_its_own_metrics(tmp_path: Path) -> None:
    """All connections to one adapter are in use and none responds; the other one is served at once."""
    async with two_adapters(tmp_path) as (keda, _, (hanging, other)):
        held = {number: Held(respond(VALUES)) for number in range(20)}
        keda.handlers[API] = Held(respond({}))
        for number, handler in held.items():
            keda.handlers[f"{API}/namespaces/shop/s{number}-x"] = handler
        async with forwarding(tmp_path, hanging, other, rules=NONE) as (external, discovery, forwarder, _):
            waiting = [asyncio.create_task(fetch(external, f"s{number}-x")) for number in held]

            async def full() -> bool:
                return sum(one.times for one in held.values()) == 7  # and the list is the eighth

            assert await eventually(full, within=10, every=0.01)
            assert len(await fetch(external, "datadog-hits")) == 2

            async def other_is_listed() -> bool:
                return any(forwarder.names)

            assert await eventually(other_is_listed, within=10, every=0.01)
            assert "datadog-hits" in discovery.external_names
            for task in waiting:
                task.cancel()
            await asyncio.wait(waiting)


async def test_session_that_all_adapters_share_leaves_the_limit_of_connections_to_each() -> None:
    async with upstream_session() as session:
        assert session.connector is not None
        assert session.connector.limit == 0


async def test_unreachable_adapter_is_reported_and_the_other_is_listed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with two_adapters(tmp_path) as (_, _, (gone, other)):
        unreachable = dataclasses.replace(gone, ca_file=tmp_path / "missing")
        async with forwarding(tmp_path, unreachable, other, rules=NONE) as (external, _, forwarder, _):
            await forwarder.wait_tried()
            assert forwarder.names == ((), ("datadog-hits",))
            with pytest.raises(StatusError) as refused:
                await fetch(external, "s0-queue")
            keda = forwarder.adapters[0]
    assert refused.value.code == 503
    assert refused.value.message == "the adapter keda of forwardExternal cannot be reached"
    assert keda.problem == refused.value.message
    assert "the metrics of the adapter keda of forwardExternal cannot be listed" in caplog.text


async def test_other_patterns_keep_what_the_adapter_has_listed(tmp_path: Path) -> None:
    async with two_adapters(tmp_path) as (_, _, options), forwarding(tmp_path, *options) as (_, _, before, _):
        assert await eventually(lambda: both_listed(before), within=10, every=0.01)
        keda = dataclasses.replace(options[0], name="the-rest", metrics=())
        after = Forwarder((options[1], keda), relist_interval=60)
        await after.carry_over(before)
        await after.wait_tried()
        assert before.names == (("s0-queue",), ("datadog-hits",))
        assert after.names == (("datadog-hits",), ("other", "s0-queue"))


async def test_list_with_too_many_names_is_not_used(tmp_path: Path) -> None:
    async with two_adapters(tmp_path) as (keda, _, options):
        names = [{"name": f"s{number}-x"} for number in range(50_001)]
        keda.handlers[API] = respond({"resources": names})
        async with forwarding(tmp_path, *options, rules=NONE) as (_, _, forwarder, _):
            await forwarder.wait_tried()
            assert forwarder.adapters[0].problem == "the adapter keda of forwardExternal lists more than 50000 metrics"
            assert forwarder.names == ((), ("datadog-hits",))
        keda.handlers[API] = respond({"resources": [*names[1:], {"name": "datadog-x"}, {"name": "s1-x"}][2:]})
        async with forwarding(tmp_path, *options, rules=NONE) as (_, _, forwarder, _):
            await forwarder.wait_tried()
            assert sum(map(len, forwarder.names)) == 50_000
            assert "datadog-x" not in forwarder.names[0]


async def test_failed_list_of_an_adapter_is_a_metric(tmp_path: Path) -> None:
    registry = CollectorRegistry()
    telemetry = RuleTelemetry(registry)

    def value(adapter: str) -> float | None:
        return registry.get_sample_value("milliscale_adapter_forward_last_list_successful", {"adapter": adapter})

    async with two_adapters(tmp_path) as (_, _, (gone, other)):
        unreachable = dataclasses.replace(gone, ca_file=tmp_path / "missing")
        async with forwarding(tmp_path, unreachable, other, rules=NONE) as (_, _, forwarder, _):
            telemetry.begin([], digest="", now=0.0, paused=tuple, forwards=forwarder.states)
            await forwarder.wait_tried()
            assert (value("keda"), value("datadog")) == (0.0, 1.0)
    telemetry.begin([], digest="", now=0.0, paused=tuple)
    assert (value("keda"), value("datadog")) == (None, None)
