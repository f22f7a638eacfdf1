"""The rules file is reloaded when it changes, and a bad one changes nothing."""

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
from adapter.catalog.rule_telemetry import RuleTelemetry
from adapter.commands.reload import RulesReloader
from adapter.prometheus import PrometheusUnavailable
from adapter.rules import RulesFile, load_rules, parse_rules
from adapter.security.request_info import Target
from adapter.serving.health import Health
from kube.mapping import GroupResource, ResourceInfo
from tests.adapter.metrics_bed import CannedPrometheus, MetricsBed, metrics_bed, series
from tests.eventually import eventually

RULE = "seriesQuery: {}, metricsQuery: sum({}), resources: {{template: <<.Resource>>}}"
FIRST = f"rules: [{{{RULE.format('a', 'a')}}}]"
SECOND = f"rules: [{{{RULE.format('b', 'b')}}}, {{{RULE.format('a', 'a')}}}]"
PODS = GroupResource("", "pods")


class Followed:
    """A rules file in a mounted ConfigMap, and what was applied of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "config.yaml"
        self.path.symlink_to(Path("..data") / "config.yaml")
        self.registry = CollectorRegistry()
        self.applied: list[RulesFile] = []
        self.arrived = asyncio.Event()
        self.version = 0
        self.write(FIRST)
        self.reloader = RulesReloader(
            self.path,
            load_rules(self.path),
            self.apply,
            telemetry=RuleTelemetry(self.registry),
            poll_seconds=60,
        )

    def write(self, text: str) -> None:
        """Swap the file as the kubelet does: a new folder, and the link to it renamed into place."""
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

    def seen(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(f"milliscale_adapter_config_{name}", labels)


@pytest.fixture
def followed(tmp_path: Path) -> Followed:
    return Followed(tmp_path)


async def test_a_new_file_is_applied_once(followed: Followed, caplog: pytest.LogCaptureFixture) -> None:
    await followed.reloader.look()
    assert followed.applied == []
    followed.write(SECOND)
    with caplog.at_level(logging.INFO, "adapter.commands.reload"):
        await followed.reloader.look()
        await followed.reloader.look()
    assert followed.applied == [parse_rules(SECOND, source="x")]
    assert caplog.text.count("reloaded the rules file") == 1


async def test_the_same_text_in_another_place_is_no_change(followed: Followed) -> None:
    followed.write(FIRST)
    await followed.reloader.look()
    assert followed.applied == []


async def test_a_bad_file_keeps_the_last_good_one_and_says_so(
    followed: Followed, caplog: pytest.LogCaptureFixture
) -> None:
    followed.write("rulez: []")
    with caplog.at_level(logging.INFO, "adapter.commands.reload"):
        for _ in range(3):
            await followed.reloader.look(asked=True)
    assert followed.applied == []
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert followed.seen("last_reload_successful") == 0
    remark = followed.reloader.remark()
    assert remark is not None
    assert remark.startswith("the last good rules stay in force: ")
    assert remark.endswith("config.yaml: unknown key `rulez`; did you mean `rules`?")
    health = Health(alive={}, ready={}, told={"rules-file": followed.reloader.remark})
    verbose = health.answer(Target.parse("/readyz?verbose"))
    assert verbose is not None
    assert (verbose.status, verbose.text) == (200, f"[+]rules-file ok: {remark}\nreadyz check passed\n")

    followed.write(FIRST)
    await followed.reloader.look()
    assert (followed.seen("last_reload_successful"), followed.reloader.remark()) == (1, None)
    followed.write("rulez: []")
    await followed.reloader.look()
    followed.write(SECOND)
    await followed.reloader.look()
    assert (len(followed.applied), followed.reloader.remark()) == (1, None)


async def test_whatever_else_goes_wrong_in_reading_keeps_the_last_good_one_too(
    followed: Followed, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(path: Path) -> RulesFile:
        raise LookupError("a bug")

    followed.write(SECOND)
    with monkeypatch.context() as patch:
        patch.setattr("adapter.commands.reload.load_rules", fails)
        for _ in range(3):
            await followed.reloader.look(asked=True)
    assert followed.applied == []
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert "LookupError('a bug')" in (followed.reloader.remark() or "")
    await followed.reloader.look(asked=True)
    assert (len(followed.applied), followed.reloader.remark()) == (1, None)


async def test_a_file_that_goes_and_comes_back_as_it_was_is_well_again(followed: Followed) -> None:
    followed.path.unlink()
    await followed.reloader.look()
    assert followed.seen("last_reload_successful") == 0
    followed.path.symlink_to(Path("..data") / "config.yaml")
    await followed.reloader.look()
    assert (followed.seen("last_reload_successful"), followed.applied) == (1, [])


async def test_a_hangup_has_it_looked_at_now(followed: Followed) -> None:
    followed.write(SECOND)
    running = asyncio.create_task(followed.reloader.run())
    await asyncio.sleep(0)  # from here on the signal is the reloader's
    os.kill(os.getpid(), signal.SIGHUP)
    async with asyncio.timeout(60):
        await followed.arrived.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_it_is_looked_at_every_few_seconds_unasked(followed: Followed) -> None:
    reloader = RulesReloader(
        followed.path,
        load_rules(followed.path),
        followed.apply,
        telemetry=RuleTelemetry(CollectorRegistry()),
        poll_seconds=0.01,
    )
    followed.write(SECOND)
    running = asyncio.create_task(reloader.run())
    async with asyncio.timeout(60):
        await followed.arrived.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


@pytest.fixture
async def bed(tmp_path: Path) -> AsyncIterator[MetricsBed]:
    found = {name: (series(name, "namespace", "pod"),) for name in ("a", "b")}
    async with metrics_bed(tmp_path, parse_rules(FIRST, source="x"), CannedPrometheus(found=dict(found))) as bed:
        await bed.catalog.relist()
        yield bed


def following(bed: MetricsBed, rules: str) -> Catalog:
    """The catalog of the next version."""
    return Catalog(parse_rules(rules, source="x"), bed.prometheus, bed.mapper, relist_interval=60.0, max_age=120.0)


async def test_rules_that_did_not_change_keep_their_lists_wherever_they_stand(bed: MetricsBed) -> None:
    bed.prometheus.found = dict.fromkeys("ab", PrometheusUnavailable("gone"))
    catalog = following(bed, SECOND)
    await catalog.carry_over(bed.catalog)
    source = catalog.find_custom(PODS, "a")
    assert source is not None
    assert source.rule is catalog.rules.custom[1]
    assert catalog.find_custom(PODS, "b") is None
    assert bed.catalog.find_custom(PODS, "a") is not source, "requests in flight have the source of their own version"
    await catalog.relist()
    assert catalog.find_custom(PODS, "a") is source
    assert catalog.readiness() is None


async def test_a_rule_that_changed_makes_its_metrics_of_the_series_that_were_listed_for_its_query(
    bed: MetricsBed,
) -> None:
    bed.prometheus.listed.clear()
    catalog = following(bed, FIRST.replace("sum(a)", "max(a), name: {as: other}"))
    await catalog.carry_over(bed.catalog)
    assert [str(info) for info in catalog.custom] == ["namespaces/other", "pods/other"]
    await catalog.list_new()
    assert bed.prometheus.listed == []


async def test_rules_that_did_not_change_do_not_wait_for_an_api_server_that_others_need(bed: MetricsBed) -> None:
    class Silent:
        def __init__(self) -> None:
            self.asked = asyncio.Event()

        async def resource_for(self, resource: str, group: str = "") -> ResourceInfo:
            self.asked.set()
            await asyncio.Event().wait()
            raise AssertionError

    bed.prometheus.found["b"] = (series("b", "namespace", "pod"),)
    rules = parse_rules(SECOND, source="x")
    before = Catalog(rules, bed.prometheus, bed.mapper, relist_interval=60.0, max_age=120.0)
    await before.relist()
    mapper = Silent()
    changed = parse_rules(SECOND.replace("sum(b)", "max(b)"), source="x")
    catalog = Catalog(changed, bed.prometheus, mapper, relist_interval=60.0, max_age=120.0)
    carrying = asyncio.create_task(catalog.carry_over(before))
    await mapper.asked.wait()
    carrying.cancel()  # as when the time for it is over
    await asyncio.wait([carrying])
    assert catalog.find_custom(PODS, "a") is not None


async def test_rules_that_are_gone_take_their_metrics_with_them_and_ready_stays_ready(bed: MetricsBed) -> None:
    catalog = following(bed, f"rules: [{{{RULE.format('b', 'b')}}}]")
    await catalog.carry_over(bed.catalog)
    assert [str(info) for info in catalog.custom] == []
    assert catalog.readiness() is None
    await catalog.list_new()
    assert [str(info) for info in catalog.custom] == ["namespaces/b", "pods/b"]


async def test_what_was_just_listed_is_not_listed_again_at_once_and_what_was_carried_over_is(bed: MetricsBed) -> None:
    catalog = following(bed, SECOND)
    await catalog.carry_over(bed.catalog)
    await catalog.list_new()
    assert [selector for selector, _, _ in bed.prometheus.listed] == ["a", "b"]
    running = asyncio.create_task(catalog.run())

    async def is_listed_again() -> bool:
        return len(bed.prometheus.listed) == 3

    assert await eventually(is_listed_again, within=10, every=0.001)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert [selector for selector, _, _ in bed.prometheus.listed] == ["a", "b", "a"]


async def test_a_catalog_of_rules_that_are_gone_can_still_be_listing(bed: MetricsBed) -> None:
    """A list that comes late is for the version that asked for it, and harms no other."""
    catalog = following(bed, f"rules: [{{{RULE.format('b', 'b')}}}]")
    await catalog.carry_over(bed.catalog)
    await bed.catalog.relist()
    assert [str(info) for info in bed.catalog.custom] == ["namespaces/a", "pods/a"]
    assert [str(info) for info in catalog.custom] == []
