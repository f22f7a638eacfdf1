"""Each query of the dashboards, and each recording rule, finds something under the demo's load.

A second Prometheus scrapes both processes as the monitors say.
"""

import asyncio
import contextlib
import math
import re
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
import yaml

from kube.api.client import KubeClient
from kube.api.status import StatusError
from playground.bundle import Bundle, Timing, run_bundle
from playground.install import apply
from playground.prometheus import PrometheusServer
from playground.scenario import NAMESPACE, demo_load
from playground.tasks import background
from tests.eventually import eventually
from tests.manifests.test_alerts import groups_of, records_of
from tests.manifests.test_dashboards import PROCESSES, ROOT, Object, load, panels
from tests.objects import deployment, hpa
from tests.replay.builders import external_metric

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.xdist_group("dashboards"),
    pytest.mark.timeout(300),  # the first test starts everything
]

HPAS = f"/apis/autoscaling/v2/namespaces/{NAMESPACE}/horizontalpodautoscalers"
TIMING = Timing(sync_period=1, relist_interval=1, downscale_stabilization=3)

# A forecast needs days of history, and the demo has none. Tests of the alert and of the adapter have these metrics.
NEED_DAYS = {"Forecasts by state", "Forecasts that were right"}

# What Grafana does with a query before it sends it.


def substituted(text: str, values: Mapping[str, str]) -> str:
    """Replace `$name`; an unknown name is an error, where Grafana would send it as it is."""
    return re.sub(r"\$\{?(\w+)\}?", lambda name: values[name[1]], text)


def regex_of(choices: list[str]) -> str:
    """Return several chosen values as Grafana writes them into PromQL; see prometheusSpecialRegexEscape."""
    escaped = [re.sub(r"[$^*{}\[\]'+?.()|]", r"\\\\\g<0>", choice) for choice in choices]
    return escaped[0] if len(escaped) == 1 else f"({'|'.join(escaped)})"


@dataclass(frozen=True)
class Grafana:
    """The queries of the dashboards, sent to a Prometheus as Grafana sends them."""

    prometheus: aiohttp.ClientSession
    started: float

    async def choices(self, query: str, values: Mapping[str, str]) -> list[str]:
        """Return the values of a variable: `label_values(SERIES, LABEL)`."""
        wanted = re.fullmatch(r"label_values\((.*), (\w+)\)", query)
        assert wanted is not None
        path, match = f"/api/v1/label/{wanted[2]}/values", substituted(wanted[1], values)
        return sorted(await self.get(path, {"match[]": match, "start": str(self.started)}))

    async def variables(self, process: str, *, all_values: bool) -> dict[str, str]:
        """Return the variables: all values, or each value by itself."""
        # Grafana's rate interval is at least four scrape intervals.
        values = {"__rate_interval": "4s", "__range": f"{math.ceil(time.time() - self.started)}s"}
        for variable in load(process)["templating"]["list"]:
            if variable["type"] == "query":
                found = await self.choices(variable["query"], values)
                assert found, variable["name"]
                if not variable["multi"]:
                    (values[variable["name"]],) = found
                else:
                    values[variable["name"]] = variable["allValue"] if all_values else regex_of(found)
        return values

    async def results(self, target: Object, values: Mapping[str, str]) -> list[Object]:
        """Return the series of a query that have a number."""
        query = {"query": substituted(target["expr"], values)}
        if target.get("instant"):
            found = (await self.get("/api/v1/query", query))["result"]
            return [series for series in found if not math.isnan(float(series["value"][1]))]
        period = {"start": str(self.started), "end": str(time.time()), "step": "1"}
        found = (await self.get("/api/v1/query_range", {**query, **period}))["result"]
        return [series for series in found if any(not math.isnan(float(value)) for _, value in series["values"])]

    async def get(self, path: str, parameters: Mapping[str, str] = {}) -> Any:
        """Return the data of a response of Prometheus' API."""
        async with self.prometheus.get(path, params=parameters) as response:
            body = await response.json()
        assert body["status"] == "success", (parameters, body)
        return body["data"]


# Situations that the demo does not have: an HPA without its metric, one at its maximum, one in shadow mode.


