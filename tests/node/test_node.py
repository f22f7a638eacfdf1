"""Scenarios on a real node, in this order: `make node` runs them, and each begins with what the one before has left."""

import asyncio
import os
import re
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from kubectl_milliscale.kubectl import Kubectl
from playground.apiserver.pki import client_tls
from tests.eventually import eventually
from tests.manifests.rendering import MANIFESTS
from tests.node.images import TAGS
from tests.node.load import Packets, requests
from tests.node.node import Node
from tests.node.release import (
    ADAPTER,
    AUTOSCALER,
    METRIC,
    NAMESPACE,
    READY_SECONDS,
    Endings,
    Helm,
    holder,
    pods,
    process_of,
    ready_seconds,
    stopwatch,
    unavailable_apis,
    until_rolled_out,
    values,
    values_served,
    write_overlay,
)

pytestmark = [pytest.mark.node, pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(400)]

Seen = Callable[[str, object], None]

OBJECTS = Path(__file__).parent / "objects"
BOTH = (ADAPTER, AUTOSCALER)
DELAY = 5.0
"""The manifests' --shutdown-delay-duration."""
SPARE = 3.0
"""Seconds after it within which a process has ended."""
FAILOVER_SECONDS = 20.0
"""Until the Lease of a leader that was killed has another holder: its duration of 15 s, and until the next try."""
ENOUGH = 700
"""Requests during each change; 2,100 in all."""
MADE_BY_KUBERNETES = re.compile(r"^event|^configmap/.*\.crt$|^serviceaccount/default$")
DEFINITIONS = {
    "customresourcedefinition.apiextensions.k8s.io/clustermetricrules.milliscale.io",
    "customresourcedefinition.apiextensions.k8s.io/metricrules.milliscale.io",
}
MADE_BY_PROCESSES = {
    f"lease.coordination.k8s.io/{ADAPTER}-rules",
    f"lease.coordination.k8s.io/{AUTOSCALER}",
    f"configmap/{AUTOSCALER}-state",
}
RULE = """
apiVersion: milliscale.io/v1
kind: MetricRule
metadata: {name: kept, namespace: default}
spec: {type: External, metric: routers, query: count(packets_total)}
"""


async def test_kustomize_installs_and_removes_all_but_definitions_and_rules(
    node: Node, tmp_path: Path, record_property: Seen
) -> None:
    overlay = write_overlay(tmp_path / "overlay")
    await node.kubectl("apply", "-k", MANIFESTS / "crds" / "metric-rules")
    try:
        with stopwatch() as taken:
            await node.kubectl("apply", "-k", overlay)
            await until_rolled_out(node, *BOTH)
        slowest = max(map(ready_seconds, await pods(node)))
        record_property("seen", f"Ready {slowest:.0f} s after the pods' creation, {taken[0]:.1f} s after apply")
        assert slowest <= READY_SECONDS
        await eventually(lambda: values_served(node))
        assert await unavailable_apis(node) == []
        await node.kubectl("apply", "-f", _write(tmp_path / "rule.yaml", RULE))
    finally:
        with stopwatch() as taken:
            await node.kubectl("delete", "-k", overlay, "--timeout=90s")
    record_property("seen", f"deleted in {taken[0]:.1f} s")
    assert await node.kubectl("get", "metricrule", "kept", "-o", "name") == "metricrule.milliscale.io/kept\n"
    assert await left(node) == DEFINITIONS
    await node.kubectl("delete", "-k", MANIFESTS / "crds" / "metric-rules", "--timeout=30s")


async def test_helm_release_is_ready_within_30_seconds(node: Node, helm: Helm, record_property: Seen) -> None:
    with stopwatch() as taken:
        await helm.install(values(autoscaler=False))
        await until_rolled_out(node, ADAPTER)
    slowest = max(map(ready_seconds, await pods(node)))
    record_property("seen", f"Ready {slowest:.0f} s after the pods' creation, {taken[0]:.1f} s after install")
    assert slowest <= READY_SECONDS
    await eventually(lambda: values_served(node))
    assert await unavailable_apis(node) == []


