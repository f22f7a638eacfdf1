"""A label on the pod that is the leader, so that a Service can select it.

The Service of a controller's pages must not lead to a standby, which has nothing to show. Readiness cannot tell them
apart: a Deployment would wait for the standby.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Mapping
from typing import Final

from autoscaler.loop.sharding import Shard
from kube.api.client import KubeClient, KubeUnreachable
from kube.api.config import own_namespace
from kube.api.retries import Backoff
from kube.api.status import StatusError

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
