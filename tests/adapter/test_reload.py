"""The rules file is reloaded when it changes; a bad one changes nothing."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from adapter.catalog.catalog import Catalog
from adapter.prometheus import PrometheusUnavailable
from adapter.rules import RulesFile, load_rules, parse_rules
from adapter.serving.reload import RulesReloader
from adapter.telemetry import RuleTelemetry
from kube.api.mapping import GroupResource, ResourceInfo
from kube.security.request_info import Target
from kube.serving.health import Health
from tests.adapter.metrics_env import NOW, CannedPrometheus, MetricsEnv, metrics_env, series

RULE = "seriesQuery: {}, metricsQuery: sum({}), resources: {{template: <<.Resource>>}}"
FIRST = f"rules: [{{{RULE.format('a', 'a')}}}]"
SECOND = f"rules: [{{{RULE.format('b', 'b')}}}, {{{RULE.format('a', 'a')}}}]"
PODS = GroupResource("", "pods")


class MountedRules:
    """A rules file in a mounted ConfigMap, with its reloader and the applied versions."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "config.yaml"
        self.path.symlink_to(Path("..data") / "config.yaml")
        self.registry = CollectorRegistry()
        self.applied: list[RulesFile] = []
        self.arrived = asyncio.Event()
        self.listed_again = 0
        self.version = 0
        self.write(FIRST)
        self.reloader = RulesReloader(
            self.path,
            load_rules(self.path),
            self.apply,
            list_again=self.list_again,
            telemetry=RuleTelemetry(self.registry),
            poll_seconds=60,
        )

    def write(self, text: str) -> None:
        """Replace the file as the kubelet does: a new directory, and the link to it renamed into place."""
        self.version += 1
        data = self.folder / f"..{self.version}"
        data.mkdir()
        (data / "config.yaml").write_text(text)
        link = self.folder / "..data_tmp"
        link.symlink_to(data.name)
        link.replace(self.folder / "..data")

    async def apply(self, rules: RulesFile) -> None:
        self.applied.append(rules)
        self.arrived.set()

    def list_again(self) -> None:
        self.listed_again += 1

    def seen(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(f"milliscale_adapter_config_{name}", labels)


@pytest.fixture
def mounted(tmp_path: Path) -> MountedRules:
    return MountedRules(tmp_path)


async def test_changed_file_is_applied_once(mounted: MountedRules, caplog: pytest.LogCaptureFixture) -> None:
    await mounted.reloader.poll()
    assert mounted.applied == []
    mounted.write(SECOND)
    with caplog.at_level(logging.INFO, "adapter.serving.reload"):
        await mounted.reloader.poll()
        await mounted.reloader.poll()
    assert mounted.applied == [parse_rules(SECOND, source="x")]
    assert caplog.text.count("reloaded the rules file") == 1


async def test_changed_file_with_holidays_is_applied(mounted: MountedRules) -> None:
    holidays = mounted.folder / "days.ics"
    text = "BEGIN:VCALENDAR\nBEGIN:VEVENT\nDTSTART;VALUE=DATE:2026010{}\nEND:VEVENT\nEND:VCALENDAR\n"
    holidays.write_text(text.format(1))
    mounted.write("externalRules: [{name: a, schedule: {holidays: {file: days.ics}}}]")
    await mounted.reloader.poll()
    await mounted.reloader.poll()
    assert len(mounted.applied) == 1
    holidays.write_text(text.format(2))
    await mounted.reloader.poll()
    assert len(mounted.applied) == 2
    holidays.unlink()
    await mounted.reloader.poll()
    assert len(mounted.applied) == 2
    assert "days.ics: cannot be read" in (mounted.reloader.problem or "")
    holidays.write_text(text.format(2))
    await mounted.reloader.poll()
    assert mounted.reloader.problem is None


async def test_new_file_with_the_same_content_is_not_applied(mounted: MountedRules) -> None:
    mounted.write(FIRST)
    await mounted.reloader.poll()
    assert mounted.applied == []


async def test_bad_file_keeps_the_last_good_rules_and_is_reported(
    mounted: MountedRules, caplog: pytest.LogCaptureFixture
) -> None:
    mounted.write("rulez: []")
    with caplog.at_level(logging.INFO, "adapter.serving.reload"):
        for _ in range(3):
            await mounted.reloader.poll(force=True)
    assert mounted.applied == []
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert mounted.seen("last_reload_successful") == 0
    remark = mounted.reloader.note()
    assert remark is not None
    assert remark.startswith("the last good rules stay in use: ")
    assert remark.endswith("config.yaml: unknown key `rulez`; did you mean `rules`?")
    health = Health(live={}, ready={}, notes={"rules-file": mounted.reloader.note})
    verbose = health.respond(Target.parse("/readyz?verbose"))
    assert verbose == (200, f"[+]ping ok\n[!]rules-file: {remark}\nreadyz check passed\n")

    mounted.write(FIRST)
    await mounted.reloader.poll()
    assert (mounted.seen("last_reload_successful"), mounted.reloader.note()) == (1, None)
    mounted.write("rulez: []")
    await mounted.reloader.poll()
    mounted.write(SECOND)
    await mounted.reloader.poll()
    assert (len(mounted.applied), mounted.reloader.note()) == (1, None)


async def test_unexpected_exception_keeps_the_last_good_rules(
    mounted: MountedRules, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(path: Path) -> RulesFile:
        raise LookupError("a bug")

    mounted.write(SECOND)
    with monkeypatch.context() as patch:
        patch.setattr("adapter.serving.reload.load_rules", fails)
        for _ in range(3):
            await mounted.reloader.poll(force=True)
    assert mounted.applied == []
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert "LookupError('a bug')" in (mounted.reloader.note() or "")
    await mounted.reloader.poll(force=True)
    assert (len(mounted.applied), mounted.reloader.note()) == (1, None)


async def test_file_that_reappears_unchanged_is_usable_again(mounted: MountedRules) -> None:
    mounted.path.unlink()
    await mounted.reloader.poll()
    assert mounted.seen("last_reload_successful") == 0
    mounted.path.symlink_to(Path("..data") / "config.yaml")
    await mounted.reloader.poll()
    assert (mounted.seen("last_reload_successful"), mounted.applied) == (1, [])


async def test_sighup_reloads_and_lists_again_at_once(mounted: MountedRules) -> None:
    mounted.write(SECOND)
    running = asyncio.create_task(mounted.reloader.run())
    await asyncio.sleep(0)  # the reloader handles the signal from here on
    os.kill(os.getpid(), signal.SIGHUP)
    async with asyncio.timeout(60):
        await mounted.arrived.wait()
    assert mounted.listed_again == 1
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_file_is_polled(mounted: MountedRules) -> None:
    reloader = RulesReloader(
        mounted.path,
        load_rules(mounted.path),
        mounted.apply,
        list_again=mounted.list_again,
        telemetry=RuleTelemetry(),
        poll_seconds=0.01,
    )
    mounted.write(SECOND)
    running = asyncio.create_task(reloader.run())
    async with asyncio.timeout(60):
        await mounted.arrived.wait()
    assert mounted.listed_again == 0
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


@pytest.fixture
async def env(tmp_path: Path) -> AsyncIterator[MetricsEnv]:
    found = {name: (series(name, "namespace", "pod"),) for name in ("a", "b")}
    async with metrics_env(tmp_path, parse_rules(FIRST, source="x"), CannedPrometheus(found=dict(found))) as env:
        await env.catalog.relist()
        yield env


def following(env: MetricsEnv, rules: str) -> Catalog:
    """Return the catalog of the next version."""
    return Catalog(parse_rules(rules, source="x"), env.listings, env.mapper)


async def test_unchanged_rules_keep_their_lists_if_they_move_in_the_file(env: MetricsEnv) -> None:
    env.prometheus.found = dict.fromkeys("ab", PrometheusUnavailable("gone"))
    catalog = following(env, SECOND)
    await catalog.start(env.catalog)
    source = catalog.find_custom(PODS, "a")
    assert source is not None
    assert source.rule is catalog.rules.custom[1]
    assert catalog.find_custom(PODS, "b") is None
    assert env.catalog.find_custom(PODS, "a") is not source, "requests in flight have the source of their own version"
    await catalog.relist()
    assert catalog.find_custom(PODS, "a") is source
    assert catalog.readiness() is None


async def test_changed_rule_reuses_the_list_of_its_series_query(
    env: MetricsEnv,
) -> None:
    env.prometheus.listed.clear()
    catalog = following(env, FIRST.replace("sum(a)", "max(a), name: {as: other}"))
    await catalog.start(env.catalog)
    assert [str(info) for info in catalog.snapshot.custom] == ["namespaces/other", "pods/other"]
    await catalog.tried.wait()
    assert env.prometheus.listed == []


async def test_unchanged_rules_do_not_wait_for_the_api_server(env: MetricsEnv) -> None:
    class Silent:
        def __init__(self) -> None:
            self.arrived = asyncio.Event()

        async def resource_for(self, resource: str, group: str = "") -> ResourceInfo:
            self.arrived.set()
            await asyncio.Event().wait()
            raise AssertionError

    env.prometheus.found["b"] = (series("b", "namespace", "pod"),)
    rules = parse_rules(SECOND, source="x")
    before = Catalog(rules, env.listings, env.mapper)
    await before.relist()
    mapper = Silent()
    changed = parse_rules(SECOND.replace("template: <<.Resource>>", "overrides: {pod: {resource: pod}}", 1), source="x")
    catalog = Catalog(changed, env.listings, mapper)
    carrying = asyncio.create_task(catalog.start(before))
    await mapper.arrived.wait()
    carrying.cancel()  # as when the time for it is over
    await asyncio.wait([carrying])
    assert catalog.find_custom(PODS, "a") is not None


async def test_only_new_lists_are_made_at_a_reload(env: MetricsEnv) -> None:
    before = following(env, FIRST)
    await before.start()
    listing = asyncio.create_task(env.listings.run())
    await before.tried.wait()
    env.prometheus.listed.clear()
    catalog = following(env, SECOND)
    await catalog.start(before)
    before.stop()
    await catalog.tried.wait()
    listing.cancel()
    await asyncio.wait([listing])
    assert [selector for selector, _, _ in env.prometheus.listed] == ["b"]
    assert [str(info) for info in catalog.snapshot.custom] == ["namespaces/a", "pods/a", "namespaces/b", "pods/b"]
    assert catalog.state(catalog.rules.custom[1]).listed_at == NOW


async def test_list_that_ends_during_a_reload_is_for_the_new_version_too(env: MetricsEnv) -> None:
    class Silent:
        arrived, go = asyncio.Event(), asyncio.Event()

        async def resource_for(self, resource: str, group: str = "") -> ResourceInfo:
            self.arrived.set()
            await self.go.wait()
            return await env.mapper.resource_for(resource, group)

    mapper = Silent()
    changed = parse_rules(FIRST.replace("template: <<.Resource>>", "overrides: {pod: {resource: pod}}"), source="x")
    catalog = Catalog(changed, env.listings, mapper)
    reloading = asyncio.create_task(catalog.start(env.catalog))
    await mapper.arrived.wait()
    env.prometheus.found["a"] = (series("new", "pod"),)
    await env.catalog.relist()
    assert [str(info) for info in catalog.snapshot.custom] == ["pods/new"]
    mapper.go.set()
    await reloading
    assert [str(info) for info in catalog.snapshot.custom] == ["pods/new"]


@pytest.mark.parametrize("changed", ["sum(a)", "max(a)", "overrides: {pod: {resource: pod}}"])
async def test_failure_of_a_list_stays_over_a_reload(env: MetricsEnv, changed: str) -> None:
    env.prometheus.found["a"] = PrometheusUnavailable("no response")
    await env.catalog.relist()
    old = "sum(a)" if "(" in changed else "template: <<.Resource>>"
    catalog = following(env, FIRST.replace(old, changed))
    await catalog.start(env.catalog)
    state = catalog.state(catalog.rules.custom[0])
    assert (state.failure, state.listed_at) == ("no response", NOW)
    assert catalog.find_custom(PODS, "a") is not None
    env.prometheus.found["a"] = (series("a", "pod"),)
    await catalog.relist()
    assert catalog.state(catalog.rules.custom[0]).failure == ""


async def test_metrics_of_removed_rules_are_removed_and_readiness_stays(env: MetricsEnv) -> None:
    catalog = following(env, f"rules: [{{{RULE.format('b', 'b')}}}]")
    await catalog.start(env.catalog)
    assert [str(info) for info in catalog.snapshot.custom] == []
    assert catalog.readiness() is None
    await catalog.relist()
    assert [str(info) for info in catalog.snapshot.custom] == ["namespaces/b", "pods/b"]


async def test_late_list_of_an_old_catalog_does_not_change_the_new_one(env: MetricsEnv) -> None:
    """A late list is for the version that requested it, and affects no other."""
    catalog = following(env, f"rules: [{{{RULE.format('b', 'b')}}}]")
    await catalog.start(env.catalog)
    await env.catalog.relist()
    assert [str(info) for info in env.catalog.snapshot.custom] == ["namespaces/a", "pods/a"]
    assert [str(info) for info in catalog.snapshot.custom] == []
