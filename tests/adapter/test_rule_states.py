"""The state of a rule after a list: a failure keeps the last metrics, and rules of objects have limits."""

from __future__ import annotations

import msgspec
import pytest

from adapter.catalog.rule_states import NOT_LISTED, Problem, Reason, RuleState, after_list
from adapter.commands.builtin_resources import FixedResources
from adapter.prometheus import Series
from adapter.rules import Rule, parse_rules
from kube.api.client import KubeUnreachable
from kube.api.mapping import ResourceInfo
from tests.adapter.metrics_env import series, series_rule

PODS = ResourceInfo("", "v1", "Pod", "pods", "pod", namespaced=True)
MAPPER = FixedResources([PODS])
DOWN = Problem(Reason.PROMETHEUS_UNAVAILABLE, "no response")


def rule(query: str = "sum(<<.Series>>)") -> Rule:
    """Return a rule of the namespace shop."""
    text = f"rules: [{{seriesQuery: a, metricsQuery: {query}, resources: {{overrides: {{pod: {{resource: pod}}}}}}}}]"
    return msgspec.structs.replace(series_rule(parse_rules(text, source="x")), namespace="shop")


class Unreachable:
    async def resource_for(self, resource: str, group: str = "") -> ResourceInfo:
        raise KubeUnreachable("no connection")


class Buggy:
    async def resource_for(self, resource: str, group: str = "") -> ResourceInfo:
        raise RecursionError("too deep")


def many(count: int) -> tuple[Series, ...]:
    return tuple(series(f"a{number}", "pod") for number in range(count))


async def listed(state: RuleState, *, limited: bool) -> RuleState:
    after = await after_list(state, (series("a", "pod"),), MAPPER, limited=limited)
    assert (after.problem, [str(source) for source in after.sources], after.made) == (None, ["pods/a"], 1)
    return after


@pytest.mark.parametrize("limited", [True, False], ids=["object", "file"])
@pytest.mark.parametrize(
    ("found", "mapper", "problem"),
    [
        (DOWN, MAPPER, DOWN),
        (
            many(2),
            Unreachable(),
            Problem(Reason.PENDING, "the resources of the cluster cannot be listed: no connection"),
        ),
        (many(2), Buggy(), Problem(Reason.INVALID, "it cannot be used: RecursionError('too deep')")),
    ],
    ids=["Prometheus", "API server", "bug"],
)
async def test_failure_keeps_the_last_metrics(
    found: tuple[Series, ...] | Problem,
    mapper: FixedResources | Unreachable | Buggy,
    problem: Problem,
    limited: bool,
) -> None:
    before = await listed(RuleState(rule(), problem=NOT_LISTED), limited=limited)
    after = await after_list(before, found, mapper, limited=limited)
    assert (after.problem, after.sources, after.made) == (problem, before.sources, 1)
    await listed(after, limited=limited)


@pytest.mark.parametrize(
    ("count", "message"),
    [(201, "it makes 201 metrics, and can make 200"), (2001, "its seriesQuery finds 2001 names of series")],
)
async def test_rule_that_finds_too_many_series_keeps_its_last_metrics(count: int, message: str) -> None:
    before = await listed(RuleState(rule(), problem=NOT_LISTED), limited=True)
    after = await after_list(before, many(count), MAPPER, limited=True)
    assert after.problem is not None
    assert after.problem.message.startswith(message)
    assert after.sources == before.sources
    assert len((await after_list(before, many(count), MAPPER, limited=False)).sources) == count


async def test_names_of_metrics_are_at_most_253_characters() -> None:
    """Of several series, those with longer names are left out: their pods chose the names."""
    found = (series("a" * 253, "pod"), series("b" * 254, "pod"))
    after = await after_list(RuleState(rule()), found, MAPPER, limited=True)
    assert [source.metric for source in after.sources] == ["a" * 253]
    after = await after_list(RuleState(rule()), found[1:], MAPPER, limited=True)
    assert after.problem is not None
    assert after.problem.message.startswith("the name of a metric can have 253 bytes, all printable: 'bbb")


async def test_metrics_of_another_version_of_the_rule_end_with_a_failure() -> None:
    before = await listed(RuleState(rule()), limited=True)
    changed = RuleState(rule("max(<<.Series>>)"), before.sources, problem=NOT_LISTED, made=1)
    assert await after_list(changed, DOWN, MAPPER, limited=True) == RuleState(changed.rule, problem=DOWN)


async def test_same_series_make_the_same_metrics() -> None:
    before = await listed(RuleState(rule()), limited=False)
    assert (await listed(before, limited=False)).sources is before.sources
    assert (await after_list(before, (), MAPPER, limited=False)).sources == ()


async def test_series_of_rules_of_objects_are_not_kept() -> None:
    assert (await listed(RuleState(rule()), limited=True)).series == ()
