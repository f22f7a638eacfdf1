"""A cluster on loopback: an API server, a deployment controller, and a kubelet without containers.

If KUBEBUILDER_ASSETS names a directory with `kube-apiserver` and `etcd`, as for envtest, these serve the API; otherwise
playground.apiserver does. Certificates and kubeconfigs are made here in both cases.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kube.api.client import KubeClient
from playground.apiserver import PlaygroundApiServer
from playground.apiserver.pki import Pki
from playground.controllers import DeploymentController
from playground.kube_apiserver import KubeApiServer, find_assets
from playground.kubelet import Kubelet
from playground.tasks import background

_MASTERS: Final = "system:masters"
_NODE: Final = "playground"


@dataclass(frozen=True, slots=True)
class Cluster:
    """A running cluster."""

    url: str
    """The API server."""
    kubeconfig: Path
    """The kubeconfig of a cluster admin."""
    pki: Pki
    """The certificates and their CAs."""
    server: PlaygroundApiServer | KubeApiServer
    """The API server; `hang_up` and `listen` make an outage."""
    controllers: tuple[asyncio.Task[None], ...] = ()
    """The tasks of the deployment controller and the kubelet; they end only with an error."""

    @property
    def is_real(self) -> bool:
        """True if the API server is kube-apiserver."""
        return isinstance(self.server, KubeApiServer)

    def user_kubeconfig(self, user: str, groups: Sequence[str] = ()) -> Path:
        """Write a kubeconfig for a user, with a client certificate."""
        return self.pki.kubeconfig(self.url, user, groups)

    async def client(self, *, user_agent: str = "playground") -> KubeClient:
        """Return a new client of the cluster admin; close it."""
        return await KubeClient.connect(self.kubeconfig, user_agent=user_agent)


@asynccontextmanager
async def start_cluster(
    folder: Path,
    *,
    assets: Path | None = None,
    ready_seconds: float = 1.0,
    audit_log: Path | None = None,
    feature_gates: str = "",
) -> AsyncIterator[Cluster]:
    """Run a cluster that keeps its files in `folder`.

    Args:
        folder: created if missing.
        assets: the directory with kube-apiserver and etcd; by default that of KUBEBUILDER_ASSETS, if set.
        ready_seconds: time until a new pod is Ready.
        audit_log: file for the requests of service accounts (see KubeApiServer); written by kube-apiserver only.
        feature_gates: of kube-apiserver.

    Raises:
        ClusterError: the programs are missing or do not start.
    """
    assets = assets or find_assets(os.environ)
    async with AsyncExitStack() as stack:
        server: PlaygroundApiServer | KubeApiServer
        if assets is None:
            server = await stack.enter_async_context(PlaygroundApiServer(folder))
            pki = server.pki
        else:
            pki = await asyncio.to_thread(Pki.create, folder)
            server = await stack.enter_async_context(
                KubeApiServer(folder, assets=assets, pki=pki, audit_log=audit_log, feature_gates=feature_gates)
            )
        admin = pki.kubeconfig(server.url, "admin", [_MASTERS])
        client = await stack.enter_async_context(await KubeClient.connect(admin, user_agent="playground-controllers"))
        works = (
            DeploymentController(client, node=_NODE).run(),
            Kubelet(client, node=_NODE, ready_seconds=ready_seconds).run(),
        )
        controllers = [await stack.enter_async_context(background(work)) for work in works]
        yield Cluster(server.url, admin, pki, server, controllers=tuple(controllers))
