"""The page about all rules."""

from __future__ import annotations

import asyncio
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from adapter.diagnosis.check import check
from adapter.diagnosis.report import Report
from adapter.planning.coalescer import Pause
from adapter.prometheus import PrometheusError, PrometheusUnavailable, Series
from adapter.rules import parse_rules
from adapter.serving import debug_pages
from adapter.ui.formatting import age_text, rounded_age
from adapter.ui.pages import AdapterPages
from kube.api.client import KubeUnreachable
from kube.api.mapping import ResourceInfo
from kube.api.status import StatusError
from tests.adapter.diagnosis_env import ALL_FOUND, POD, RULES, SELECTORS
from tests.adapter.metrics_env import CannedPrometheus, series, vector
from tests.adapter.ui.env import element, pages_env, text_of

FOUND: dict[str, tuple[Series, ...] | PrometheusError] = {SELECTORS[name]: found for name, found in ALL_FOUND.items()}


async def test_each_rule_has_a_row_with_its_series_metrics_and_last_relist(tmp_path: Path) -> None:
    async with pages_env(tmp_path, RULES, CannedPrometheus(found={**FOUND})) as env:
        env.now += 125
        page = await env.get("/")
    assert text_of(element(page, "rules-0").partition("</tr>")[0]).endswith('rules[0] {job="first"} ok 1 2 2 min ago -')
    assert text_of(element(page, "externalRules-0").partition("</tr>")[0]).endswith(
        'externalRules[0] {job="outside"} ok 1 1 2 min ago -'
    )


async def test_row_says_why_coalescing_is_paused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with pages_env(tmp_path, RULES, CannedPrometheus(found={**FOUND})) as env:
        paused = [("rules[0]", Pause.FAILURE), ("rules[0]", Pause.FAILURE), ("rules[0]", Pause.COST)]
        monkeypatch.setattr(env.active.coalescer, "paused", lambda: paused)
        row = element(await env.get("/"), "rules-0").partition("</tr>")[0]
    assert text_of(row).endswith(" paused: cost paused: failure")
    assert 'title="the coalesced query fails"' in row


async def test_rules_are_in_the_order_of_the_file(tmp_path: Path) -> None:
    short = "rules:\n- {name: lag, query: up, resources: {pod: pod, namespace: namespace}}\n"
    rules = short + "- {seriesQuery: errors, metricsQuery: '<<.Series>>', resources: {template: <<.Resource>>}}\n"
    async with pages_env(tmp_path, rules, CannedPrometheus()) as env:
        assert [rule.key for rule in env.active.rules.all_rules] == ["rules[1]", "rules[0]"]  # of precedence
        page = await env.get("/")
    assert page.index('id="rules-0"') < page.index('id="rules-1"')
    assert "lag ok short form 1" in text_of(page)


async def test_failed_list_and_findings_of_check_are_shown_at_the_rule(tmp_path: Path) -> None:
    found = {**FOUND, SELECTORS["second"]: PrometheusUnavailable("Prometheus cannot be reached: no route")}
    async with pages_env(tmp_path, RULES, CannedPrometheus(found=found)) as env:
        page = await env.get("/")
        problems = await env.get("/?show=problems")
    assert 'id="rules-1"' in problems
    assert 'id="rules-0"' not in problems
    row = text_of(element(page, "rules-1").partition("</tr>")[0])
    assert "not listed Prometheus cannot be reached: no route" in row
    assert row.endswith("0 0 never -")
    assert "error rules[1] : its series cannot be listed: Prometheus cannot be reached: no route [not-listed]" in (
        text_of(page)
    )
    assert "1 cannot be listed" in text_of(page)


async def test_search_finds_rules_by_query_and_metric(tmp_path: Path) -> None:
    async with pages_env(tmp_path, RULES, CannedPrometheus(found={**FOUND})) as env:
        for query, shown in [
            ("", {"rules-0", "rules-1", "externalRules-0"}),
            ("hits_per_second", {"rules-0"}),
            ("OUTSIDE", {"externalRules-0"}),
            ("rules[1]", {"rules-1"}),
            ("nothing", set()),
        ]:
            page = await env.get(f"/?q={query}")
            assert {one for one in ("rules-0", "rules-1", "externalRules-0") if f'id="{one}"' in page} == shown
            assert ("No rule fits." in page) is (not shown)
        assert "No rule fits." in (await anext(await env.events("/events?q=nothing"))).data


