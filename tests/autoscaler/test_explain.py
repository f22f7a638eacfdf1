"""`python -m autoscaler explain` as a process: from a running autoscaler, and from a step with rights to read."""

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web
from click.testing import CliRunner

from autoscaler.cli import main
from tests.autoscaler.cluster import METRIC, Cluster, running_cluster
from tests.autoscaler.process import ALONE, Autoscaler, autoscaler
from tests.eventually import eventually

SOON = 60.0
READER = "reader"
SCALED_UP = (
    "2 -> 4: packets_per_second is 20 against a target of 10 per pod (ratio 2, outside tolerance 0.1) on 2 ready pods, "
    "so it asks for 4"
)


@dataclass(frozen=True)
class Ended:
    """A command that has run."""

    status: int
    said: str
    complained: str


async def explain(*arguments: str) -> Ended:
    return await command("explain", *arguments)


async def command(*arguments: str) -> Ended:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "autoscaler", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    said, complained = await asyncio.wait_for(process.communicate(), SOON)
    assert process.returncode is not None
    assert b"Traceback" not in complained
    return Ended(process.returncode, said.decode(), complained.decode())


async def explain_here(*arguments: str) -> Ended:
    """The same without a process of its own, which is quicker."""
    result = await asyncio.to_thread(CliRunner().invoke, main, ["explain", *arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return Ended(result.exit_code, result.stdout, result.stderr)


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    """A Deployment of two whose pods are at twice their target."""
    async with running_cluster(tmp_path) as cluster:
        cluster.add_deployment("web", replicas=2)
        cluster.add_hpa("web")
        cluster.metrics.value = "20"
        yield cluster


# --- from a running autoscaler -------------------------------------------------------------------------------------


async def decisions(process: Autoscaler) -> list[dict[str, Any]]:
    """The records that a running autoscaler shows; none before there are any."""
    page = await process.get("/debug/decisions/default/web")
    return json.loads(page)["decisions"] if page.startswith("{") else []


@asynccontextmanager
async def that_has_scaled(cluster: Cluster, *arguments: str) -> AsyncIterator[Autoscaler]:
    """An autoscaler that has taken its first step, and takes no other soon."""
    period = "--horizontal-pod-autoscaler-sync-period=1h"
    async with autoscaler(cluster.kubeconfig, *ALONE, period, *arguments) as process:

        async def scaled() -> bool:
            return bool(await decisions(process))

        await eventually(scaled, within=SOON)
        yield process


async def test_what_a_running_autoscaler_has_decided(cluster: Cluster, tmp_path: Path) -> None:
    audit = tmp_path / "audit.jsonl"
    async with that_has_scaled(cluster, f"--audit-log={audit}") as process:
        page = json.loads(await process.get("/debug/decisions/default/web"))
        server = f"--server=http://127.0.0.1:{process.port}"
        plain, as_json, as_yaml = await asyncio.gather(
            explain("default/web", server),
            explain("default/web", server, "-o=json"),
            explain("default/web", server, "-o=yaml"),
        )
    (record,) = page["decisions"]
    assert record["sentence"] == SCALED_UP
    assert record["written"] == {"replicas": 4, "status": True}
    assert record["uid"] == cluster.hpa("web")["metadata"]["uid"]
    assert [json.loads(line) for line in audit.read_text().splitlines()] == [record]
    assert json.loads(as_json.said) == yaml.safe_load(as_yaml.said) == page
    lines = plain.said.splitlines()
    assert lines[0] == f"default/web (autoscaling/v2), Deployment/default/web, {record['time']}"
    assert lines[1] == SCALED_UP
    assert lines[3].split() == ["METRIC", "VALUE", "TARGET", "RATIO", "TOLERANCE", "PODS", "ASKS", "FOR"]
    assert lines[4].split() == [METRIC, "*", "20", "10", "per", "pod", "2", "outside", "2", "ready", "pods", "4"]
    assert "written           scale to 4, status (mode act)" in lines
    assert "\x1b" not in plain.said, "no colours in a pipe"
    assert (plain.status, plain.complained) == (0, "")


async def test_the_last_ones_have_a_line_each(cluster: Cluster) -> None:
    async with autoscaler(cluster.kubeconfig, *ALONE, "--horizontal-pod-autoscaler-sync-period=100ms") as process:

        async def has_many() -> bool:
            return len(await decisions(process)) >= 3

        await eventually(has_many, within=SOON)
        ended = await explain("default/web", f"--server=http://127.0.0.1:{process.port}", "--last=3")
    lines = ended.said.splitlines()
    assert lines[2] == ""
    assert lines[3].startswith("default/web (autoscaling/v2)")


@pytest.mark.parametrize("mode", ["dry-run", "shadow"])
async def test_decisions_that_are_not_acted_on(mode: str, cluster: Cluster) -> None:
    async with autoscaler(cluster.kubeconfig, *ALONE, f"--mode={mode}") as process:

        async def has_one() -> bool:
            return bool(await decisions(process))

        await eventually(has_one, within=SOON)
        record = (await decisions(process))[0]
    assert (record["mode"], record["desiredReplicas"], record["written"]) == (mode, 4, {})
    assert record["sentence"] == f"{SCALED_UP}; not written, in mode {mode}"
    assert cluster.replicas("web") == 2


async def test_nothing_is_kept_or_shown_where_that_is_switched_off(cluster: Cluster) -> None:
    async with autoscaler(cluster.kubeconfig, *ALONE, "--kept-decisions=0", "--debug-endpoints=off") as process:

        async def scaled() -> bool:
            return cluster.replicas("web") == 4

        await eventually(scaled, within=SOON)
        assert "404" in await process.get("/debug/decisions")


async def test_an_audit_file_that_cannot_be_written_is_one_clear_line_and_status_1(
    cluster: Cluster, tmp_path: Path
) -> None:
    path = tmp_path / "absent" / "audit.jsonl"
    ended = await command("run", f"--kubeconfig={cluster.kubeconfig}", "--metrics-port=0", f"--audit-log={path}")
    assert ended == Ended(1, "", f"Error: --audit-log={path}: cannot be written: No such file or directory\n")


# --- a single step -------------------------------------------------------------------------------------------------


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
    """The flag for somebody who may read in the namespace: Kubernetes' own role `view`, and metrics."""
    bind(cluster, "view")
    bind(cluster, "metrics-reader", METRICS_READER)
    return f"--kubeconfig={cluster.server.kubeconfig(READER, ())}"


async def test_a_step_is_computed_with_rights_to_read_only(cluster: Cluster, reader: str) -> None:
    before = cluster.hpa("web")
    ended = await explain("default/web", reader)
    assert ended.status == 0
    assert SCALED_UP in ended.said.splitlines()
    assert "written           nothing: only computed" in ended.said.splitlines()
    assert ended.complained.startswith("Note: computed without a memory of earlier steps: ")
    verbs = {verb for verb, _ in cluster.server.requests.by_user(READER)}
    assert verbs == {"get", "list"}
    assert cluster.replicas("web") == 2
    assert cluster.hpa("web") == before
    assert await cluster.events("web") == []


async def test_its_decision_is_the_running_autoscalers(cluster: Cluster, reader: str) -> None:
    computed = json.loads((await explain_here("default/web", reader, "-o=json")).said)["decisions"][0]
    async with that_has_scaled(cluster) as process:
        (taken,) = await decisions(process)
    apart = {"time", "mode", "written", "events"}
    assert {key: each for key, each in computed.items() if key not in apart} == {
        key: each for key, each in taken.items() if key not in apart
    }


async def test_flags_of_the_autoscaler_count(reader: str) -> None:
    ended = await explain_here("default/web", reader, "--horizontal-pod-autoscaler-tolerance=1.5")
    assert "stays at 2" in ended.said
    assert "within tolerance 1.5" in ended.said


async def test_rivals_are_found(cluster: Cluster, reader: str) -> None:
    cluster.add_hpa("rival", target="web")
    ended = await explain_here("default/web", reader)
    assert "controlled by multiple HPAs: [default/rival default/web]" in ended.said.splitlines()[1]


async def test_metrics_that_are_away_are_told(cluster: Cluster, reader: str) -> None:
    cluster.metrics.status = 503
    ended = await explain_here("default/web", reader)
    assert ended.said.splitlines()[1].startswith("stays at 2: packets_per_second has no value (unable to get metric")


async def test_a_memory_that_may_not_be_read_is_not_said_to_be_missing(cluster: Cluster, reader: str) -> None:
    ended = await explain_here("default/web", reader, "--state-configmap=kube-system/memory")
    assert ended.status == 0
    assert "(ConfigMap kube-system/memory cannot be read: " in ended.complained
    assert "none was found" not in ended.complained


async def test_it_remembers_what_was_saved(cluster: Cluster, reader: str) -> None:
    """An autoscaler has recommended 4, then the load goes down; the saved memory knows, a step without it does not."""
    state = "default/memory"
    flags = ("--leader-elect=false", f"--state-configmap={state}")
    async with autoscaler(cluster.server.kubeconfig(), *flags) as process:

        async def scaled() -> bool:
            return cluster.replicas("web") == 4 and cluster.condition("web", "ScalingActive") is not None

        await eventually(scaled, within=SOON)
        process.signal(signal.SIGTERM)
        assert await process.ended() == 0
    await cluster.roll_out("web")
    cluster.metrics.value = "5"
    without = await explain_here("default/web", reader)
    remembering = await explain_here("default/web", reader, f"--state-configmap={state}")
    assert "held at 4 by stabilisation: no earlier recommendation is known" in without.said
    assert "held at 4 by stabilisation: 4 was recommended at" in remembering.said
    assert remembering.complained == ""


# --- what can be wrong ---------------------------------------------------------------------------------------------


async def test_without_rights_it_says_which_are_missing(cluster: Cluster) -> None:
    kubeconfig = f"--kubeconfig={cluster.server.kubeconfig(READER, ())}"
    ended = await explain_here("default/web", kubeconfig)
    assert ended.status == 1
    assert ended.complained.startswith('Error: horizontalpodautoscalers.autoscaling "web" is forbidden: User "reader"')
    hpas = [{"apiGroups": ["autoscaling"], "resources": ["horizontalpodautoscalers"], "verbs": ["get"]}]
    bind(cluster, "hpa-reader", hpas)
    ended = await explain_here("default/web", kubeconfig)
    assert ended.complained.startswith("Error: the pods cannot be listed: pods is forbidden")
    bind(cluster, "pod-reader", [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}])
    ended = await explain_here("default/web", kubeconfig)
    assert ended.status == 0
    assert "it was not checked whether another HPA controls the same pods" in ended.complained
    assert ended.said.splitlines()[1].startswith('nothing is decided: deployments.apps "web" is forbidden')


async def test_an_hpa_that_is_not_there(reader: str) -> None:
    ended = await explain_here("default/absent", reader)
    assert (ended.status, ended.complained) == (1, "Error: there is no HorizontalPodAutoscaler default/absent\n")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["web"], "'web': write NAMESPACE/NAME, such as default/web"),
        (["a/b/c"], "'a/b/c': write NAMESPACE/NAME"),
        (["default/web", "--last=3"], "earlier decisions are known to a running autoscaler only; give --server"),
        (["default/web", "--server=localhost:8080"], "write the autoscaler's endpoint, such as http://127.0.0.1:8080"),
        (["default/web", "--server=http://[::1"], "write the autoscaler's endpoint"),
        (["default/web", "--state-configmap=memory"], "write NAMESPACE/NAME of the ConfigMap"),
    ],
)
async def test_wrong_arguments_are_one_clear_line_and_status_2(arguments: list[str], complaint: str) -> None:
    ended = await explain_here(*arguments)
    assert ended.status == 2
    assert complaint in ended.complained.splitlines()[-1]


