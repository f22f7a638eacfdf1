"""Faults between the adapter and the API server that hit only the rules in objects: their metrics and others' stay."""

from __future__ import annotations

from playground.scenario import NAMESPACE
from tests.chaos.api_server_scenarios import need_other_replicas, wait_scaled
from tests.chaos.faults import Reply, Reset, path_has
from tests.chaos.scenario import Run, Scenario
from tests.eventually import eventually

_METRIC_RULES = path_has("metricrules")


async def not_watched(run: Run) -> None:
    """Cut off the watches of MetricRules, refuse new ones, and change the metrics' values."""
    environment, proxy = run.environment, run.environment.adapter_api
    before = proxy.faulty.total()

    async def met() -> bool:
        return proxy.faulty.total() > before

    async with proxy.inject(Reset(match=_METRIC_RULES)):
        await proxy.close_connections()
        await eventually(met)
        need_other_replicas(environment)
        await run.hold_until(wait_scaled(environment))
        assert await environment.adapter.is_ready(), "the adapter is not ready"


async def not_listed(run: Run) -> None:
    """Restart the adapter while it cannot list MetricRules, and change the metrics' values."""
    environment, adapter = run.environment, run.environment.adapter

    async def file_is_served() -> bool:
        replicas, active = await environment.replicas(), await environment.conditions("ScalingActive")
        assert replicas["shop"] == environment.load.needed, replicas
        assert active["shop"] == "True", active
        return True

    async def rule_is_unknown() -> bool:
        path = f"/apis/autoscaling/v2/namespaces/{NAMESPACE}/horizontalpodautoscalers/worker"
        conditions = (await environment.client.get(path))["status"]["conditions"]
        [active] = [each for each in conditions if each["type"] == "ScalingActive"]
        assert active["status"] == "False", active
        assert "it is not known yet which metrics there are" in active["message"], active
        return True

    async with environment.adapter_api.inject(Reply(status=500, match=_METRIC_RULES)):
        await adapter.child.stop(grace=30)
        await adapter.child.restart()
        need_other_replicas(environment)
        await eventually(file_is_served)
        await eventually(rule_is_unknown)
        await run.hold()


SCENARIOS: tuple[Scenario, ...] = (
    Scenario(
        name="rule-objects-not-watched",
        fault="the adapter can neither watch nor list MetricRules",
        promise="their rules stay in force; the adapter stays ready",
        inject=not_watched,
        short=True,
    ),
    Scenario(
        name="rule-objects-not-listed",
        fault="the adapter is restarted while it cannot list MetricRules",
        promise="metrics of the rules file are served; others are an error (503), not missing (404)",
        inject=not_listed,
    ),
)