async def test_servers_are_shown_without_passwords(tmp_path: Path) -> None:
    rules = "prometheusServers: {mimir: {url: 'https://name:secret@mimir/prometheus'}}\n" + RULES
    async with pages_env(tmp_path, rules, CannedPrometheus(found={**FOUND})) as env:
        env.metrics.telemetry.queried("default", "/api/v1/query", 0.25)
        env.metrics.telemetry.queried("default", "/api/v1/query", 0.75)
        env.metrics.telemetry.queried("mimir", "/api/v1/series", 1.5)
        page = await env.get("/")
    assert "secret" not in page
    assert "default http://prometheus:9090 2 500 ms 0 -" in text_of(page)
    assert "mimir https://mimir/prometheus 0 - 1 1.5 s" in text_of(page)


async def test_state_of_the_rules_file_is_shown(tmp_path: Path) -> None:
    async with pages_env(tmp_path, RULES, CannedPrometheus(found={**FOUND})) as env:
        text = await env.text("/")
        assert f"SHA-256 {env.active.rules.digest} Active since 2023-11-14 22:11:40 UTC (1 min ago)" in text
        assert "Current content in use" in text
        env.sources.rules_file.problem = "line 3: this is not YAML"
        env.sources.rule_sets.gone = {"custom.metrics.k8s.io": ["pods/a", "pods/b"]}
        text = await env.text("/")
    assert "the last good rules stay in use: line 3: this is not YAML" in text
    assert "Removed by the last reload 2 metrics of custom.metrics.k8s.io: pods/a, pods/b" in text


async def test_each_other_adapter_is_shown_with_its_metrics_and_its_problem(tmp_path: Path) -> None:
    rules = """
forwardExternal:
- {name: keda, metrics: ["s*-*", composite-metric], url: https://keda}
- {name: datadog, url: https://datadog}
"""
    async with pages_env(tmp_path, rules + RULES, CannedPrometheus(found={**FOUND})) as env:
        keda, datadog = env.active.forwarder.adapters
        keda.problem, datadog.names = "it <cannot> be reached", ("a", "b")
        page = await env.get("/")
    text = text_of(page)
    assert "forwardExternal keda 0 metrics listed by the other adapter, of s*-*, composite-metric;" in text
    assert "cannot be listed now it <cannot> be reached forwardExternal datadog 2 metrics listed" in text
    assert "external metrics, 2 more of other adapters" in text
    assert "<cannot>" not in page


async def test_figures_of_cache_and_coalescing_are_shown(tmp_path: Path) -> None:
    prometheus = CannedPrometheus(found={**FOUND}, result=vector((POD, 2.0)))
    async with pages_env(tmp_path, RULES, prometheus) as env:
        for _ in range(4):
            await env.active.cache.instant("up", deadline=math.inf)
        for query, count in (("merged", 30), ("alone", 10)):
            env.metrics.telemetry.requests["rules[0]", query] += count
        env.metrics.telemetry.coalesced_queries["rules[0]", "success"] += 7
        env.metrics.telemetry.coalesced_queries["rules[0]", "failure"] += 2
        env.metrics.telemetry.query_errors["rules[0]",] += 3
        page = await env.get("/")
        text = text_of(page)
        rule = await env.text("/rules/rules[0]")
    assert "Hits 3 (75%) Misses 1 Refreshed ahead 0 Entries 1" in text
    assert "Coalesced requests 30 of 40 that could be (75%)" in text
    assert "Coalesced queries 9, 2 failed" in text
    row = text_of(element(page, "rules-0").partition("</tr>")[0])
    assert "75% of 40" in row
    assert "3 failed queries" in row
    assert "Coalesced 30 of 40 requests (75%), with 9 queries, 2 failed" in rule


