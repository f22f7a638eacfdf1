"""The load from a real Prometheus: the same as the adapter serves, and as a CSV file has; and errors of users."""

from __future__ import annotations

import asyncio
import contextlib
import csv
import json
import math
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from adapter.catalog.catalog import Catalog
from adapter.catalog.listings import Listings
from adapter.commands.builtin_resources import builtin_resources
from adapter.metrics.custom import CustomMetrics
from adapter.metrics.external import ExternalMetrics
from adapter.metrics.objects import ObjectMetadata
from adapter.metrics.resource_metrics import ResourceMetrics
from adapter.planning.rule_queries import RuleQueries
from adapter.prometheus import DEFAULT_DESTINATION, Destination, PrometheusOptions, PrometheusServers, Vector
from adapter.prometheus.results import decode
from adapter.rules import parse_rules
from adapter.telemetry import RuleTelemetry
from autoscaler.core.model import HPA
from kube.api.mapping import ResourceInfo
from kube.api.status import StatusError
from kube.values.selectors import LabelSelector
from playground.prometheus import PrometheusServer
from replay.csv_source import read_csv
from replay.load import Load, ReplayError, Startup
from replay.prometheus.client import ResultSeries
from replay.prometheus.rules import complete_rules
from replay.prometheus.source import read_prometheus
from replay.prometheus.workload import startup_of
from replay.simulation import Settings, simulate
from tests.adapter.metrics_env import custom_request, external_request
from tests.deadlines import after
from tests.replay.builders import make_hpa
from tests.replay.prometheus_environment import (
    GAP,
    NAMESPACE,
    PODS,
    RULES,
    SCRAPE,
    SECONDS,
    START,
    history,
    metric,
    pods_metric,
    rate,
    running_prometheus,
    settings,
    stub_server,
)

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("replay-prometheus")]

SERVICE_METRIC = metric(
    "object: {describedObject: {apiVersion: v1, kind: Service, name: web}, metric: {name: requests_per_pod},"
    " target: {type: Value, value: 10}}"
)
QUEUE_METRIC = metric(
    "external: {metric: {name: queue_depth, selector: {matchLabels: {queue: orders}}},"
    " target: {type: AverageValue, averageValue: 10}}"
)
ALL_QUEUES_METRIC = metric(
    "external: {metric: {name: all_queues, selector: {matchExpressions: [{key: queue, operator: NotIn,"
    " values: [mails]}]}}, target: {type: Value, value: 10}}"
)
EVERY_QUEUE_METRIC = metric(
    "external: {metric: {name: all_queues, selector: {matchExpressions: [{key: queue, operator: Exists}]}},"
    " target: {type: Value, value: 10}}"
)
ACTIVE_METRICS = [
    metric(f"external: {{metric: {{name: {name}, selector: {{}}}}, target: {{type: Value, value: 10}}}}")
    for name in ("active_queues", "recently_active_queues")
]
CPU_METRIC = metric("resource: {name: cpu, target: {type: Utilization, averageUtilization: 40}}")
APP_CPU_METRIC = metric("containerResource: {name: cpu, container: app, target: {type: AverageValue, averageValue: 1}}")
MEMORY_METRIC = metric("resource: {name: memory, target: {type: AverageValue, averageValue: 64Mi}}")
ALL_QUEUES = "external: {metric: {name: all_queues}, target: {type: Value, value: 10}}"
NOTHING = LabelSelector()
TIMES = [START + at for at in (15, 60, 600, 3585, 3615, 3660, 3900, 4200, 7185)]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrometheusServer]:
    with running_prometheus(tmp_path_factory.mktemp("prometheus")) as running:
        yield running


def read(server: PrometheusServer, tmp_path: Path, *metrics: dict[str, Any], **changes: Any) -> Load:
    changes.setdefault("rules", parse_rules(RULES, source="rules.yaml"))
    return read_prometheus([make_hpa(*metrics)], settings(server.url, tmp_path / "cache", **changes))


def values(load: Load) -> list[float]:
    [series] = load.series.values()
    return [series.at((START + at) * 1000) for at in range(0, SECONDS, SCRAPE)]


# --- what the adapter serves ---------------------------------------------------------------------------------------


class AtTime:
    """Evaluates the adapter's queries at a time of the past."""

    def __init__(self, url: str, http: aiohttp.ClientSession, seconds: int) -> None:
        self._url, self._http, self._seconds = url, http, seconds

    async def instant(
        self, query: str, *, deadline: float = math.inf, destination: Destination = DEFAULT_DESTINATION
    ) -> Vector:
        parameters = {"query": query, "time": str(self._seconds)}
        async with self._http.get(f"{self._url}/api/v1/query", params=parameters) as response:
            return decode(await response.read())


