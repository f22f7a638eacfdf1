"""The box in which to try a rule: what it shows, and what a rule cannot do."""

from __future__ import annotations

import asyncio
import logging
import math
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlencode

import pytest

from adapter.diagnosis.checker import RuleChecker
from adapter.metrics.objects import ListedObjects
from adapter.prometheus import (
    DEFAULT_DESTINATION,
    Destination,
    PrometheusError,
    PrometheusQueryError,
    Series,
    Vector,
)
from adapter.ui.trial import MAX_CHARACTERS, Trials
from tests.adapter.diagnosis_env import ALL_FOUND, POD, RULES, SELECTORS
from tests.adapter.metrics_env import CannedPrometheus, series, vector
from tests.adapter.ui.env import PagesEnv, element, pages_env, text_of

FOUND: dict[str, tuple[Series, ...] | PrometheusError] = {SELECTORS[name]: found for name, found in ALL_FOUND.items()}
LONG = """
seriesQuery: 'packets_total{pod!=""}'
resources: {template: <<.Resource>>}
name: {as: packets}
metricsQuery: sum(rate(<<.Series>>{<<.LabelMatchers>>}[5m])) by (<<.GroupBy>>)
"""
SHORT = "{name: lag, query: sum(lag) by (namespace, pod), resources: {namespace: namespace, pod: pod}}"
SELECTOR = 'packets_total{pod!=""}'


class SlowPrometheus(CannedPrometheus):
    """Holds every query until it is cancelled; `waiting` is set once there is one."""

    def __init__(self) -> None:
        super().__init__(found={SELECTOR: (series("packets_total", "namespace", "pod"),)})
        self.waiting = asyncio.Event()
        self.cancelled = asyncio.Event()

    async def instant(
        self, query: str, *, deadline: float = math.inf, destination: Destination = DEFAULT_DESTINATION
    ) -> Vector:
        self.waiting.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.cancelled.set()
        raise AssertionError


def canned() -> CannedPrometheus:
    found = {**FOUND, SELECTOR: (series("packets_total", "namespace", "pod"),)}
    return CannedPrometheus(found=found, result=vector((POD, 2.5)))


async def tried(env: PagesEnv, rule: str, section: str = "rules") -> str:
    """Return the page for a rule."""
    return await env.get("/try?" + urlencode({"rule": rule, "section": section}))


async def refusal(env: PagesEnv, rule: str) -> str:
    """Return why a rule cannot be tried."""
    page = await tried(env, rule)
    assert 'aria-invalid="true"' in element(page, "rule").partition(">")[0]
    assert 'id="result"' not in page
    return text_of(element(page, "rule-error").partition(">")[2].partition("</p>")[0])


@pytest.mark.parametrize("site", ["cross-site", "same-site", "none", "same-origin"])
async def test_link_from_elsewhere_runs_no_query(tmp_path: Path, site: str) -> None:
    prometheus = canned()
    async with pages_env(tmp_path, RULES, prometheus) as env:
        before = len(prometheus.queries), len(prometheus.listed)
        page = await env.get("/try?" + urlencode({"rule": LONG}), site=site)
        ran = (len(prometheus.queries), len(prometheus.listed)) != before
    assert ran == ('id="result"' in page) == (site == "same-origin")
    assert ran or "not checked yet" in element(page, "rule-error")
    assert "packets_total" in element(page, "rule")


async def test_result_has_series_metrics_promql_and_values(tmp_path: Path) -> None:
    async with pages_env(tmp_path, RULES, canned()) as env:
        result = text_of(element(await tried(env, LONG), "result"))
    assert "0 errors, 0 warnings. The rule makes 2 metrics of one series." in result
    query = 'sum(rate(packets_total{namespace="shop",pod="web-0"}[5m])) by (pod)'
    assert f"pods/packets of shop/web-0 2.5 shop/web-0 {query}" in result
    assert "packets_total namespace → namespaces pod → pods namespaces/packets pods/packets" in result


async def test_short_rule_and_external_rule_can_be_tried(tmp_path: Path) -> None:
    async with pages_env(tmp_path, RULES, canned()) as env:
        assert "The rule makes the metric pods/lag." in text_of(await tried(env, SHORT))
        page = await tried(env, "{name: total, query: sum(total)}", "externalRules")
        assert "The rule makes the metric total." in text_of(page)
        assert "<option selected>externalRules</option>" in page
        page = await tried(env, "externalRules: [{name: total, query: sum(total)}]")
        assert "The rule makes the metric total." in text_of(page)


