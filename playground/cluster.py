"""A cluster on loopback: a Kubernetes API, a deployment controller, and a node on which pods seem to run.

If KUBEBUILDER_ASSETS names a directory with `kube-apiserver` and `etcd` (the convention of envtest), those serve the
API; otherwise the playground's own server does. Either way the certificates and kubeconfigs are made here, and the rest
of the playground cannot tell the difference.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kube.client import KubeClient
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
    """A running cluster.

    Attributes:
        url: where the API is.
        kubeconfig: of an administrator, who may do everything.
        pki: the certificates and their authorities.
        is_real: whether a kube-apiserver serves the API.
        controllers: the tasks that look after pods; they end only by failing, and whoever goes on for long looks.
    """

    url: str
    kubeconfig: Path
    pki: Pki
    is_real: bool
    controllers: tuple[asyncio.Task[None], ...] = ()

    def user_kubeconfig(self, user: str, groups: Sequence[str] = ()) -> Path:
        """A kubeconfig for a user, with a client certificate; what the user may do is up to the RBAC objects."""
        return self.pki.kubeconfig(self.url, user, groups)

    async def client(self, *, user_agent: str = "playground") -> KubeClient:
        """A new connection of the administrator's; the caller closes it."""
        return await KubeClient.connect(self.kubeconfig, user_agent=user_agent)


@asynccontextmanager
async def start_cluster(
    folder: Path, *, assets: Path | None = None, ready_seconds: float = 1.0
) -> AsyncIterator[Cluster]:
    """Start a cluster that keeps its files in `folder`; it ends with the context.

    Args:
        folder: made where it is missing.
        assets: the directory with kube-apiserver and etcd; by default the one that KUBEBUILDER_ASSETS names, if any.
        ready_seconds: after which a new pod is Ready.

    Raises:
        ClusterError: the programs are not there or do not start; the message says why.
    """
    assets = assets or find_assets(os.environ)
    async with AsyncExitStack() as stack:
        if assets is None:
            server = await stack.enter_async_context(PlaygroundApiServer(folder))
            url, pki = server.url, server.pki
        else:
            pki = await asyncio.to_thread(Pki.create, folder)
            real = await stack.enter_async_context(KubeApiServer(folder, assets=assets, pki=pki))
            url = real.url
        admin = pki.kubeconfig(url, "admin", [_MASTERS])
        client = await stack.enter_async_context(await KubeClient.connect(admin, user_agent="playground-controllers"))
        works = (
            DeploymentController(client, node=_NODE).run(),
            Kubelet(client, node=_NODE, ready_seconds=ready_seconds).run(),
        )
        controllers = [await stack.enter_async_context(background(work)) for work in works]
        yield Cluster(url, admin, pki, is_real=assets is not None, controllers=tuple(controllers))
