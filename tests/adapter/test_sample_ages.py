"""`check` and `explain` say how old samples are, and which ranges are longer than the scrape interval needs."""

import math
from pathlib import Path

import pytest

from adapter.diagnosis.check import check
from adapter.prometheus import (
    DEFAULT_DESTINATION,
    Destination,
    PrometheusError,
    PrometheusUnavailable,
    Sample,
    Vector,
)
from adapter.rules import parse_rules
from kube.web.explanation import Example
from tests.adapter.diagnosis_env import POD, codes, explained, probe_of
from tests.adapter.metrics_env import NOW, CannedPrometheus, metrics_env, series

SHORT = """
externalRules:
- name: load
  query: QUERY
"""


class Prometheus(CannedPrometheus):
    """Has a sample of seven seconds ago, and one in each of `intervals`, by the number of their series."""

    intervals: dict[str, float]
    age = 7.0
    failure: PrometheusError | None = None

    async def instant(
        self, query: str, *, deadline: float = math.inf, destination: Destination = DEFAULT_DESTINATION
    ) -> Vector:
        if "timestamp" not in query:
            return Vector((Sample(POD, NOW, 9.0 if "irate" in query else 5.0),))
        if self.failure is not None:
            raise self.failure
        newest = Sample({"milliscale_newest": str(int((NOW - self.age) * 4))}, NOW, 3.0)
        found = [Sample({"milliscale_interval": one}, NOW, count) for one, count in self.intervals.items()]
        return Vector((newest, *found))


async def examined(
    folder: Path, query: str, intervals: dict[str, float], failure: PrometheusError | None = None
) -> tuple[Example, list[tuple[str, str, str]]]:
    """Return the example of `explain`, and the findings of `check`."""
    prometheus = Prometheus(found={"load": (series("load"),)})
    prometheus.intervals, prometheus.failure = intervals, failure
    rules = parse_rules(SHORT.replace("QUERY", query), source="rules.yaml")
    async with metrics_env(folder, rules, prometheus) as opened:
        await opened.catalog.relist()
        explanation = await explained(opened, "external/load", namespace="shop")
        report = await check(opened.catalog, opened.mapper, probe_of(opened), knows_cluster=True, examples=1)
    assert explanation.example is not None
    return explanation.example, codes(report)


async def asked(
    folder: Path, query: str, intervals: dict[str, float], failure: PrometheusError | None = None
) -> tuple[str, str, list[tuple[str, str, str]]]:
    """Return what `explain` says of samples and of ranges, and the findings of `check`."""
    example, findings = await examined(folder, query, intervals, failure)
    return example.samples, example.long_range, findings


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("sum(rate(hits_total[5m]))", "(9 over the last two scrapes)"),
        ("sum(rate (hits_total[5m])) / sum(tries)", "(9 over the last two scrapes)"),
        ("sum(irate(hits_total[5m]))", ""),
        ('max(load{path="rate()"})', ""),
    ],
)
async def test_rate_is_explained_with_its_value_over_the_last_two_scrapes(
    tmp_path: Path, query: str, text: str
) -> None:
    example, _ = await examined(tmp_path, query, {"15": 1})
    assert [each.latest_text for each in example.values] == [text]


async def test_range_of_a_rate_is_compared_with_the_scrape_interval(tmp_path: Path) -> None:
    samples, long_range, findings = await asked(tmp_path, "sum(rate(hits_total[5m]))", {"15": 9, "20": 1})
    assert samples == "the newest sample was 7 s old, one every 15 s"
    assert long_range == (
        "rate[5m] needs 4 minutes to show 80 % of a step; the scrape interval is 15 s: [1m] is enough"
    )
    assert findings == [("advice", "long-range", "externalRules[0].query")]


@pytest.mark.parametrize(
    ("query", "intervals", "expected"),
    [
        ("sum(increase(hits_total[2m]))", {"15": 1}, "increase[2m] needs 96 s to show 80 %"),
        ("sum(rate(hits_total[5m])) / sum(rate(tries_total[10m]))", {"30": 1}, "rate[5m] needs 4 minutes"),
        (
            "sum(rate(hits_total[5m]))",
            {"17.15": 1},
            "rate[5m] needs 4 minutes to show 80 % of a step; the scrape interval is 17.15 s: [69s] is enough",
        ),
        ("sum(rate(hits_total[45h]))", {"15": 1}, "rate[45h] needs 2160 minutes"),
        ("sum(rate(hits_total[1m]))", {"15": 1}, ""),
        ("sum(rate(hits_total[5m]))", {"60": 1}, ""),
        ("avg_over_time(load[1h])", {"15": 1}, ""),
        ("sum(rate(hits_total[5m]))", {"15": 1, "30": 1}, ""),
        ("sum(rate(hits_total[5m]))", {}, ""),
    ],
)
async def test_advice_is_only_for_rates_that_are_late_and_intervals_that_are_known(
    tmp_path: Path, query: str, intervals: dict[str, float], expected: str
) -> None:
    _, long_range, findings = await asked(tmp_path, query, intervals)
    assert long_range.startswith(expected)
    assert bool(long_range) == bool(expected) == any(code == "long-range" for _, code, _ in findings)


async def test_server_that_does_not_tell_the_times_of_samples_has_no_advice(tmp_path: Path) -> None:
    failure = PrometheusUnavailable("down")
    assert (await asked(tmp_path, "sum(rate(hits_total[5m]))", {"15": 1}, failure))[:2] == ("", "")
    assert (await asked(tmp_path, "max_over_time(load[5m:1m])", {"15": 1}))[:2] == ("", "")