def situation(name: str, metric: str, **annotations: str) -> list[Object]:
    """Return a Deployment and its HPA."""
    source = external_metric(metric, averageValue="1m")
    scaler = hpa(name, source, target=name, namespace=NAMESPACE, annotations=annotations, maxReplicas=2)
    return [deployment(name, namespace=NAMESPACE, replicas=1), scaler]


SITUATIONS = [
    *situation("no-metric", "unheard_of"),
    *situation("at-maximum", "queue_depth"),
    *situation("in-shadow", "queue_depth", **{"milliscale.io/mode": "shadow"}),
]


async def write_status_like_another_controller(client: KubeClient) -> None:
    """Write the status of the HPA in shadow mode, which kube-controller-manager would do."""
    current = await client.get(f"{HPAS}/in-shadow")
    status = {"currentReplicas": 1, "desiredReplicas": 2, "conditions": [condition("AbleToScale")]}
    body = {**current, "status": status}
    with contextlib.suppress(StatusError):
        await client.put(f"{HPAS}/in-shadow/status", body)


def condition(kind: str) -> Object:
    now = "2026-01-01T00:00:00Z"
    return {"type": kind, "status": "True", "reason": "Test", "message": "", "lastTransitionTime": now}


async def token_of_prometheus(client: KubeClient) -> str:
    """Create a service account with the right that docs/production.md names, and return a token of it."""
    text = (ROOT / "docs/production.md").read_text()
    role = next(
        parsed
        for block in re.findall(r"^```yaml\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
        if isinstance(parsed := yaml.safe_load(block), dict) and parsed.get("kind") == "ClusterRole"
    )
    subject = {"kind": "ServiceAccount", "name": "prometheus", "namespace": NAMESPACE}
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "prometheus"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role["metadata"]["name"]},
        "subjects": [subject],
    }
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "prometheus", "namespace": NAMESPACE}}
    await apply(client, [account, role, binding])
    path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/prometheus/token"
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
    return str((await client.post(path, request))["status"]["token"])


def scrape_configs(bundle: Bundle, token: str) -> list[Object]:
    """Return what the Prometheus operator makes of the monitors, but for the discovery of pods."""
    configs = []
    for process, url, job in (
        ("adapter", bundle.adapter_url, "milliscale-adapter"),
        ("autoscaler", bundle.autoscaler_url, "milliscale/milliscale-autoscaler"),
    ):
        monitor = yaml.safe_load((ROOT / f"manifests/components/{process}-monitoring/scrape.yaml").read_text())
        (endpoint,) = monitor["spec"].get("endpoints") or monitor["spec"]["podMetricsEndpoints"]
        scheme, _, address = url.partition("://")
        labels = {"namespace": "milliscale", "pod": f"milliscale-{process}-0", "container": process}
        config: Object = {
            "job_name": job,
            "scheme": endpoint.get("scheme", "http"),
            "metrics_path": endpoint["path"],
            "honor_labels": endpoint.get("honorLabels", False),
            "static_configs": [{"targets": [address], "labels": labels}],
        }
        assert config["scheme"] == scheme
        if "bearerTokenFile" in endpoint:
            config["authorization"] = {"credentials": token}
        if "tlsConfig" in endpoint:
            config["tls_config"] = {"insecure_skip_verify": endpoint["tlsConfig"]["insecureSkipVerify"]}
        configs.append(config)
    return configs


def rule_files(folder: Path) -> list[Path]:
    files = {folder / f"{process}.rules.yaml": groups_of(process) for process in PROCESSES}
    for path, groups in files.items():
        path.write_text(yaml.safe_dump({"groups": groups}))
    return list(files)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def grafana(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Grafana]:
    folder, started = tmp_path_factory.mktemp("dashboards"), time.time()
    async with run_bundle(folder, load=demo_load(period=20), timing=TIMING) as bundle:
        token = await token_of_prometheus(bundle.client)
        monitoring = PrometheusServer(
            folder / "monitoring",
            scrape_interval=1.0,
            scrape_configs=scrape_configs(bundle, token),
            rule_files=rule_files(folder),
        )
        async with monitoring, aiohttp.ClientSession(monitoring.url) as session:
            await apply(bundle.client, SITUATIONS)
            async with background(keep_writing(bundle.client)):
                yield Grafana(session, started)


async def keep_writing(client: KubeClient) -> None:
    while True:
        await write_status_like_another_controller(client)
        await asyncio.sleep(1)