async def test_controller_manager_scales_on_packets(node: Node, load: Packets, record_property: Seen) -> None:
    await node.kubectl("apply", "-f", OBJECTS / "hpas.yaml")
    await until_scaled_up_and_down(node, load, record_property)


async def test_controller_manager_scales_on_cpu_and_kubectl_top_shows_it(node: Node, record_property: Seen) -> None:
    address = await node.service_address("default", "worker")
    with stopwatch() as taken:
        assert (await page(f"http://{address}/burn?cores=0.3"))[0] == 200
        await eventually(lambda: has_replicas(node, "worker", 2), within=120)
    record_property("seen", f"2 replicas after {taken[0]:.0f} s")
    record_property("seen", await eventually(lambda: top(node)))
    await node.kubectl("delete", "hpa,deployment,service", "worker")


async def test_autoscaler_scales_on_packets(node: Node, helm: Helm, load: Packets, record_property: Seen) -> None:
    await node.start_controller_manager("--controllers=*,-horizontal-pod-autoscaler-controller")
    await helm.upgrade(values(autoscaler=True))
    await until_rolled_out(node, *BOTH)
    assert max(map(ready_seconds, await pods(node, "autoscaler"))) <= READY_SECONDS
    await until_scaled_up_and_down(node, load, record_property)


async def test_prometheus_scrapes_both_processes_as_documented(node: Node) -> None:
    async def up(job: str) -> bool:
        async with (
            aiohttp.ClientSession() as session,
            session.get(
                f"http://{await node.service_address('monitoring', 'prometheus-k8s')}:9090/api/v1/query",
                params={"query": f'sum(up{{job="{job}"}})'},
            ) as response,
        ):
            result = (await response.json())["data"]["result"]
        return [entry["value"][1] for entry in result] == ["2"]

    for job in (ADAPTER, f"{NAMESPACE}/{AUTOSCALER}"):
        await eventually(partial(up, job))


async def test_plugin_shows_decisions_and_rules_through_forwarded_ports(node: Node) -> None:
    async def plugin(*arguments: str) -> str:
        return await node.run(sys.executable, "-m", "kubectl_milliscale", *arguments)

    status = await plugin("status", "-n", "default")
    assert re.search(r"^router +Deployment/router .* per pod \(packets_per_second\) .*[▁-█]", status, re.MULTILINE), (
        status
    )
    assert "packets_per_second" in await plugin("explain", "router", "-n", "default")
    assert "packets_per_second" in await plugin("check")


@pytest.mark.parametrize(
    ("service", "path", "shown"),
    [(f"{AUTOSCALER}-ui", "/hpas/default/router", "packets_per_second"), (f"{ADAPTER}-ui", "/", "packets_total")],
)
async def test_pages_are_served_to_users_through_port_forward_and_service(
    node: Node, viewer: str, service: str, path: str, shown: str
) -> None:
    kubectl = Kubectl(program=str(node.programs.assets / "kubectl"), kubeconfig=node.kubeconfig)
    with kubectl.port_forward(NAMESPACE, f"service/{service}", 443) as port:
        for base in (f"https://127.0.0.1:{port}", f"https://{await node.service_address(NAMESPACE, service)}"):
            assert (await page(base + path))[0] == 401
            status, text = await page(base + path, token=viewer)
            assert status == 200, text
            assert shown in text


