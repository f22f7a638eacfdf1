"""`milliscale explain` from the wheel alone, with read-only rights, beside Kubernetes' own controller."""

import asyncio
from pathlib import Path
from typing import Any

from playground.cluster import start_cluster
from tests.docs.blocks import ROOT
from tests.e2e.controllers import controller_manager, needs_controller_manager, started
from tests.e2e.scripted_metrics import METRIC, Load, scripted_metrics
from tests.eventually import eventually
from tools.packages import build_wheel, copy_sources
from tools.release_check import install
from tools.wheels import fetch_wheels

pytestmark = needs_controller_manager

DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
HPAS = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
LABELS = {"app": "web"}
# The rights that docs/explain.md names, without those of metrics that this HPA does not have.
RULES = [
    {
        "apiGroups": ["autoscaling"],
        "resources": ["horizontalpodautoscalers"],
        "verbs": ["get", "list"],
    },
    {"apiGroups": ["*"], "resources": ["*/scale"], "verbs": ["get"]},
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]},
    {"apiGroups": ["external.metrics.k8s.io"], "resources": ["*"], "verbs": ["get", "list"]},
]


def manifest(api: str, kind: str, name: str, **fields: Any) -> dict[str, Any]:
    return {"apiVersion": api, "kind": kind, "metadata": {"name": name}, **fields}


def installed(folder: Path) -> Path:
    """Return the command of an environment with the wheel and its locked libraries only."""
    wheel = build_wheel(copy_sources(folder / "sources"), folder, time=1_700_000_000)
    python = install(wheel, folder / "environment", wheels=fetch_wheels(ROOT / ".playground" / "wheels"))
    return python.with_name("milliscale")


async def test_reader_sees_why_kubernetes_has_scaled(tmp_path: Path) -> None:
    command = await asyncio.to_thread(installed, tmp_path)
    async with (
        start_cluster(tmp_path / "cluster", ready_seconds=0.05) as cluster,
        await cluster.client() as client,
        scripted_metrics(client, tmp_path) as metrics,
        started("kube-controller-manager", controller_manager(cluster, tmp_path), tmp_path),
    ):
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "reader"}
        subjects = [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "reader"}]
        api = "rbac.authorization.k8s.io/v1"
        await client.post(f"{RBAC}/clusterroles", manifest(api, "ClusterRole", "reader", rules=RULES))
        binding = manifest(api, "ClusterRoleBinding", "reader", roleRef=role, subjects=subjects)
        await client.post(f"{RBAC}/clusterrolebindings", binding)
        template = {"metadata": {"labels": LABELS}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
        spec: dict[str, Any] = {"replicas": 1, "selector": {"matchLabels": LABELS}, "template": template}
        await client.post(DEPLOYMENTS, manifest("apps/v1", "Deployment", "web", spec=spec))
        metrics.loads["web"] = Load(30_000)
        metric = {"name": METRIC, "selector": {"matchLabels": LABELS}}
        target = {"type": "AverageValue", "averageValue": "10"}
        spec = {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "maxReplicas": 10,
            "metrics": [{"type": "External", "external": {"metric": metric, "target": target}}],
        }
        await client.post(HPAS, manifest("autoscaling/v2", "HorizontalPodAutoscaler", "web", spec=spec))

        async def scaled() -> bool:
            hpa = await client.get(f"{HPAS}/web")
            return bool(hpa.get("status", {}).get("currentReplicas") == 3)

        await eventually(scaled, within=60)
        process = await asyncio.create_subprocess_exec(
            *(command, "explain", "default/web", f"--kubeconfig={cluster.user_kubeconfig('reader', [])}"),
            env={},
            cwd="/",
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        output, errors = await process.communicate()
    assert process.returncode == 0, errors
    _, sentence, *_ = output.decode().splitlines()
    assert sentence == (
        "stays at 3: load{app=web} is 30, 10 per replica, against a target of 10 per replica "
        "(ratio 1, within tolerance 0.1)"
    )
    assert "nothing: only computed" in output.decode()