class Pods:
    """All pods of the target, as the HPA's selector finds them."""

    def cached_names(self, info: ResourceInfo, namespace: str, selector: LabelSelector) -> list[str] | None:
        return list(PODS)

    async def names(self, info: ResourceInfo, namespace: str, selector: LabelSelector) -> list[str]:
        return list(PODS)

    async def objects(
        self, info: ResourceInfo, *, namespace: str, selector: LabelSelector, name: str = ""
    ) -> list[ObjectMetadata]:
        return [ObjectMetadata(NAMESPACE, pod, {}) for pod in PODS]


async def served(server: PrometheusServer, source: Any, at: int) -> int | None:
    """Return the total that the adapter serves at a time, in milli-units; None if it serves none."""
    rules = complete_rules(
        parse_rules(RULES, source="rules.yaml"), [spec.source for spec in make_hpa(source).spec.metrics]
    )
    lookup = builtin_resources()
    async with PrometheusServers(PrometheusOptions(url=server.url)) as servers, aiohttp.ClientSession() as http:
        catalog = Catalog(rules, Listings(servers, lookup, max_age=SECONDS, clock=lambda: START + SECONDS), lookup)
        await catalog.relist()
        queries = RuleQueries(AtTime(server.url, http, at), telemetry=RuleTelemetry())
        custom = CustomMetrics(catalog, queries, Pods(), lookup)
        try:
            match source:
                case {"pods": {"metric": {"name": name}}}:
                    found = await custom.values(custom_request(metric=name, selector=LabelSelector.parse("app=web")))
                    return sum(value.milli for value in found)
                case {"object": {"metric": {"name": name}, "describedObject": described}}:
                    request = custom_request(metric=name, resource="services", name=described["name"])
                    return (await custom.values(request))[0].milli
                case {"external": {"metric": {"name": name, "selector": written}}}:
                    request_ = external_request(metric=name, selector=LabelSelector.from_object(written))
                    several = await ExternalMetrics(catalog, queries).values(request_)
                    return sum(one.milli for one in several) if several else None
                case {"resource": {"name": name}} | {"containerResource": {"name": name}}:
                    usages = await ResourceMetrics(rules.resource, queries, Pods()).usages(
                        "pods", namespace=NAMESPACE, selector=NOTHING, deadline=after(10)
                    )
                    container = source.get("containerResource", {}).get("container", "")
                    shares = [one for usage in usages for one in usage.containers if container in ("", one.container)]
                    milli = [one.cpu_milli if name == "cpu" else one.memory_milli for one in shares]
                    return sum(milli) if milli else None
        except StatusError as error:
            assert error.code == 404  # noqa: PT017
            return None
    raise AssertionError(source)


@pytest.mark.parametrize(
    "source",
    [
        pods_metric("packets_per_second"),
        pods_metric("latency", "250m"),
        SERVICE_METRIC,
        QUEUE_METRIC,
        ALL_QUEUES_METRIC,
        EVERY_QUEUE_METRIC,
        *ACTIVE_METRICS,
        CPU_METRIC,
        APP_CPU_METRIC,
        MEMORY_METRIC,
    ],
    ids=[
        "pods",
        "short rule with NaN",
        "object",
        "external",
        "external short rule",
        "several series",
        "activation",
        "activation with for",
        "cpu",
        "container",
        "memory",
    ],
)
def test_load_is_what_the_adapter_serves(server: PrometheusServer, tmp_path: Path, source: dict[str, Any]) -> None:
    [series] = read(server, tmp_path, source).series.values()
    replayed = [series.at(at * 1000) for at in TIMES]
    expected = [asyncio.run(served(server, source, at)) for at in TIMES]
    assert any(expected)
    assert [None if math.isnan(value) else int(value * 1000) for value in replayed] == expected


def test_metric_selector_is_part_of_the_query(server: PrometheusServer, tmp_path: Path) -> None:
    found = pods_metric("packets_per_second", selector=f", selector: {{matchLabels: {{pod: {PODS[0]}}}}}")
    assert values(read(server, tmp_path, found))[100] == pytest.approx(rate(PODS[0]), abs=0.002)


# --- the same as from a file ---------------------------------------------------------------------------------------


