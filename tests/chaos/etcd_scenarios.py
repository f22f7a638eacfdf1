"""A restore of etcd from a backup, which needs kube-apiserver and etcd: resourceVersions go back."""

from __future__ import annotations

import asyncio
import shutil

from playground.kube_apiserver import KubeApiServer
from playground.scenario import NAMESPACE
from tests.chaos.api_server_scenarios import need_other_replicas, wait_scaled
from tests.chaos.environment import HPA_NAMES, Environment
from tests.chaos.scenario import Run, Scenario

_MAX_REPLICAS = 8
"""The HPAs' maxReplicas."""
_HPAS = f"/apis/autoscaling/v2/namespaces/{NAMESPACE}/horizontalpodautoscalers"
_PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
_WRITES = 300


async def restored(run: Run) -> None:
    """Copy etcd's data, change the cluster, and continue with the copy."""
    environment, server = run.environment, run.environment.cluster.server
    assert isinstance(server, KubeApiServer)
    backup = environment.folder / "etcd-backup"
    await server.hang_up()
    await asyncio.to_thread(shutil.copytree, server.data, backup)
    await server.listen()
    await environment.wait_recovered()

    need_other_replicas(environment)
    await wait_scaled(environment)
    await _raise_version(environment)
    await server.hang_up()
    await asyncio.to_thread(shutil.rmtree, server.data)
    await asyncio.to_thread(backup.rename, server.data)
    # Other replicas than before, because the Deployments, too, have their earlier number again.
    environment.load.needs += [_MAX_REPLICAS, _MAX_REPLICAS + 1]
    await server.listen()
    # Only an autoscaler whose watches receive changes again scales to more than the old maximum.
    for name in HPA_NAMES:
        await environment.client.patch(f"{_HPAS}/{name}", {"spec": {"maxReplicas": _MAX_REPLICAS + 1}})


async def _raise_version(environment: Environment) -> None:
    """Change HPAs and a pod so often that the restored etcd does not reach their resourceVersions again."""
    pods = (await environment.client.get(_PODS))["items"]
    paths = [f"{_PODS}/{pods[0]['metadata']['name']}", *(f"{_HPAS}/{name}" for name in HPA_NAMES)]
    for number in range(_WRITES):
        for path in paths:
            await environment.client.patch(path, {"metadata": {"annotations": {"example.com/number": str(number)}}})


SCENARIOS: tuple[Scenario, ...] = (
    Scenario(
        name="etcd-restored",
        fault="etcd is restored from a backup, so resourceVersions go back",
        promise="HPAs are scaled, once for each decision, and their status is written",
        inject=restored,
    ),
)