@pytest.mark.parametrize("change", ["rollout", "upgrade", "rollback"])
async def test_no_request_fails_while_pods_are_replaced(
    node: Node, helm: Helm, endings: Endings, change: str, record_property: Seen
) -> None:
    async def enough() -> bool:
        return counts.sent >= ENOUGH

    before = {each["metadata"]["name"] for each in await pods(node)}
    endings.take()
    async with requests(node.server.url + METRIC, tls=node.admin_tls(), clients=4, rate=10) as counts:
        with stopwatch() as taken:
            if change == "rollout":
                deployments = (f"deployment/{each}" for each in BOTH)
                await node.kubectl("rollout", "restart", f"--namespace={NAMESPACE}", *deployments)
            elif change == "upgrade":
                await helm.upgrade(values(autoscaler=True, tag=TAGS[1]))
            else:
                await helm.rollback()
            await until_rolled_out(node, *BOTH)
        await eventually(enough)
    record_property("seen", f"{counts}; replaced in {taken[0]:.0f} s")
    found = endings.take()
    slowest = max(each.seconds for each in found)
    record_property("seen", f"containers ended within {slowest:.0f} s")
    assert {each.pod for each in found} == before
    assert [each for each in found if each.exit_code != 0] == []
    # The API's times are full seconds.
    assert slowest <= DELAY + SPARE + 1
    assert not counts.failed, str(counts)


@pytest.mark.parametrize(
    ("component", "lease", "delay"), [("adapter", f"{ADAPTER}-rules", DELAY), ("autoscaler", AUTOSCALER, 0.0)]
)
async def test_deleted_leader_hands_over_and_ends_in_time(
    node: Node, component: str, lease: str, delay: float, record_property: Seen
) -> None:
    pod = await leading_pod(node, component, lease)
    name = pod["metadata"]["name"]
    ended = asyncio.create_task(seconds_until_end(await process_of(node, pod)))
    with stopwatch() as taken:
        await node.kubectl("delete", "pod", name, f"--namespace={NAMESPACE}", "--wait=false")
        await eventually(lambda: another_leads(node, lease, name))
    record_property("seen", f"another pod leads after {taken[0]:.1f} s, the process ended after {await ended:.1f} s")
    assert await ended <= delay + SPARE
    await until_rolled_out(node, *BOTH)
    assert await another_leads(node, lease, name)


@pytest.mark.parametrize(("component", "lease"), [("adapter", f"{ADAPTER}-rules"), ("autoscaler", AUTOSCALER)])
async def test_lease_of_a_killed_leader_is_taken_over(
    node: Node, component: str, lease: str, record_property: Seen
) -> None:
    old = await holder(node, lease)
    process = await process_of(node, await leading_pod(node, component, lease))
    with stopwatch() as taken:
        os.kill(process, signal.SIGKILL)
        await eventually(lambda: another_leads(node, lease, old))
    record_property("seen", f"after {taken[0]:.1f} s")
    assert taken[0] <= FAILOVER_SECONDS
    await until_rolled_out(node, *BOTH)


async def test_namespace_is_deleted_and_pods_become_ready_while_prometheus_is_away(
    node: Node, record_property: Seen
) -> None:
    prometheus = ("--namespace=monitoring", "deployment/prometheus-k8s")
    await node.kubectl("scale", *prometheus, "--replicas=0")
    await node.kubectl("wait", "--namespace=monitoring", "--for=delete", "pod", "--all", "--timeout=60s")
    await node.kubectl("rollout", "restart", f"--namespace={NAMESPACE}", f"deployment/{ADAPTER}")
    await until_rolled_out(node, ADAPTER, AUTOSCALER)
    assert await unavailable_apis(node) == []
    await node.kubectl("create", "namespace", "short-lived")
    with stopwatch() as taken:
        await node.kubectl("delete", "namespace", "short-lived", "--timeout=60s")
    record_property("seen", f"deleted in {taken[0]:.1f} s")
    await node.kubectl("scale", *prometheus, "--replicas=1")
    with stopwatch() as served:
        await eventually(lambda: values_served(node), within=120)
    record_property("seen", f"values again {served[0]:.0f} s after Prometheus was back")


