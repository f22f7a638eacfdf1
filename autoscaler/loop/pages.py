"""Serve the web pages of a controller, with the authentication and authorization that their address needs.

On an address that is not a loopback one they have a Service, which selects the leader by a label.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from prometheus_client import CollectorRegistry

from autoscaler.loop.leader_label import label_leader, own_pod_path
from autoscaler.loop.options import Options
from autoscaler.ui.access import NamespaceAccess
from autoscaler.ui.sources import Sources
from kube.api.client import KubeClient
from kube.serving.delegated import DelegatedAuth
from kube.web.event_stream import EventStreams
from kube.web.options import UIAddress
from kube.web.server import PageServer


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
    # Imported only here: templates and charts take memory.
    from autoscaler.ui.pages import UIPages

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