def test_load_equals_that_of_a_file_with_the_same_values(server: PrometheusServer, tmp_path: Path) -> None:
    [orders] = [one for one in history() if one.labels.get("queue") == "orders"]
    path = tmp_path / "load.csv"
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["timestamp", "queue_depth"])
        rows.writerows((at, value) for at, value in orders.points if at < GAP.start)
    of_hpa = make_hpa(QUEUE_METRIC)
    changes = {"end_ms": GAP.start * 1000}
    from_prometheus = read(server, tmp_path, QUEUE_METRIC, **changes)
    from_file = read_csv(path, [spec.source for spec in of_hpa.spec.metrics])

    def steps(load: Load) -> list[tuple[int, int, float]]:
        # A file has no replicas of the past.
        found = simulate(of_hpa, load, Settings(initial_replicas=2))
        return [(step.time_ms, step.desired_replicas, step.values[0]) for step in found]

    assert steps(from_prometheus) == steps(from_file)
    assert max(replicas for _, replicas, _ in steps(from_file)) == 6


def test_reality_and_requests_are_those_of_kube_state_metrics(server: PrometheusServer, tmp_path: Path) -> None:
    load = read(server, tmp_path, CPU_METRIC)
    assert load.requests == {"app/cpu": 1000, "proxy/cpu": 250, "cpu": 1250}
    assert load.replicas is not None
    assert load.ready_replicas is not None
    times = [(START + at) * 1000 for at in (0, 5385, 5400, 5460)]
    assert [load.replicas.at(at) for at in times] == [2, 2, 3, 3]
    assert [load.ready_replicas.at(at) for at in times] == [2, 2, 2, 3]


def test_given_requests_replace_those_of_prometheus(server: PrometheusServer, tmp_path: Path) -> None:
    load = read(server, tmp_path, CPU_METRIC, requests={"cpu": 2000})
    assert load.requests["cpu"] == 2000


def test_without_rules_series_have_the_names_of_metrics(server: PrometheusServer, tmp_path: Path) -> None:
    found = values(read(server, tmp_path, pods_metric("packets_ratio"), rules=None))
    # 100 and 40 of two pods, a ratio of the time, and 0.4 milli-units, which the adapter drops.
    assert [int(value * 1000) for value in found[:3]] == [140_000, 140_004, 140_008]


def test_queries_are_at_the_times_of_reconciliations(server: PrometheusServer, tmp_path: Path) -> None:
    changes = {"start_ms": START * 1000 + 5_123, "step_ms": 10_000, "offset_ms": 2_500, "end_ms": (START + 61) * 1000}
    load = read(server, tmp_path, QUEUE_METRIC, **changes)
    [series] = load.series.values()
    assert load.start_ms == START * 1000
    assert list(series.times_ms) == [START * 1000 + 2_500 + 10_000 * step for step in range(6)]
    assert list(series.values) == [0, 0, 0, 0, 0, 0]


def test_gap_is_no_value(server: PrometheusServer, tmp_path: Path) -> None:
    found = values(read(server, tmp_path, QUEUE_METRIC))
    missing = [START + SCRAPE * index for index, value in enumerate(found) if math.isnan(value)]
    # Prometheus itself looks back for five minutes; which end of them counts depends on its version.
    assert len(missing) in (20, 21)
    assert missing == list(range(missing[0], GAP.stop, SCRAPE))


@pytest.mark.parametrize(("kind", "target"), [("StatefulSet", "web"), ("Deployment", "web-api")])
def test_pods_are_those_of_the_target(server: PrometheusServer, tmp_path: Path, kind: str, target: str) -> None:
    of_hpa = make_hpa(pods_metric("packets_ratio"), kind=kind, target=target)
    load = read_prometheus([of_hpa], settings(server.url, tmp_path))
    assert int(values(load)[0]) == 1000  # one pod


def test_pods_of_any_kind_are_those_of_its_recorded_replica_sets(server: PrometheusServer, tmp_path: Path) -> None:
    of_hpa = make_hpa(pods_metric("packets_per_second"), kind="Rollout", target="canary")
    load = read_prometheus([of_hpa], settings(server.url, tmp_path, rules=parse_rules(RULES, source="rules.yaml")))
    assert load.series["packets_per_second"].at((START + 1800) * 1000) == pytest.approx(140.0, abs=0.003)
    assert load.series["packets_per_second"].at((START + 5400) * 1000) == pytest.approx(100.0, abs=0.002)


def test_time_until_ready_is_that_of_pods_that_were_created_within_a_day(
    server: PrometheusServer, tmp_path: Path
) -> None:
    of_hpa = make_hpa(pods_metric("packets_per_second"))
    load = read_prometheus([of_hpa], settings(server.url, tmp_path, rules=parse_rules(RULES, source="rules.yaml")))
    assert load.startup == Startup(42_000, "the median of 3 pods")


