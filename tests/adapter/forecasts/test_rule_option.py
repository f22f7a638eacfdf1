"""The option `forecast` of rules: how it is read, and which metrics it makes."""

from __future__ import annotations

from pathlib import Path

import pytest

from adapter.forecasts.options import ForecastOptions
from adapter.rules import RulesError, parse_rules
from tests.adapter.metrics_env import CannedPrometheus, metrics_env, series
from tests.imports import imported

SELECTOR = '{__name__=~"hits_.*",pod!=""}'
RULES = """
rules:
- seriesQuery: '{__name__=~"hits_.*",pod!=""}'
  resources: {template: <<.Resource>>}
  name: {matches: "^hits_(.*)$"}
  metricsQuery: sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)
  forecast: {horizon: 5m, as: "${1}_expected"}
externalRules:
- {name: orders, query: sum(orders), forecast: {horizon: 10m}}
- name: mails
  query: sum(mails)
  forecast: {horizon: 90s, history: 10d, timezone: Europe/Berlin, ceiling: 1.5, gate: off, as: mails_expected}
"""


async def test_metric_has_the_forecast_itself_or_there_is_a_further_one(tmp_path: Path) -> None:
    prometheus = CannedPrometheus(found={SELECTOR: (series("hits_web", "namespace", "pod"),)})
    async with metrics_env(tmp_path, parse_rules(RULES, source="rules.yaml"), prometheus) as env:
        await env.catalog.relist()
        sources = [source for part in env.catalog.snapshot.parts for source in part]
    assert {str(source): source.is_forecast for source in sources} == {
        "pods/web": False,
        "pods/web_expected": True,
        "namespaces/web": False,
        "namespaces/web_expected": True,
        "orders": True,
        "mails": False,
        "mails_expected": True,
    }


def test_options_have_defaults_and_limits() -> None:
    found = {
        str(rule): rule.forecast.options
        for rule in parse_rules(RULES, source="x").external
        if rule.forecast is not None
    }
    assert list(found.values()) == [
        ForecastOptions(horizon=600, history=14 * 86_400, timezone="UTC", ceiling=1.1, gate=0.03),
        ForecastOptions(horizon=90, history=864_000, timezone="Europe/Berlin", ceiling=1.5, gate=0),
    ]


@pytest.mark.parametrize(
    ("forecast", "message"),
    [
        ("5m", "forecast: expected a mapping, got text"),
        ("{}", "forecast: horizon: this key is required: how long a new pod needs to become ready, such as 5m"),
        ("{horizon: 5}", "forecast: horizon: not a duration: '5'"),
        ("{horizon: [5m]}", "forecast: horizon: expected text or a number"),
        ("{horizon: 5s}", "forecast: horizon: must be between 1m and 2h, got 5s"),
        ("{horizon: 5m, history: 1d}", "forecast: history: must be between 3d and 4w, got 1d"),
        ("{horizon: 5m, timezone: Mars/Base}", "forecast: timezone: there is no time zone 'Mars/Base'"),
        ("{horizon: 5m, ceiling: 0.5}", "forecast: ceiling: must be a number between 1 and 10, such as 1.1, got 0.5"),
        ("{horizon: 5m, gate: 3}", "forecast: gate: must be a percentage up to 50%, such as 3%, or off; got 3"),
        (
            "{horizon: 5m, history: 4d}",
            "forecast: history: the gate needs 3 days for a model and 2 to replay: at least 5d",
        ),
        ("{horizon: 5m, speed: 1}", "forecast: unknown key `speed`; there are horizon, history,"),
        ("{horizon: 5m, as: [x]}", "forecast: as: expected text"),
        ("{horizon: 5m, as: a/b}", "forecast.as: 'a/b' cannot stand in the path of a request"),
        ("{horizon: 5m, as: q}", "forecast.as: the metric has this name itself"),
    ],
)
def test_mistakes_name_the_key(forecast: str, message: str) -> None:
    with pytest.raises(RulesError) as error:
        parse_rules(f"externalRules: [{{name: q, query: sum(q), forecast: {forecast}}}]", source="rules.yaml")
    assert str(error.value).startswith(f"rules.yaml: externalRules[0].{message}")


def test_schedule_has_no_forecast() -> None:
    rule = "{name: q, schedule: {timezone: UTC, default: 1}, forecast: {horizon: 5m}}"
    with pytest.raises(RulesError, match="unknown key `forecast`"):
        parse_rules(f"externalRules: [{rule}]", source="rules.yaml")


def test_rules_without_forecasts_import_no_numpy() -> None:
    serving = "import adapter.commands.serve, adapter.ui.pages, adapter.commands.diagnose"
    assert imported(serving, "adapter.forecasts.registry", "numpy") == {"adapter.forecasts.registry"}