@pytest.mark.parametrize("all_values", [True, False], ids=["all", "each"])
@pytest.mark.parametrize("process", PROCESSES)
async def test_every_query_finds_something(process: str, all_values: bool, grafana: Grafana) -> None:
    queries = [(panel["title"], target) for panel in panels(process) for target in panel["targets"]]
    empty = [(title, target) for title, target in queries if title not in NEED_DAYS]

    async def each_has_found_something() -> bool:
        values = await grafana.variables(process, all_values=all_values)
        empty[:] = [(title, target) for title, target in empty if not await grafana.results(target, values)]
        return not empty

    with contextlib.suppress(AssertionError):
        await eventually(each_has_found_something, every=1)
    assert [f"{title}: {target['expr']}" for title, target in empty] == []


def legend_of(target: Object, series: Object) -> str:
    return re.sub(r"{{(\w+)}}", lambda label: series["metric"].get(label[1], ""), target["legendFormat"]).strip()


@pytest.mark.parametrize("process", PROCESSES)
async def test_each_line_of_a_chart_has_its_own_name(process: str, grafana: Grafana) -> None:
    values = await grafana.variables(process, all_values=True)
    for panel in panels(process):
        if panel["type"] == "timeseries":
            lines = [
                legend_of(target, series)
                for target in panel["targets"]
                for series in await grafana.results(target, values)
            ]
            assert all(lines), panel["title"]
            assert len(set(lines)) == len(lines), (panel["title"], lines)


async def test_variables_offer_the_namespaces_and_names_of_hpas(grafana: Grafana) -> None:
    """The label `namespace` is that of the HPA, not that of the autoscaler's pod."""
    names = ["at-maximum", "in-shadow", "no-metric", "router", "shop", "worker"]

    async def offered() -> bool:
        values = await grafana.variables("autoscaler", all_values=False)
        assert values["job"] == "milliscale/milliscale-autoscaler"
        return (values["namespace"], values["hpa"]) == ("default", regex_of(names))

    await eventually(offered, every=1)


@pytest.mark.parametrize(
    ("title", "expected"), [("HPAs that fail", "1"), ("HPAs", "6"), ("Leases without a leader", "0")]
)
async def test_number_is_that_of_the_situation(title: str, expected: str, grafana: Grafana) -> None:
    (panel,) = (panel for panel in panels("autoscaler") if panel["title"] == title)

    async def shown() -> bool:
        values = await grafana.variables("autoscaler", all_values=True)
        return [each["value"][1] for each in await grafana.results(panel["targets"][0], values)] == [expected]

    await eventually(shown, every=1)


@pytest.mark.parametrize("process", PROCESSES)
async def test_every_recording_rule_has_a_result(process: str, grafana: Grafana) -> None:
    async def recorded() -> bool:
        return all([await grafana.results({"expr": name}, {}) for name in records_of(process)])

    await eventually(recorded, every=1)


async def test_every_rule_can_be_evaluated(grafana: Grafana) -> None:
    async def evaluated() -> bool:
        rules = [rule for group in (await grafana.get("/api/v1/rules"))["groups"] for rule in group["rules"]]
        assert {rule["name"] for rule in rules} == {
            rule.get("record") or rule["alert"]
            for process in PROCESSES
            for group in groups_of(process)
            for rule in group["rules"]
        }
        assert not [rule for rule in rules if rule["health"] == "err"]
        return all(rule["health"] == "ok" for rule in rules)

    await eventually(evaluated, every=1)


# These depend on how busy the machine is.
SLOW_MACHINE = {"EventLoopLag", "Late", "PrometheusSlow"}


async def test_only_the_alerts_of_the_situations_are_active(grafana: Grafana) -> None:
    expected = {"AutoscalerHPAFails", "AutoscalerHPAAtMaximum", "AutoscalerReconcileErrors"}
    ignored = {f"{process.capitalize()}{name}" for process in PROCESSES for name in SLOW_MACHINE}

    async def active() -> bool:
        alerts = (await grafana.get("/api/v1/alerts"))["alerts"]
        names = {alert["labels"]["alertname"].removeprefix("Milliscale") for alert in alerts}
        assert names - ignored == expected
        return True

    await eventually(active, every=1)
