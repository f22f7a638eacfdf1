"""A kubelet without containers: pods of its node become Running and Ready after a delay, and are deleted gracefully.

It only writes the status that a kubelet writes. It also works with a real API server.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

from kube.api.client import KubeClient, KubeError
from kube.api.retries import Backoff
from kube.api.status import StatusError
from kube.cache.store import Key, Store
from playground.views import Pod, now

_log = logging.getLogger(__name__)

_POD_IP: Final = "127.0.0.1"
_VERSION: Final = "playground"
_NOT_FOUND: Final = 404
_CONFLICT: Final = 409


class Kubelet:
    """Manages the pods of one node while `run` runs."""

    def __init__(self, client: KubeClient, *, node: str, ready_seconds: float) -> None:
        """Create a kubelet whose pods are Ready after `ready_seconds`."""
        self._client = client
        self._node = node
        self._ready_seconds = ready_seconds
        self._pods = Store(client, "/api/v1/pods", Pod.select, on_change=self._pod_changed)
        self._arrivals: asyncio.Queue[tuple[Key, Pod]] = asyncio.Queue()

    async def run(self) -> None:
        """Manage the pods until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._pods.run())
            await self._pods.wait_synced()
            await self._register()
            while True:
                key, pod = await self._arrivals.get()
                tasks.create_task(self._stop(key, pod) if pod.deleting else self._start(key, pod))

    async def _register(self) -> None:
        """Create the Node with the condition Ready."""
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": self._node}}
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastTransitionTime": now()}
        status = {"conditions": [ready], "nodeInfo": {"kubeletVersion": _VERSION}}
        try:
            await self._client.post("/api/v1/nodes", node)
        except StatusError as error:
            if error.code != _CONFLICT:
                raise
        await self._client.patch(f"/api/v1/nodes/{self._node}/status", {"status": status})

    def _pod_changed(self, key: Key, old: Pod | None, new: Pod | None) -> None:
        if new is None or new.spec.node_name != self._node:
            return
        # Only a new pod and a new deletionTimestamp need work.
        if old is not None and old.metadata.uid == new.metadata.uid and old.deleting == new.deleting:
            return
        if new.deleting or new.status.phase in ("", "Pending"):
            self._arrivals.put_nowait((key, new))

    async def _start(self, key: Key, pod: Pod) -> None:
        await asyncio.sleep(self._ready_seconds)
        path = f"{_path(key)}/status"
        # The UID is a precondition, so that another pod of the same name is not changed.
        change = {"metadata": {"uid": pod.metadata.uid}, "status": _running(pod)}

        await self._retry(key, pod, lambda: self._client.patch(path, change))

    async def _stop(self, key: Key, pod: Pod) -> None:
        await self._retry(key, pod, lambda: self._client.delete(_path(key), {"gracePeriodSeconds": 0}))

    async def _retry(self, key: Key, pod: Pod, report: Callable[[], Awaitable[object]]) -> None:
        """Call `report` until it succeeds or the pod is deleted."""
        backoff = Backoff(0.2, 5.0)
        while (found := self._pods.get(*key)) is not None and found.metadata.uid == pod.metadata.uid:
            try:
                await report()
            except StatusError as error:
                if error.code == _NOT_FOUND:
                    return
                _log.warning("pod %s/%s: %s", *key, error)
            except KubeError as error:  # the store logs it
                _log.debug("pod %s/%s: %s", *key, error)
            else:
                return
            await asyncio.sleep(backoff.next())


def _path(key: Key) -> str:
    namespace, name = key
    return f"/api/v1/namespaces/{namespace}/pods/{name}"


def _running(pod: Pod) -> dict[str, Any]:
    started = now()
    return {
        "phase": "Running",
        "startTime": started,
        "podIP": _POD_IP,
        "podIPs": [{"ip": _POD_IP}],
        "hostIP": _POD_IP,
        "conditions": [
            {"type": name, "status": "True", "lastTransitionTime": started}
            for name in ("PodScheduled", "Initialized", "ContainersReady", "Ready")
        ],
        "containerStatuses": [
            {
                "name": container.name,
                "image": container.image,
                "imageID": "",
                "ready": True,
                "started": True,
                "restartCount": 0,
                "state": {"running": {"startedAt": started}},
            }
            for container in pod.spec.containers
        ],
    }