async def test_findings_of_check_are_shown_without_the_key_of_an_active_rule(tmp_path: Path) -> None:
    rule = "{seriesQuery: up, resources: {overrides: {pod: {resource: pod}}}, metricsQuery: sum(<<.Series>>)}"
    async with pages_env(tmp_path, RULES, canned()) as env:
        result = text_of(element(await tried(env, rule), "result"))
    assert "error rule.metricsQuery : the result is aggregated without any label" in result
    assert "rules[0]" not in result.partition("Examples")[0]
    assert "[no-object-label]" in result
    assert "[no-label-matchers]" in result


async def test_overlaps_with_active_rules_are_findings(tmp_path: Path) -> None:
    prometheus = canned()
    prometheus.found[SELECTOR] = (series("errors", "namespace", "pod"),)
    rule = LONG.replace("name: {as: packets}\n", "")
    async with pages_env(tmp_path, RULES, prometheus) as env:
        page = await tried(env, rule)
    assert "namespaces/errors and 1 more: also made by rules[1] of the active file" in text_of(page)


async def test_series_of_the_rule_that_hide_each_other_are_named(tmp_path: Path) -> None:
    prometheus = canned()
    prometheus.found[SELECTOR] = (series("a_total", "namespace", "pod"), series("b_total", "namespace", "pod"))
    async with pages_env(tmp_path, RULES, prometheus) as env:
        page = text_of(await tried(env, LONG))
    assert "pods/packets hidden by rule of b_total" in page
    assert "also made by rule of b_total, which wins [overlap]" in page


async def test_active_rules_and_the_log_are_not_affected(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    prometheus = canned()
    prometheus.found[SELECTOR] = PrometheusQueryError("bad selector")
    async with pages_env(tmp_path, RULES, prometheus) as env:
        before, metrics = env.active.catalog.snapshot, list(env.metrics.registry.collect())
        caplog.clear()
        with caplog.at_level(logging.DEBUG, "adapter"):
            assert "its series cannot be listed: bad selector" in text_of(await tried(env, LONG))
            await tried(env, SHORT.replace("pod: pod", "thing: things"))
            await tried(env, LONG.replace("template: <<.Resource>>", "overrides: {a-b: {resource: pod}}"))
            prometheus.result = PrometheusQueryError("bad query")
            assert "bad query" in text_of(await tried(env, SHORT))
        assert env.active.catalog.snapshot is before
        assert [family.samples for family in env.metrics.registry.collect()] == [family.samples for family in metrics]
    assert [record.message for record in caplog.records if record.levelno > logging.DEBUG] == []


REFUSED = [
    ("a: [b", "line 2, column 1: while parsing a flow sequence"),
    ("seriesQuery: up\nmetricQuery: x", "unknown key `metricQuery`; did you mean `metricsQuery`?"),
    ("[]", "expected one rule, but found 0"),
    ("externalRules: [{name: a, query: b}, {name: a, query: b}]", "expected one rule, but found 2"),
    (f"[{','.join([SHORT] * 50)}]", "expected one rule, but found 50"),
    ("#", "expected one rule, but found 0 documents"),
    (
        "prometheusServers: {evil: {url: 'http://169.254.169.254', tokenFile: /etc/passwd}}\nrules: []",
        "only rules and externalRules can be here, not prometheusServers",
    ),
    ("rules: []\nforwardExternal: {url: 'https://evil'}", "only rules and externalRules can be here"),
    (LONG + "prometheus: evil", "prometheus: there is no server 'evil' in prometheusServers; there are default"),
    (
        "\n".join(["a0: &a0 x", *(f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 9))]),
        "more than 50000 values, aliases expanded",
    ),
    ("x" * (MAX_CHARACTERS + 1), f"it is longer than {MAX_CHARACTERS} characters"),
    ("!!python/object/apply:os.system [id]", "the tag tag:yaml.org,2002:python/object/apply:os.system is not"),
]


async def test_text_that_is_not_one_valid_rule_is_refused_with_the_reason(tmp_path: Path) -> None:
    prometheus = canned()
    async with pages_env(tmp_path, RULES, prometheus) as env:
        listed = len(prometheus.listed)
        for rule, why in REFUSED:
            assert why in await refusal(env, rule)
        assert len(prometheus.listed) == listed