async def test_helm_uninstall_leaves_definitions_rules_leases_and_saved_history(
    node: Node, tmp_path: Path, helm: Helm
) -> None:
    await node.kubectl("apply", "-f", _write(tmp_path / "rule.yaml", RULE))
    await helm.uninstall()
    await eventually(lambda: no_pods(node))
    assert await node.kubectl("get", "metricrule", "kept", "-o", "name") == "metricrule.milliscale.io/kept\n"
    assert await left(node) == DEFINITIONS | MADE_BY_PROCESSES
    # As docs/helm.md says.
    await node.kubectl("delete", f"--namespace={NAMESPACE}", *MADE_BY_PROCESSES)
    assert await left(node) == DEFINITIONS


async def until_scaled_up_and_down(node: Node, load: Packets, record_property: Seen) -> None:
    """Have the router scaled from one replica to three and back; record the seconds."""
    for rate, replicas in ((250, 3), (50, 1)):
        with stopwatch() as taken:
            load.rate = rate
            await eventually(partial(has_replicas, node, "router", replicas), within=150)
        record_property("seen", f"{replicas} replicas {taken[0]:.0f} s after {rate} packets/s")


async def top(node: Node) -> str:
    """Return what `kubectl top` prints of the worker that burns 300m, and of the node. AssertionError: other values."""
    pods = await node.kubectl("top", "pods", "--namespace=default", "--selector=app=worker", "--no-headers")
    nodes = await node.kubectl("top", "nodes", "--no-headers")
    burnt = max(int(each) for each in re.findall(r"\s(\d+)m\s", pods))
    assert 100 <= burnt <= 600, pods
    assert int(nodes.split()[1].removesuffix("m")) >= burnt, nodes
    return f"top: worker {burnt}m, node {nodes.split()[1]}"


async def has_replicas(node: Node, name: str, replicas: int) -> bool:
    """Return True if a Deployment has so many pods, all Ready. AssertionError: it has not."""
    found = await node.client.get(f"/apis/apps/v1/namespaces/default/deployments/{name}")
    counts = {each: found["status"].get(each, 0) for each in ("replicas", "readyReplicas")}
    assert counts == {"replicas": replicas, "readyReplicas": replicas}
    return True


async def page(url: str, *, token: str | None = None) -> tuple[int, str]:
    """Return the status and the text of a page."""
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    async with aiohttp.ClientSession(headers=headers) as session, session.get(url, ssl=client_tls()) as response:
        return response.status, await response.text()


async def leading_pod(node: Node, component: str, lease: str) -> dict[str, Any]:
    """Return the pod that holds a Lease."""
    name = await holder(node, lease)
    (pod,) = (each for each in await pods(node, component) if name.startswith(each["metadata"]["name"]))
    return pod


async def another_leads(node: Node, lease: str, old: str) -> bool:
    """Return True if the holder's identity does not begin with `old`. AssertionError: it does."""
    assert not (await holder(node, lease)).startswith(old)
    return True


async def seconds_until_end(process: int) -> float:
    """Wait for the end of a process, which need not be a child of this one."""
    loop = asyncio.get_running_loop()
    started, ended = loop.time(), asyncio.Event()
    descriptor = os.pidfd_open(process)
    loop.add_reader(descriptor, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)
    return loop.time() - started


async def no_pods(node: Node) -> bool:
    return not await pods(node)


async def left(node: Node) -> set[str]:
    """Return KIND/NAME of milliscale's objects, and of all others in its namespace but what Kubernetes makes there."""

    async def get(*selection: str, namespaced: str = "") -> str:
        kinds = await node.kubectl("api-resources", "--verbs=list,delete", "--output=name", *namespaced.split())
        return await node.kubectl("get", ",".join(kinds.split()), "--output=name", *selection)

    labelled = await get("--all-namespaces", "--selector=app.kubernetes.io/name=milliscale")
    there = await get(f"--namespace={NAMESPACE}", namespaced="--namespaced=true")
    return {each for each in (labelled + there).split() if not MADE_BY_KUBERNETES.search(each)}


def _write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path