@pytest.mark.parametrize(
    "figures",
    [
        {"median": "12"},
        {"median": "abc", "count": "3"},
        {"median": "1e300", "count": "3"},
        {"median": "1", "count": "nan"},
    ],
)
def test_time_until_ready_that_no_server_would_measure_is_unknown(figures: dict[str, str]) -> None:
    assert (
        startup_of([ResultSeries(metric={"figure": name}, value=(1.0, text)) for name, text in figures.items()]) is None
    )


def test_pods_of_another_kind_need_a_pattern(server: PrometheusServer, tmp_path: Path) -> None:
    of_hpa = make_hpa(pods_metric("packets_ratio"), kind="Rollout", target="web")
    with pytest.raises(ReplayError, match=r"the names of the pods of a Rollout are not known; give .* with --pods"):
        read_prometheus([of_hpa], settings(server.url, tmp_path))
    load = read_prometheus([of_hpa], settings(server.url, tmp_path, pods="web-6f7c9d8b5-.*"))
    assert int(values(load)[0]) == 140


# --- errors of users -----------------------------------------------------------------------------------------------

ERRORS: Sequence[tuple[str, HPA, dict[str, Any], str]] = [
    (
        "no rule",
        make_hpa(pods_metric("packets_per_secon")),
        {},
        r"pods/packets_per_secon: no rule makes .* \(similar: pods/packets_per_second.*\); change the rules",
    ),
    (
        "no series",
        make_hpa(pods_metric("packet_total")),
        {"rules": None},
        r"Prometheus has no series packet_total with the labels namespace and pod .* \(similar: packets_total.*give",
    ),
    (
        "series of another time",
        make_hpa(pods_metric("packets_total")),
        {"rules": None, "start_ms": (START - 7200) * 1000, "end_ms": (START - 3600) * 1000},
        "has no sample with the labels namespace and pod between .*T22:00:00Z and .*; give another --from and --to,",
    ),
    (
        "rule of another time",
        make_hpa(pods_metric("packets_per_second")),
        {"start_ms": (START - 7200) * 1000, "end_ms": (START - 3600) * 1000},
        "a sample between .*T22:00:00Z and .*; give another --from and --to, or change the rules or the HPA",
    ),
    (
        "no values",
        make_hpa(metric("resource: {name: memory, target: {type: AverageValue, averageValue: 1}}")),
        {"pods": "worker-.*"},
        "memory has no value of pods that match worker-.* between .*; give --pods, another --from and --to, or check",
    ),
    (
        "no values of a metric that is not of pods",
        make_hpa(metric(ALL_QUEUES.replace("all_queues", "all_queues, selector: {matchLabels: {queue: x}}"))),
        {},
        "external/all_queues has no value between .*; give another --from and --to, or check the query: ",
    ),
    (
        "counter",
        make_hpa(pods_metric("packets_total")),
        {"rules": None},
        r"packets_total is a counter, which only grows: .* --config",
    ),
    (
        "empty range",
        make_hpa(pods_metric("packets_total")),
        {"start_ms": START * 1000, "end_ms": START * 1000},
        "the range is empty; give a --from that is before --to",
    ),
    (
        "future",
        make_hpa(pods_metric("packets_total")),
        {"end_ms": 4_000_000_000_000},
        "the range ends in the future, at 2096-10-02T07:06:40Z; give a --to",
    ),
    (
        "kind of the object",
        make_hpa(
            metric(
                "object: {describedObject: {apiVersion: example.com/v1, kind: Lag, name: web}, metric: {name: x},"
                " target: {type: Value, value: 10}}"
            )
        ),
        {},
        "shop/web: Lag is not a kind of Kubernetes itself; give --kubeconfig",
    ),
    (
        "resource",
        make_hpa(metric("resource: {name: ephemeral-storage, target: {type: AverageValue, averageValue: 1}}")),
        {},
        "only the usage of cpu and memory is known, not of ephemeral-storage; change the metric",
    ),
    (
        "wrong query",
        make_hpa(pods_metric("broken")),
        {
            "rules": parse_rules(
                "rules: [{name: broken, resources: {pod: pod, namespace: namespace}, query: 'sum(x'}]", source="r"
            )
        },
        r"Prometheus refuses the query sum\(x: .*parse error: unclosed left parenthesis; change it in --config",
    ),
]