async def test_events_begin_with_the_present_state_and_then_have_what_changed(tmp_path: Path) -> None:
    prometheus = CannedPrometheus(found={**FOUND})
    async with pages_env(tmp_path, RULES, prometheus) as env:
        events = await env.events("/events")
        rows, sections = await anext(events), await anext(events)
        assert rows.event == sections.event == "replace"
        assert rows.data.startswith('<tbody id="rules" ')
        assert all(f'id="{name}"' in sections.data for name in ("summary", "findings", "servers", "file", "cache"))

        prometheus.found[SELECTORS["second"]] = PrometheusUnavailable("no route")
        await env.active.catalog.relist()
        row, changed = await anext(events), await anext(events)
        assert 'id="rules-1"' in row.data
        assert "no route" in row.data
        assert 'id="rules-0"' not in row.data
        assert 'id="findings"' in changed.data
        assert 'id="file"' not in changed.data


async def test_page_is_loaded_again_after_a_reload_of_the_rules(tmp_path: Path) -> None:
    async with pages_env(tmp_path, RULES, CannedPrometheus(found={**FOUND})) as env:
        events = await env.events("/events")
        await anext(events)
        env.sources.rule_sets.current = replace(
            env.active, rules=parse_rules(RULES.replace("first", "other"), source="rules.yaml")
        )
        with pytest.raises(StatusError, match="loaded again") as error:  # for which the page is loaded again
            async for _ in events:
                pass
    assert error.value.code == 404


async def test_rules_are_checked_once_for_all_viewers_until_something_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks = []

    async def counted(*arguments: Any, **options: Any) -> Report:
        checks.append(arguments)
        return await check(*arguments, **options)

    monkeypatch.setattr(debug_pages, "check", counted)
    prometheus = CannedPrometheus(found={**FOUND})
    async with pages_env(tmp_path, RULES, prometheus) as env:
        for _ in range(3):
            await env.get("/")
        assert len(checks) == 1
        prometheus.found[SELECTORS["second"]] = (series("errors", "namespace", "pod", "more"),)
        await env.active.catalog.relist()
        await env.get("/")
        assert len(checks) == 2


class Unreachable:
    """An API server that does not respond."""

    async def resource_for(self, resource: str, group: str = "") -> ResourceInfo:
        raise KubeUnreachable("no route")


async def test_page_is_shown_while_the_api_server_is_unreachable(tmp_path: Path) -> None:
    async with pages_env(tmp_path, RULES, CannedPrometheus(found={**FOUND})) as env:
        env.sources.rule_sets.current = replace(env.active, debug=replace(env.active.debug, lookup=Unreachable()))
        text = await env.text("/")
    assert "The rules cannot be checked now: the API server, which knows the resources, does not respond" in text
    assert "rules[0]" in text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "just now"),
        (9.9, "just now"),
        (59, "50 s ago"),
        (60, "1 min ago"),
        (3599, "59 min ago"),
        (86399, "23 h ago"),
        (200000, "2 d ago"),
    ],
)
def test_ages_are_rounded_down(seconds: float, text: str) -> None:
    assert age_text(seconds) == text
    assert age_text(rounded_age(seconds)) == text


async def test_long_check_goes_on_while_pages_are_shown_without_its_findings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks, may_end = [], asyncio.Event()

    async def held(*arguments: Any, **options: Any) -> Report:
        checks.append(arguments)
        await may_end.wait()
        return await check(*arguments, **options)

    monkeypatch.setattr(debug_pages, "check", held)
    prometheus = CannedPrometheus(found={**FOUND, SELECTORS["second"]: ()})
    async with pages_env(tmp_path, RULES, prometheus) as env:
        env.pages = AdapterPages(env.sources, None, tick_seconds=0.0, findings_seconds=0.01)
        assert "The rules are being checked." in await env.text("/")
        may_end.set()
        events = await env.events("/events")
        async for event in events:
            if "1 warning" in text_of(event.data):
                break
        assert len(checks) == 1

        may_end.clear()  # while the changed series are checked, the findings before the change are shown
        await env.active.catalog.relist()
        prometheus.found[SELECTORS["second"]] = (series("errors", "namespace", "pod"),)
        await env.active.catalog.relist()
        assert "1 warning" in await env.text("/")
        may_end.set()
