"""Serve the web pages of a controller, with the authentication and authorization that their address needs.

On an address that is not a loopback one they have a Service, which selects the leader by a label on its pod: a standby
has nothing to show. Readiness cannot tell them apart: a Deployment would wait for the standby.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Final

from prometheus_client import CollectorRegistry

from autoscaler.loop.options import Options
from autoscaler.loop.sharding import Shard
from autoscaler.ui.access import NamespaceAccess
from autoscaler.ui.pages import UIPages
from autoscaler.ui.sources import Sources
from kube.api.client import KubeClient, KubeUnreachable
from kube.api.config import own_namespace
from kube.api.retries import Backoff
from kube.api.status import StatusError
from kube.serving.delegated import DelegatedAuth
from kube.web.event_stream import EventStreams
from kube.web.options import UIAddress
from kube.web.server import PageServer

_log = logging.getLogger(__name__)

LEADER_LABEL: Final = "milliscale.io/leader"
SHARD_LABEL: Final = "milliscale.io/shard"
_TIMEOUT_SECONDS: Final = 10.0
_RETRY_SECONDS: Final = (1.0, 60.0)


def own_pod_path(environment: Mapping[str, str] = os.environ) -> str | None:
    """Return the path of the pod that this process runs in; None outside of pods."""
    namespace, name = own_namespace(default=""), environment.get("HOSTNAME", "")
    if not namespace or not name:
        return None
    return f"/api/v1/namespaces/{namespace}/pods/{name}"


async def label_leader(
    client: KubeClient,
    pod_path: str,
    *,
    is_leader: Callable[[], bool],
    shard: Shard | None = None,
    poll_seconds: float = 1.0,
) -> None:
    """Keep the label of a pod up to date until cancelled. Errors are logged once, and the request is sent again.

    Args:
        client: the API server; needs the right to patch pods.
        pod_path: see own_pod_path.
        is_leader: whether this process is the leader now.
        shard: of which it is the leader; of several, the pod gets the shard's label, too.
        poll_seconds: how often that is checked.
    """
    labelled: bool | None = None  # a container that is restarted in its pod finds an old label
    backoff, logged = Backoff(*_RETRY_SECONDS), ""
    while True:
        leader = is_leader()
        if leader is labelled:
            await asyncio.sleep(poll_seconds)
            continue
        try:
            labels = {LEADER_LABEL: "true" if leader else None}
            if shard is not None and shard.count > 1:
                labels[SHARD_LABEL] = str(shard.index)
            await client.patch(pod_path, {"metadata": {"labels": labels}}, timeout=_TIMEOUT_SECONDS)
        except (KubeUnreachable, StatusError) as error:
            if str(error) != logged:
                logged = str(error)
                _log.warning("cannot set the label %s, which the Service of the pages selects: %s", LEADER_LABEL, error)
            await asyncio.sleep(backoff.next())
        else:
            labelled, logged = leader, ""
            backoff.reset()


@asynccontextmanager
async def pages_served(
    sources: Sources, address: UIAddress, options: Options, *, client: KubeClient, registry: CollectorRegistry
) -> AsyncIterator[None]:
    """Serve the pages until the end of the context.

    Args:
        sources: what the pages show.
        address: see UIAddress.
        options: of the process.
        client: the API server, for TokenReviews, SubjectAccessReviews, the CAs and the label of this pod.
        registry: the metrics registry.

    Raises:
        ListenError: the address is taken, or is not one of this host.
        TLSError: the serving certificate cannot be used or made.
        TrustError: a CA file cannot be used.
    """
    auth = None
    if not address.is_loopback:
        auth = DelegatedAuth(
            options.ui_auth,
            authentication_client=client,
            authorization_client=client,
            settings=options.settings.reviews,
        )
        await auth.trust.load_files()
    access = NamespaceAccess(None if auth is None else auth.authorizer)
    server = PageServer(
        await asyncio.to_thread(UIPages, sources, access),  # compresses the charts' library
        address,
        auth=auth,
        registry=registry,
        metrics_prefix="milliscale_autoscaler_ui",
        streams=EventStreams(options.settings.pages),
    )
    listening = server.bind()  # not within the TaskGroup, which would wrap the error
    async with asyncio.TaskGroup() as tasks:
        background = []
        if auth is not None:
            background.append(tasks.create_task(auth.run(), name="certificates and CAs of the pages"))
            if (pod := own_pod_path()) is not None:
                shard = options.availability.shard
                labelling = label_leader(client, pod, is_leader=sources.is_leader, shard=shard)
                background.append(tasks.create_task(labelling))
        await server.start(listening)
        try:
            yield
        finally:
            await server.stop()
            for task in background:
                task.cancel()
