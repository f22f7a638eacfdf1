"""The plugin with the real kubectl, against the bundle: Prometheus, the adapter and the autoscaler."""

import asyncio
import json
import os
import pty
import re
import signal
import termios
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml

from playground.bundle import Bundle
from playground.install import Account, Manifests, apply, write_account_kubeconfig
from playground.scenario import NAMESPACE
from tests.e2e.bundle.kubectl_shim import Settings, install
from tests.e2e.tools import CommandResult, fetch, processes_with
from tests.eventually import eventually

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.xdist_group("bundle"),
]

ROOT = Path(__file__).resolve().parents[3]
HPAS = ("router", "shop", "worker")
BARS = "▁▂▃▄▅▆▇█"
CURSOR_HOME = "\x1b[H"


@dataclass(frozen=True)
class Environment:
    """The bundle, whose processes look to kubectl like pods; `viewer` is a user with the Roles of docs/kubectl.md."""

    bundle: Bundle
    commands: Path
    viewer: Path

    @property
    def variables(self) -> dict[str, str]:
        own = {
            "PATH": f"{self.commands}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "KUBECONFIG": str(self.viewer),
            "HOME": str(self.commands),  # kubectl's cache of discovery
            "XDG_CACHE_HOME": str(self.commands / "cache"),
        }
        # Tests may run with a terminal's size in the environment, which goes before that of the real terminal.
        inherited = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
        return {**inherited, **own}

    async def milliscale(self, *arguments: str, fails: bool = False) -> CommandResult:
        """Run `kubectl milliscale ...` as the viewer; afterwards none of its processes must be left."""
        process = await asyncio.create_subprocess_exec(
            self.bundle.kubectl,
            "milliscale",
            *arguments,
            env=self.variables,
            cwd=self.commands,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        async with asyncio.timeout(120):
            output, errors = await process.communicate()
        result = CommandResult(process.returncode or 0, output.decode(), errors.decode())
        assert (result.status != 0) is fails, result
        assert self.left_behind() == {}
        return result

    def left_behind(self) -> dict[int, str]:
        """Return the processes of kubectl that still run."""
        return processes_with(str(self.commands / "settings.json"))


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def environment(bundle: Bundle, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    folder = tmp_path_factory.mktemp("plugin")
    forwards = await create_objects(bundle)
    commands = install(folder / "commands", Settings(str(bundle.kubectl), forwards))
    viewer = folder / "viewer"
    await tenant(bundle, "viewer", documented_roles(), viewer)
    environment = Environment(bundle, commands, viewer)
    await eventually(lambda: has_decisions(environment), every=0.5)
    return environment


async def first_lease(bundle: Bundle) -> Any:
    leases = await bundle.client.get("/apis/coordination.k8s.io/v1/namespaces/milliscale/leases")
    return next(iter(leases["items"]), None)


async def create_objects(bundle: Bundle) -> dict[str, int]:
    """Create what the manifests would have made of the processes; return the ports that they forward to."""
    lease = await eventually(lambda: first_lease(bundle))
    leader = lease["spec"]["holderIdentity"].rpartition("_")[0]
    manifests = await Manifests.render(bundle.kubectl)
    objects: dict[tuple[str, str], Any] = {
        (one["kind"], one["metadata"]["name"].partition("-rules")[0]): one for one in manifests.objects
    }
    autoscaler = objects["Deployment", "milliscale-autoscaler"]["spec"]["template"]
    pods = {
        name: {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"namespace": "milliscale", "name": name, "labels": autoscaler["metadata"]["labels"]},
            "spec": {**autoscaler["spec"], "nodeName": "none"},
        }
        for name in ("milliscale-autoscaler-standby", leader)
    }
    adapter = objects["Deployment", "milliscale-adapter"]["spec"]["template"]
    pods["milliscale-adapter-1"] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "namespace": "milliscale",
            "name": "milliscale-adapter-1",
            "labels": {**adapter["metadata"]["labels"], "app.kubernetes.io/name": "renamed"},
        },
        "spec": {**adapter["spec"], "nodeName": "none"},
    }
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"namespace": "monitoring", "name": "prometheus-k8s"},
        "spec": {"selector": {"app": "prometheus"}, "ports": [{"port": 9090}]},
    }
    monitoring = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "monitoring"}}
    await apply(
        bundle.client,
        [
            monitoring,
            service,
            *pods.values(),
        ],
    )
    for name in pods:
        path = f"/api/v1/namespaces/milliscale/pods/{name}"
        await bundle.client.patch(f"{path}/status", {"status": {"phase": "Running"}})
    return {
        f"milliscale pod/{leader} metrics": port_of(bundle.autoscaler_url),
        "milliscale pod/milliscale-adapter-1 https": port_of(bundle.adapter_url),
        "monitoring service/prometheus-k8s 9090": port_of(bundle.prometheus.url),
    }