@pytest.mark.parametrize(("of_hpa", "changes", "expected"), [each[1:] for each in ERRORS], ids=[e[0] for e in ERRORS])
def test_error_is_one_sentence(
    server: PrometheusServer, tmp_path: Path, of_hpa: HPA, changes: dict[str, Any], expected: str
) -> None:
    changes = {"rules": parse_rules(RULES, source="rules.yaml"), **changes}
    with pytest.raises(ReplayError, match=expected) as raised:
        read_prometheus([of_hpa], settings(server.url, tmp_path, **changes))
    assert "\n" not in str(raised.value)


def test_url_of_something_else(server: PrometheusServer, tmp_path: Path) -> None:
    expected = "/graph is no Prometheus: it has no /graph/api/v1/query .status 404.; check --prometheus-url"
    with pytest.raises(ReplayError, match=expected):
        read_prometheus([make_hpa(QUEUE_METRIC)], settings(f"{server.url}/graph", tmp_path))


def test_cache_that_cannot_be_written_is_noted_once(
    server: PrometheusServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    read_prometheus([make_hpa(QUEUE_METRIC)], settings(server.url, tmp_path / "file" / "cache"))
    assert capsys.readouterr().err == (
        f"note: responses are not cached, because {tmp_path}/file/cache cannot be written: Not a directory: give "
        "another --cache-dir\n"
    )


def test_rule_of_another_server(server: PrometheusServer, tmp_path: Path) -> None:
    received: list[str] = []
    tenants: list[str | None] = []
    start = {"resultType": "matrix", "result": [{"metric": {"queue": "x"}, "values": [[START, "7500"]]}]}

    def respond(path: str) -> tuple[int, str, bytes]:
        received.append(path.partition("?")[0])
        return 200, "application/json", json.dumps({"status": "success", "data": start}).encode()

    with stub_server(respond, headers=lambda headers: tenants.append(headers.get("X-Scope-OrgID"))) as url:
        rules = parse_rules(
            f"prometheusServers: {{other: {{url: '{url}', headers: {{X-Scope-OrgID: team}}}}}}\n"
            "externalRules: [{name: all_queues, query: sum(queue_depth) by (queue), prometheus: other}]",
            source="rules.yaml",
        )
        load = read(server, tmp_path, metric(ALL_QUEUES), rules=rules)
    assert values(load)[0] == 7.5
    assert (received[0], set(tenants)) == ("GET /api/v1/query_range", {"team"})
    assert load.replicas is not None  # of the server of --prometheus-url


@pytest.mark.parametrize(("kind", "error"), [("counter", "queue_depth is a counter, which only grows"), ("gauge", "")])
def test_counter_without_a_suffix_is_known_by_the_metadata_of_its_server(
    server: PrometheusServer, tmp_path: Path, kind: str, error: str
) -> None:
    rising = [[START + 15 * index, str(index)] for index in range(SECONDS // 15)]
    data: dict[str, object] = {
        "GET /api/v1/query_range": {"resultType": "matrix", "result": [{"metric": {}, "values": rising}]},
        "GET /api/v1/metadata": {"queue_depth": [{"type": kind, "help": "", "unit": ""}]},
    }

    def respond(path: str) -> tuple[int, str, bytes]:
        return 200, "application/json", json.dumps({"status": "success", "data": data[path.partition("?")[0]]}).encode()

    with stub_server(respond) as url:
        rules = parse_rules(
            f"prometheusServers: {{other: {{url: '{url}'}}}}\n"
            "externalRules: [{name: all_queues, query: queue_depth, prometheus: other}]",
            source="rules.yaml",
        )
        with pytest.raises(ReplayError, match=error) if error else contextlib.nullcontext():
            read(server, tmp_path, metric(ALL_QUEUES), rules=rules)


def test_only_series_of_sections_that_are_needed_are_listed() -> None:
    rules = parse_rules(RULES, source="rules.yaml")
    sources = [spec.source for spec in make_hpa(CPU_METRIC).spec.metrics]
    assert complete_rules(rules, sources).all_rules == ()
    sources = [spec.source for spec in make_hpa(QUEUE_METRIC).spec.metrics]
    assert complete_rules(rules, sources).all_rules == rules.external


def test_server_whose_clock_is_behind(server: PrometheusServer, tmp_path: Path) -> None:
    now = time.time() + 3600  # ours is an hour ahead
    with pytest.raises(ReplayError, match=r"the range ends (59m|1h0m).* after the time of Prometheus' clock; correct"):
        read(server, tmp_path, QUEUE_METRIC, end_ms=round(now * 1000), clock=lambda: now)