@asynccontextmanager
async def somebody(answer: web.Response) -> AsyncIterator[str]:
    """A server that always answers the same; its --server flag."""

    async def handle(_: web.Request) -> web.Response:
        return web.Response(status=answer.status, body=answer.body, headers=answer.headers)

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
    ("answer", "complaint"),
    [
        (web.Response(text="<html>"), "is not the page of an autoscaler"),
        (web.Response(text='{"version": 1, "decisions": [{}]}'), "is not the page of an autoscaler"),
        (web.Response(text='{"version": 9, "decisions": []}'), "answers in version 9; this program reads version 1"),
        (web.Response(text='{"version": 1, "decisions": []}'), "has no decisions"),
        (web.Response(text="there are no decisions", status=404), "there are no decisions (404)"),
        (web.Response(status=302, headers={"Location": "http://elsewhere"}), "(302)"),
    ],
)
async def test_a_server_that_is_no_autoscaler(answer: web.Response, complaint: str) -> None:
    async with somebody(answer) as server:
        ended = await explain_here("default/web", server)
    assert ended.status == 1
    assert ended.complained.startswith("Error: http://127.0.0.1:")
    assert complaint in ended.complained


async def test_a_server_that_is_not_there() -> None:
    ended = await explain_here("default/web", "--server=http://127.0.0.1:1")
    assert ended.status == 1
    assert ended.complained.startswith(
        "Error: http://127.0.0.1:1/debug/decisions/default/web cannot be read: Connection refused; "
        "is its port forwarded? kubectl -n milliscale port-forward deployment/milliscale-autoscaler 8080"
    )