def port_of(url: str) -> int:
    found = re.search(r":(\d+)/?$", url)
    assert found, url
    return int(found[1])


async def has_decisions(environment: Environment) -> bool:
    _, text = await fetch(f"{environment.bundle.autoscaler_url}/debug/decisions")
    return len([one for one in json.loads(text)["hpas"] if one["decisions"] >= 5]) == len(HPAS)


async def decisions(environment: Environment, name: str) -> list[dict[str, Any]]:
    _, text = await fetch(f"{environment.bundle.autoscaler_url}/debug/decisions/{NAMESPACE}/{name}")
    found: list[dict[str, Any]] = json.loads(text)["decisions"]
    return found


async def test_status_has_the_decisions_of_the_autoscaler(environment: Environment) -> None:
    result = await environment.milliscale("status", "router", "-o=json")
    (status,) = result.json["hpas"]
    assert (status["namespace"], status["name"], status["target"]) == (NAMESPACE, "router", "Deployment/router")
    kept = [one["desiredReplicas"] for one in await decisions(environment, "router")]
    shown = status["decisions"]
    assert len(shown) >= 5
    assert any(kept[start : start + len(shown)] == shown for start in range(len(kept)))
    assert status["metrics"][0]["name"] == "packets_per_second"
    assert result.errors == ""


async def test_explain_without_a_pod_of_the_autoscaler_computes_the_decision(environment: Environment) -> None:
    admin = f"--kubeconfig={environment.bundle.kubeconfig}"
    result = await environment.milliscale("explain", "router", admin, "--autoscaler-namespace", "elsewhere")
    assert result.output.startswith("default/router (autoscaling/v2), Deployment/default/router")
    assert "nothing: only computed" in result.output
    assert "no pod of the autoscaler runs in namespace elsewhere" in result.errors


async def test_explain_prints_a_decision_of_the_leader(environment: Environment) -> None:
    result = await environment.milliscale("explain", "router", "-n", NAMESPACE)
    heading, sentence, *_ = result.output.splitlines()
    assert heading.startswith("default/router (autoscaling/v2), Deployment/default/router, ")
    assert sentence in [one["sentence"] for one in await decisions(environment, "router")]


async def tenant(bundle: Bundle, name: str, roles: list[dict[str, Any]], kubeconfig: Path) -> None:
    """Write the kubeconfig of a service account with these Roles."""
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"namespace": NAMESPACE, "name": name}}
    bindings = [
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": f"{role['kind']}Binding",
            "metadata": {**role["metadata"], "name": name},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": role["kind"],
                "name": role["metadata"]["name"],
            },
            "subjects": [{"kind": "ServiceAccount", "namespace": NAMESPACE, "name": name}],
        }
        for role in roles
    ]
    await apply(bundle.client, [account, *roles, *bindings])
    await write_account_kubeconfig(bundle.client, kubeconfig, admin=bundle.kubeconfig, account=Account(NAMESPACE, name))


def documented_roles() -> list[dict[str, Any]]:
    (text,) = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "kubectl.md").read_text(), flags=re.DOTALL)
    return list(yaml.safe_load_all(text))


async def test_user_who_may_only_read_hpas_sees_their_status(environment: Environment, tmp_path: Path) -> None:
    role = documented_roles()[0]
    role["metadata"]["name"] = "reader"
    await tenant(environment.bundle, "reader", [role], tmp_path / "kubeconfig")
    status = await environment.milliscale("status", f"--kubeconfig={tmp_path / 'kubeconfig'}", "-n", NAMESPACE)
    assert len(status.output.splitlines()) == 1 + len(HPAS)
    assert "Note: no decisions: Error from server (Forbidden): pods is forbidden" in status.errors
    role["metadata"]["name"] = "pod-reader"
    pods = {**documented_roles()[1], "metadata": {"namespace": "milliscale", "name": "pod-reader"}}
    pods["rules"] = [rule for rule in pods["rules"] if rule["resources"] == ["pods"]]
    await tenant(environment.bundle, "pod-reader", [role, pods], tmp_path / "pod-reader")
    unforwarded = await environment.milliscale(
        "explain", "router", f"--kubeconfig={tmp_path / 'pod-reader'}", fails=True
    )
    assert "pods/portforward" in unforwarded.errors


