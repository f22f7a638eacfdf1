"""`python -m autoscaler explain`: decisions of a running autoscaler, and one computed with rights to read."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from aiohttp import web
from click.testing import CliRunner

from autoscaler.cli import main
from autoscaler.loop.endpoint import DebugAccess
from autoscaler.loop.options import Availability, DecisionLogOptions, Options
from autoscaler.loop.saved_history import SavedHistoryLocation
from autoscaler.records.decision_log import DecisionsPage
from autoscaler.records.record import VERSION
from tests.autoscaler.cluster import METRIC, QUICK, Cluster, running_controller
from tests.autoscaler.test_decision_log import record
from tests.eventually import eventually, until
from tests.kube.scripted import raw, respond, scripted_server

SOON = 60.0
READER = "reader"
STEADY = Options(qps=0, bind_address="127.0.0.1", metrics_port=0, sync_period=3600.0)
ABSENT = "there is no HorizontalPodAutoscaler default/absent; kubectl get hpa -A lists those that are there"
SCALED_UP = (
    "2 -> 4: packets_per_second is 20 against a target of 10 per pod (ratio 2, outside tolerance 0.1) on 2 ready pods, "
    "so it proposes 4"
)


@dataclass(frozen=True)
class Result:
    """The result of a command."""

    status: int
    stdout: str
    stderr: str


async def explain(*arguments: str) -> Result:
    return await command("explain", *arguments)


async def command(*arguments: str) -> Result:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "autoscaler", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    stdout, stderr = await asyncio.wait_for(process.communicate(), SOON)
    assert process.returncode is not None
    assert b"Traceback" not in stderr
    return Result(process.returncode, stdout.decode(), stderr.decode())


async def explain_in_process(*arguments: str) -> Result:
    """Run the command in this process, which is faster."""
    result = await asyncio.to_thread(CliRunner().invoke, main, ["explain", *arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return Result(result.exit_code, result.stdout, result.stderr)


@pytest.fixture
async def cluster(cluster: Cluster) -> Cluster:
    """A Deployment of two pods at twice their target."""
    cluster.add_deployment("web", replicas=2)
    cluster.add_hpa("web")
    cluster.metrics.value = "20"
    return cluster


# --- from a running autoscaler -------------------------------------------------------------------------------------


@asynccontextmanager
async def scaled_autoscaler(cluster: Cluster) -> AsyncIterator[tuple[str, dict[str, Any]]]:
    """An autoscaler that has reconciled once, and does not again soon: its flag --server, and its page of decisions."""
    async with running_controller(cluster.kubeconfig, STEADY) as running:

        async def decided() -> dict[str, Any]:
            page = await running.get("/debug/decisions/default/web")
            return json.loads(page) if page.startswith("{") else {}

        yield f"--server={running.url}", await eventually(decided, every=0.01)


async def test_decision_of_a_running_autoscaler_is_shown_in_every_format(cluster: Cluster) -> None:
    async with scaled_autoscaler(cluster) as (server, page):
        plain = await explain_in_process("default/web", server)
        as_json = await explain_in_process("default/web", server, "-o=json")
        as_yaml = await explain_in_process("web", server, f"--kubeconfig={cluster.kubeconfig}", "-o=yaml")
    (record,) = page["decisions"]
    assert record["sentence"] == SCALED_UP
    assert record["written"] == {"replicas": 4, "status": True}
    assert record["uid"] == cluster.hpa("web")["metadata"]["uid"]
    assert json.loads(as_json.stdout) == yaml.safe_load(as_yaml.stdout) == page
    lines = plain.stdout.splitlines()
    assert lines[0] == f"default/web (autoscaling/v2), Deployment/default/web, {record['time']}"
    assert lines[1] == SCALED_UP
    assert lines[3].split() == ["METRIC", "VALUE", "TARGET", "RATIO", "TOLERANCE", "PODS", "AGE", "PROPOSED"]
    age = f"{record['metrics'][0]['ageSeconds']:.1f}s"
    assert lines[4].split() == [METRIC, "*", "20", "10", "per", "pod", "2", "outside", "2", "ready", "pods", age, "4"]
    assert "written           scale to 4, status (mode act)" in lines
    assert "\x1b" not in plain.stdout, "no colours in a pipe"
    assert (plain.status, plain.stderr) == (0, "")


async def test_earlier_decisions_have_a_line_each(cluster: Cluster) -> None:
    async with running_controller(cluster.kubeconfig, QUICK) as running:
        await running.reaches("schedule_lag_seconds_count", 4)
        result = await explain_in_process("default/web", f"--server={running.url}", "--last=3")
    lines = result.stdout.splitlines()
    assert lines[2] == ""
    assert lines[3].startswith("default/web (autoscaling/v2)")


async def test_debug_pages_and_kept_decisions_can_be_disabled(
    cluster: Cluster,
) -> None:
    nothing = DecisionLogOptions(max_per_hpa=0, debug_access=DebugAccess.OFF)
    async with running_controller(cluster.kubeconfig, replace(QUICK, decision_log=nothing)) as running:
        await until(lambda: cluster.replicas("web") == 4)
        assert "404" in await running.get("/debug/decisions")


# --- a computed decision -------------------------------------------------------------------------------------------


def bind(cluster: Cluster, role: str, rules: list[dict[str, Any]] | None = None) -> None:
    """Let the reader have a ClusterRole, new if it has rules, in the namespace `default`."""
    if rules is not None:
        cluster.server.create({"apiVersion": _RBAC, "kind": "ClusterRole", "metadata": {"name": role}, "rules": rules})
    cluster.server.create(
        {
            "apiVersion": _RBAC,
            "kind": "RoleBinding",
            "metadata": {"name": f"reader-{role}", "namespace": "default"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": READER}],
        }
    )


_RBAC = "rbac.authorization.k8s.io/v1"
METRICS_READER = [
    {"apiGroups": ["custom.metrics.k8s.io"], "resources": ["*"], "verbs": ["get", "list"]},
    {"apiGroups": ["milliscale.io"], "resources": ["horizontalpodautoscalers"], "verbs": ["get", "list"]},
]


@pytest.fixture
def reader(cluster: Cluster) -> str:
    """Return the flag for a user with the role `view` in the namespace, and metrics."""
    bind(cluster, "view")
    bind(cluster, "metrics-reader", METRICS_READER)
    return f"--kubeconfig={cluster.server.kubeconfig(READER, ())}"


async def test_decision_is_computed_with_rights_to_read_only(cluster: Cluster, reader: str) -> None:
    before = cluster.hpa("web")
    result = await explain("default/web", reader)
    assert result.status == 0
    assert SCALED_UP in result.stdout.splitlines()
    assert "written           nothing: only computed" in result.stdout.splitlines()
    assert result.stderr.startswith("Note: computed without history: ")
    verbs = {verb for verb, _ in cluster.server.requests.by_user(READER)}
    assert verbs == {"get", "list"}
    assert cluster.replicas("web") == 2
    assert cluster.hpa("web") == before
    assert await cluster.events("web") == []


async def test_computed_decision_is_that_of_the_running_autoscaler(cluster: Cluster, reader: str) -> None:
    computed = json.loads((await explain_in_process("default/web", reader, "-o=json")).stdout)["decisions"][0]
    async with scaled_autoscaler(cluster) as (_, page):
        (taken,) = page["decisions"]
    apart = {"time", "mode", "written", "events", "reaction"}
    for metric in (*computed["metrics"], *taken["metrics"]):
        assert metric.pop("ageSeconds") > 0
    assert {key: each for key, each in computed.items() if key not in apart} == {
        key: each for key, each in taken.items() if key not in apart
    }


async def test_controller_flags_apply_to_the_computed_decision(reader: str) -> None:
    result = await explain_in_process("default/web", reader, "--horizontal-pod-autoscaler-tolerance=1.5")
    assert "stays at 2" in result.stdout
    assert "within tolerance 1.5" in result.stdout


async def test_ambiguous_selectors_are_found(cluster: Cluster, reader: str) -> None:
    cluster.add_hpa("other", target="web")
    result = await explain_in_process("default/web", reader)
    assert "controlled by multiple HPAs: [default/other default/web]" in result.stdout.splitlines()[1]


async def test_metric_with_a_typo_is_followed_by_the_one_that_exists_and_its_rule(
    cluster: Cluster, reader: str
) -> None:
    hint = "the cluster has no metric packets_per_secnd; did you mean packets_per_second?"
    cluster.add_deployment("api", replicas=2)
    cluster.add_hpa("api", metric_name="packets_per_secnd")
    computed = await explain_in_process("default/api", reader)
    assert computed.stdout.splitlines()[2] == hint
    assert computed.stdout.count("there is no such metric") == 1
    adapter = "--adapter-ui-url=https://adapter.example/pages/"
    path = "metric?metric=pods%2Fpackets_per_secnd&namespace=default&labelSelector=app%3Dapi"
    link = f"rule, PromQL and graph of packets_per_secnd: https://adapter.example/pages/{path}"
    assert "rule, PromQL" not in computed.stdout
    assert (await explain_in_process("default/api", reader, adapter)).stdout.splitlines()[6] == link
    options = replace(QUICK, flags={"adapter-ui-url": adapter.partition("=")[2]})
    async with running_controller(cluster.server.kubeconfig(), options) as running:
        await until(lambda: cluster.condition("api", "ScalingActive") is not None)
        server = f"--server={running.url}"
        shown = (await explain_in_process("default/api", server, reader)).stdout.splitlines()
        assert (shown[2], shown[6]) == (hint, link), "its address is among the autoscaler's flags"
        assert hint not in (await explain_in_process("default/api", server)).stdout
        elsewhere = await explain_in_process("default/api", server, "--kubeconfig=/nowhere")
        assert (elsewhere.status, hint in elsewhere.stdout) == (0, False)


async def test_promql_of_a_metric_is_that_of_the_adapter_if_the_user_may_read_it(cluster: Cluster, reader: str) -> None:
    query = 'sum(rate(packets_total{pod=~"web-0|web-1"}[1m])) by (pod)'
    example = {"queries": [query], "values": [{"of": "default/web-0", "value": "20"}], "samples": "samples are 3 s old"}
    cluster.metrics.explanation = {"target": "pods/packets_per_second", "rule": "rules[0]", "example": example}
    metrics = cluster.hpa("web")["spec"]["metrics"]
    await cluster.patch_hpa("web", metrics=metrics * 2)
    refused = (await explain_in_process("default/web", reader)).stdout.splitlines()
    assert refused[6].startswith("PromQL is not shown: it needs milliscale's adapter, and a user with its ClusterRole")
    assert refused[7] == "", "one line for both metrics"
    await cluster.patch_hpa("web", metrics=metrics)
    assert cluster.metrics.explained == []
    admin = f"--kubeconfig={cluster.server.kubeconfig('admin', ('system:masters',))}"
    lines = (await explain_in_process("default/web", admin)).stdout.splitlines()
    expected = ["pods/packets_per_second is made by rules[0]", f"  query  {query}", "  samples are 3 s old", ""]
    assert lines[5:9] == expected
    path = f"/apis/custom.metrics.k8s.io/v1beta2/debug/metrics/pods/{METRIC}"
    await explain_in_process("default/web", admin, "-o", "json")  # it has no PromQL, and requests none
    assert cluster.metrics.explained == [f"{path}?namespace=default&labelSelector=app%3Dweb"]
    cluster.metrics.explanation = None
    beside_another_adapter = (await explain_in_process("default/web", admin)).stdout.splitlines()
    assert beside_another_adapter[5] == ""


async def test_forbidden_saved_history_is_not_reported_as_missing(cluster: Cluster, reader: str) -> None:
    result = await explain_in_process("default/web", reader, "--state-configmap=kube-system/memory")
    assert result.status == 0
    assert "(ConfigMap kube-system/memory cannot be read: " in result.stderr
    assert "there is none in" not in result.stderr


async def test_saved_history_is_used(cluster: Cluster, reader: str) -> None:
    """The autoscaler has recommended 4 and the load goes down: only the saved history has the recommendation."""
    location = SavedHistoryLocation(namespace="default", name="memory")
    options = replace(STEADY, availability=Availability(saved_history=location))
    async with running_controller(cluster.server.kubeconfig(), options):
        await until(lambda: cluster.replicas("web") == 4)
    await cluster.roll_out("web")
    cluster.metrics.value = "5"
    without_history = await explain_in_process("default/web", reader)
    with_history = await explain_in_process("default/web", reader, "--state-configmap=default/memory")
    assert "window of 300s: no earlier recommendation is known" in without_history.stdout
    assert "kept at 4 by the stabilization window of 300s: 4 was recommended at" in with_history.stdout
    assert with_history.stderr == ""


# --- errors ---------------------------------------------------------------------------------------------


async def test_missing_rights_are_named(cluster: Cluster) -> None:
    kubeconfig = f"--kubeconfig={cluster.server.kubeconfig(READER, ())}"
    result = await explain_in_process("default/web", kubeconfig)
    assert result.status == 1
    assert result.stderr.startswith('Error: horizontalpodautoscalers.autoscaling "web" is forbidden: User "reader"')
    hpas = [{"apiGroups": ["autoscaling"], "resources": ["horizontalpodautoscalers"], "verbs": ["get"]}]
    bind(cluster, "hpa-reader", hpas)
    result = await explain_in_process("default/web", kubeconfig)
    assert result.stderr.startswith("Error: the pods cannot be listed: pods is forbidden")
    bind(cluster, "pod-reader", [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}])
    result = await explain_in_process("default/web", kubeconfig)
    assert result.status == 0
    assert "not checked for other HPAs that select the same pods" in result.stderr
    assert result.stdout.splitlines()[1].startswith('no replica count: deployments.apps "web" is forbidden')


async def test_absent_hpa_is_an_error(reader: str) -> None:
    result = await explain_in_process("default/absent", reader)
    assert (result.status, result.stderr) == (1, f"Error: {ABSENT}\n")


async def test_name_alone_is_in_the_namespace_of_the_context(cluster: Cluster, tmp_path: Path) -> None:
    named = await explain_in_process("web", f"--kubeconfig={cluster.kubeconfig}")
    assert named.stdout.startswith("default/web (autoscaling/v2)")
    config = yaml.safe_load(cluster.kubeconfig.read_text())
    config["contexts"][0]["context"]["namespace"] = "shop"
    (tmp_path / "of-shop").write_text(yaml.safe_dump(config))
    other = await explain_in_process("web", f"--kubeconfig={tmp_path / 'of-shop'}")
    assert "there is no HorizontalPodAutoscaler shop/web" in other.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a/b/c"], "'a/b/c' must be NAMESPACE/NAME"),
        (["default/web", "--last=3"], "only a running autoscaler has earlier decisions; give --server"),
        (["default/web", "--server=localhost:8080"], "must be the autoscaler's URL, such as http://127.0.0.1:8080"),
        (["default/web", "--server=http://[::1"], "must be the autoscaler's URL"),
        (["default/web", "--state-configmap=memory"], "must be NAMESPACE/NAME"),
    ],
)
async def test_wrong_argument_is_one_line_and_status_2(arguments: list[str], message: str) -> None:
    result = await explain_in_process(*arguments)
    assert result.status == 2
    assert message in result.stderr.splitlines()[-1]


@asynccontextmanager
async def server_with(response: web.Response) -> AsyncIterator[str]:
    """A server with a single response; its --server flag."""

    async def handle(_: web.Request) -> web.Response:
        return web.Response(status=response.status, body=response.body, headers=response.headers)

    app = web.Application()
    app.router.add_get("/{path:.*}", handle)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"--server=http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@pytest.mark.parametrize(
    ("response", "message"),
    [
        (web.Response(text="<html>"), "is not a page of the autoscaler"),
        (web.Response(text='{"version": 1, "decisions": [{}]}'), "is not a page of the autoscaler"),
        (web.Response(text='{"version": 9, "decisions": []}'), "has version 9; this program reads version 1"),
        (web.Response(text='{"version": 1, "namespace": "", "name": "", "decisions": []}'), "has no decisions"),
        (web.Response(text="there are no decisions", status=404), "there are no decisions (404)"),
        (web.Response(status=302, headers={"Location": "http://elsewhere"}), "(302)"),
    ],
)
async def test_unexpected_response_is_an_error(response: web.Response, message: str) -> None:
    async with server_with(response) as server:
        result = await explain_in_process("default/web", server)
    assert result.status == 1
    assert result.stderr.startswith("Error: http://127.0.0.1:")
    assert message in result.stderr


async def test_decisions_are_shown_though_the_flags_cannot_be_read() -> None:
    page = DecisionsPage(version=VERSION, namespace="default", name="web", decisions=[record(3)])
    async with scripted_server() as server:
        server.handlers["/debug/decisions/default/web"] = raw(msgspec.json.encode(page))
        server.handlers["/debug/config"] = respond({}, status=503)
        result = await explain_in_process("default/web", f"--server={server.url}")
    assert (result.status, result.stderr) == (0, "")
    assert "default/web" in result.stdout


async def test_refused_connection_is_an_error_with_a_hint() -> None:
    result = await explain_in_process("default/web", "--server=http://127.0.0.1:1")
    assert result.status == 1
    assert result.stderr.startswith(
        "Error: http://127.0.0.1:1/debug/decisions/default/web cannot be read: Connection refused; "
        "to forward the port, run: kubectl -n milliscale port-forward deployment/milliscale-autoscaler 8080"
    )