HOSTILE = [
    "<<$x := .Series>>" + '<<$x = printf "%s%s" $x $x>>' * 60 + "<<$x>>",
    "<<range $.GroupBySlice>>" * 60 + "x" + "<<end>>" * 60,
    "(" * 1000 + "up" + ")" * 1000,
    "up" + "+up" * 1200,
    "-" * 3000 + "up",
]


async def test_hostile_queries_have_a_result(tmp_path: Path) -> None:
    async with pages_env(tmp_path, RULES, canned()) as env:
        for query in HOSTILE:
            rule = {"seriesQuery": SELECTOR, "resources": "{template: <<.Resource>>}", "metricsQuery": f"'{query}'"}
            page = await tried(env, "\n".join(f"{key}: {value}" for key, value in rule.items()))
            assert 'id="result"' in page


async def test_series_beyond_the_limit_are_left_out(tmp_path: Path) -> None:
    prometheus = canned()
    prometheus.found[SELECTOR] = tuple(series(f"packets_{number}", "namespace", "pod") for number in range(1500))
    async with pages_env(tmp_path, RULES, prometheus) as env:
        page = await tried(env, LONG.replace("name: {as: packets}\n", ""))
    assert "The rule makes 2000 metrics of the first 1000 of 1500 series." in text_of(page)
    assert page.count("<tr") < 100


async def test_trial_ends_at_its_time_limit(tmp_path: Path) -> None:
    prometheus = SlowPrometheus()
    async with pages_env(tmp_path, RULES, prometheus) as env:
        checker = RuleChecker(
            prometheus, env.metrics.mapper, ListedObjects(env.metrics.client), max_age=60, seconds=0.1
        )
        why = await Trials(replace(env.sources, rule_checker=checker)).check(LONG, "rules")
        assert "no result within 0.1 s: a query is too expensive" in str(why)
        assert prometheus.cancelled.is_set() is prometheus.waiting.is_set()


async def test_one_rule_is_tried_at_a_time_and_the_next_one_after_it_was_cancelled(tmp_path: Path) -> None:
    prometheus = SlowPrometheus()
    async with pages_env(tmp_path, RULES, prometheus) as env:
        trials = Trials(env.sources, wait_seconds=0.01)
        first = asyncio.create_task(trials.check(LONG, "rules"))
        await prometheus.waiting.wait()
        assert "another rule is being tried" in str(await trials.check(LONG, "rules"))
        first.cancel()  # as when its client disconnects
        await asyncio.wait([first])
        assert prometheus.cancelled.is_set()
        prometheus.waiting.clear()
        next_one = asyncio.create_task(trials.check(LONG, "rules"))
        await prometheus.waiting.wait()
        next_one.cancel()
        await asyncio.wait([next_one])


async def test_text_is_shown_again_escaped(tmp_path: Path) -> None:
    rule = "</textarea><script>alert(1)</script>: \n\n x"
    async with pages_env(tmp_path, RULES, canned()) as env:
        page = await tried(env, rule)
        assert "<script>alert" not in page
        shown = element(page, "rule").partition(">")[2].partition("</textarea>")[0]
        assert shown.startswith("\n&lt;/textarea&gt;&lt;script&gt;")
        page = await tried(env, "", section='"><script>')
        assert "<script>" not in page
        assert 'id="result"' not in page


async def test_values_of_prometheus_are_escaped(tmp_path: Path) -> None:
    prometheus = canned()
    prometheus.result = vector(({"namespace": "<img src=x>", "pod": "<script>"}, 1.0))
    async with pages_env(tmp_path, RULES, prometheus) as env:
        page = await tried(env, LONG)
    assert "<img" not in page
    assert "<script>" not in page
    assert "&lt;img src=x&gt;" in page


async def test_rule_may_use_a_server_of_the_active_file_that_no_rule_uses_yet(tmp_path: Path) -> None:
    rules = "prometheusServers: {mimir: {url: 'https://mimir'}}\n" + RULES
    prometheus = canned()
    async with pages_env(tmp_path, rules, prometheus) as env:
        assert "The rule makes 2 metrics" in text_of(await tried(env, LONG + "prometheus: mimir\nheaders: {X-Org: a}"))
    destination = prometheus.destinations[-1]
    assert destination.server is not None
    assert (destination.server.url, destination.headers) == ("https://mimir", (("X-Org", "a"),))