async def test_check_uses_the_rules_and_the_prometheus_of_the_adapter(environment: Environment) -> None:
    result = await environment.milliscale("check")
    for metric in ("pods/packets_per_second", "services/requests_per_second", "queue_depth"):
        assert metric in result.output
    assert "0 errors, 0 warnings" in result.output


async def test_replay_of_prometheus_with_the_rules_of_the_adapter(environment: Environment, tmp_path: Path) -> None:
    hpa = await environment.bundle.client.get(
        f"/apis/autoscaling/v2/namespaces/{NAMESPACE}/horizontalpodautoscalers/router"
    )
    changed = tmp_path / "changed.yaml"
    changed.write_text(yaml.safe_dump({**hpa, "spec": {**hpa["spec"], "minReplicas": 6, "maxReplicas": 6}}))
    model = ("--initial-replicas", "6", "--pod-startup", "1s", "--capacity", "packets_per_second=100")
    arguments = ("-f", str(changed), "--from", "1m", *model)
    result = await environment.milliscale("replay", "router", *arguments)
    rows = {line[:15].strip(): line.split() for line in result.output.splitlines()}
    assert rows["replicas: min"][-1] == rows["replicas: max"][-1] == "6", result.output
    assert "one ready pod can serve 100 of packets_per_second" in result.output
    assert result.errors == ""


async def test_replay_of_kept_decisions_with_the_flags_of_the_autoscaler(environment: Environment) -> None:
    async def scaled_down() -> bool:
        # With the default of five minutes for stabilization it would not have been scaled down.
        counts = [one["desiredReplicas"] for one in await decisions(environment, "router")]
        return any(later < earlier for earlier, later in pairwise(counts))

    await eventually(scaled_down)
    result = await environment.milliscale("replay", "router")
    assert re.search(r"all \d+ decisions are the same as the autoscaler's", result.output), result.output
    assert result.errors == ""


def read_screen(screen: int) -> bytes:
    """Return what a program has written to its terminal and what was not read yet."""
    os.set_blocking(screen, False)
    try:
        return os.read(screen, 65536)
    except OSError:  # nothing, or the program has ended
        return b""


async def exit_status(process: asyncio.subprocess.Process, screen: int) -> int:
    """Wait for the end of a program, whose output must be read, or it would wait for that."""

    async def ended() -> bool:
        read_screen(screen)
        return process.returncode is not None

    await eventually(ended)
    assert process.returncode is not None
    return process.returncode


async def test_live_table_follows_the_hpas_and_the_size_of_the_terminal_until_ctrl_c(environment: Environment) -> None:
    screen, terminal = pty.openpty()
    termios.tcsetwinsize(screen, (24, 300))
    process = await asyncio.create_subprocess_exec(
        environment.bundle.kubectl,
        *("milliscale", "status", "--watch", "--output=wide"),
        env={**environment.variables, "TERM": "xterm"},
        cwd=environment.commands,
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        start_new_session=True,
    )
    os.close(terminal)
    written = bytearray()

    def frames() -> list[list[str]]:
        """The lines of each table that another one has overwritten."""
        written.extend(read_screen(screen))
        whole = [each for each in written.decode(errors="replace").split(CURSOR_HOME)[:-1] if "Ctrl-C ends." in each]
        return [re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", each).splitlines() for each in whole]

    async def replicas_change() -> bool:
        rows = [line for lines in frames() for line in lines if line.startswith("router ")]
        return len({row for row in rows if set(row) & {*BARS}}) >= 2

    async def is_narrow() -> bool:
        return max(map(len, frames()[-1])) <= 100

    try:
        await eventually(replicas_change)
        termios.tcsetwinsize(screen, (24, 100))
        await eventually(is_narrow)
        assert {len(lines) for lines in frames()} == {24}
        os.killpg(process.pid, signal.SIGINT)
        assert await exit_status(process, screen) == 0
    finally:
        os.close(screen)
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert environment.left_behind() == {}


async def test_forwards_end_when_the_plugin_is_terminated(environment: Environment) -> None:
    screen, terminal = pty.openpty()
    process = await asyncio.create_subprocess_exec(
        environment.bundle.kubectl,
        "milliscale",
        "status",
        "--watch",
        env={**environment.variables, "TERM": "xterm"},
        cwd=environment.commands,
        stdout=terminal,
    )
    os.close(terminal)

    async def forwards() -> bool:
        return any("port-forward" in command for command in environment.left_behind().values())

    await eventually(forwards)
    process.terminate()
    assert await exit_status(process, screen) == 128 + signal.SIGTERM
    os.close(screen)
    assert environment.left_behind() == {}
