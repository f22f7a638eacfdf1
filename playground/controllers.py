"""A deployment controller: creates and deletes pods, and updates the status of Deployments.

Unlike kube-controller-manager it has no ReplicaSets: pods belong to their Deployment directly, and a changed template
replaces all pods at once. It also works with a real API server. See playground.kubelet for what makes pods Ready.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import random
from collections import defaultdict
from collections.abc import Coroutine, Mapping
from typing import Any, Final

import msgspec

from kube.api.client import KubeClient, KubeError
from kube.api.retries import Backoff
from kube.api.status import StatusError
from kube.cache.store import Key, Store
from playground.views import Condition, Deployment, DeploymentStatus, Pod, now

_log = logging.getLogger(__name__)

_HASH_LABEL: Final = "pod-template-hash"
_SUFFIX_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"
_KIND: Final = "Deployment"
_NOT_FOUND: Final = 404


class DeploymentController:
    """Reconciles all Deployments while `run` runs."""

    def __init__(self, client: KubeClient, *, node: str) -> None:
        """Create a controller that binds new pods to `node`."""
        self._client = client
        self._node = node
        self._changed = asyncio.Event()
        self._deployments = Store(
            client, "/apis/apps/v1/deployments", Deployment.select, on_change=lambda *_: self._changed.set()
        )
        self._pods = Store(client, "/api/v1/pods", _owned_pod, on_change=self._pod_changed)
        # Writes that the watch has not returned yet, so that none is repeated.
        self._created: dict[Key, Pod] = {}
        self._deleted: set[Key] = set()
        self._backoff = Backoff(0.2, 5.0)

    async def run(self) -> None:
        """Reconcile until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._deployments.run())
            tasks.create_task(self._pods.run())
            await self._deployments.wait_synced()
            await self._pods.wait_synced()
            while True:
                self._changed.clear()
                if await self._reconcile_all():
                    self._backoff.reset()
                    await self._changed.wait()
                else:
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(self._backoff.next()):
                            await self._changed.wait()

    def _pod_changed(self, key: Key, _: Pod | None, new: Pod | None) -> None:
        self._created.pop(key, None)
        if new is None or new.deleting:
            self._deleted.discard(key)
        self._changed.set()

    async def _reconcile_all(self) -> bool:
        """Reconcile every Deployment; return False if one failed."""
        pods: defaultdict[str, list[Pod]] = defaultdict(list)
        for pod in (*self._pods.list(), *self._created.values()):
            if not pod.deleting and _key(pod) not in self._deleted:
                pods[_owner(pod)].append(pod)
        done = True
        for deployment in [one for one in self._deployments.list() if not one.deleting]:
            what = f"deployment {deployment.metadata.namespace}/{deployment.name}"
            work = self._reconcile(deployment, pods.pop(deployment.metadata.uid, []))
            done &= await self._attempt(what, work)
        for orphans in pods.values():  # upstream: the garbage collector
            for pod in orphans:
                done &= await self._attempt(f"pod {pod.metadata.namespace}/{pod.name}", self._delete(pod))
        return done

    async def _attempt(self, what: str, work: Coroutine[Any, Any, None]) -> bool:
        """Await `work`; return False, and log it, if it failed and is to be retried."""
        try:
            await work
        except StatusError as error:
            if error.code == _NOT_FOUND:  # deleted in the meantime
                return True
            _log.warning("%s: %s", what, error)
            return False
        except KubeError:  # the stores log a lost connection
            return False
        return True

    async def _reconcile(self, deployment: Deployment, pods: list[Pod]) -> None:
        await self._adjust_pods(deployment, pods)
        await self._update_status(deployment)

    async def _adjust_pods(self, deployment: Deployment, pods: list[Pod]) -> None:
        current = [pod for pod in pods if _is_current(pod, deployment)]
        for pod in pods:
            if not _is_current(pod, deployment):
                await self._delete(pod)
        # Ready pods stay, then the oldest.
        current.sort(key=lambda pod: (not pod.ready, pod.metadata.creation_timestamp))
        for pod in current[deployment.spec.replicas :]:
            await self._delete(pod)
        for _ in range(deployment.spec.replicas - len(current)):
            await self._create(deployment)

    async def _create(self, deployment: Deployment) -> None:
        path = f"/api/v1/namespaces/{deployment.metadata.namespace}/pods"
        pod = _owned_pod(await self._client.post(path, _pod_of(deployment, self._node)))
        if pod is not None and self._pods.get(*_key(pod)) is None:
            self._created[_key(pod)] = pod

    async def _delete(self, pod: Pod) -> None:
        try:
            await self._client.delete(f"/api/v1/namespaces/{pod.metadata.namespace}/pods/{pod.name}")
        except StatusError as error:
            if error.code != _NOT_FOUND:
                raise
        found = self._pods.get(*_key(pod))
        if found is not None and not found.deleting:
            self._deleted.add(_key(pod))

    async def _update_status(self, deployment: Deployment) -> None:
        pods = [
            pod
            for pod in self._pods.list(deployment.metadata.namespace)
            if _owner(pod) == deployment.metadata.uid and not pod.deleting and _key(pod) not in self._deleted
        ]
        ready = sum(pod.ready for pod in pods)
        wanted, before = deployment.spec.replicas, deployment.status
        status = DeploymentStatus(
            observed_generation=deployment.metadata.generation,
            replicas=len(pods),
            updated_replicas=sum(_is_current(pod, deployment) for pod in pods),
            ready_replicas=ready,
            available_replicas=ready,
            unavailable_replicas=max(0, wanted - ready),
            conditions=before.conditions,
        )
        available = "True" if ready >= wanted else "False"
        last = next((one for one in before.conditions if one.type == "Available"), Condition())
        if status == before and available == last.status:
            return
        condition = {
            "type": "Available",
            "status": available,
            "reason": "MinimumReplicasAvailable" if available == "True" else "MinimumReplicasUnavailable",
            "message": f"{ready} of {wanted} replicas are available",
            "lastUpdateTime": now(),
            "lastTransitionTime": last.last_transition_time if available == last.status else now(),
        }
        await self._client.patch(
            f"/apis/apps/v1/namespaces/{deployment.metadata.namespace}/deployments/{deployment.name}/status",
            {"status": {**msgspec.to_builtins(status), "conditions": [condition]}},
        )


def _pod_of(deployment: Deployment, node: str) -> dict[str, Any]:
    template, template_hash = deployment.spec.template, _hash(deployment.spec.template)
    metadata = template.get("metadata") or {}
    suffix = "".join(random.choices(_SUFFIX_LETTERS, k=5))
    owner = {
        "apiVersion": "apps/v1",
        "kind": _KIND,
        "name": deployment.name,
        "uid": deployment.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{deployment.name}-{template_hash}-{suffix}",
            "namespace": deployment.metadata.namespace,
            "labels": {**(metadata.get("labels") or {}), _HASH_LABEL: template_hash},
            "annotations": metadata.get("annotations") or {},
            "ownerReferences": [owner],
        },
        "spec": {**(template.get("spec") or {}), "nodeName": node},
    }


def _owned_pod(entry: Mapping[str, Any]) -> Pod | None:
    """Return the view of a pod whose controller is a Deployment; None for others."""
    pod = Pod.select(entry)
    return pod if pod is not None and _owner(pod) else None


def _owner(pod: Pod) -> str:
    """Return the UID of a pod's Deployment."""
    owners = pod.metadata.owner_references
    return next((owner.uid for owner in owners if owner.controller and owner.kind == _KIND), "")


def _key(pod: Pod) -> Key:
    return pod.metadata.namespace, pod.name


def _is_current(pod: Pod, deployment: Deployment) -> bool:
    """Return whether the pod is of the Deployment's present template."""
    return pod.metadata.labels.get(_HASH_LABEL) == _hash(deployment.spec.template)


def _hash(template: Mapping[str, Any]) -> str:
    """Return the pod-template-hash. Upstream: rand.SafeEncodeString of the decimal digits of a 32-bit hash."""
    digest = hashlib.sha256(msgspec.json.encode(template, order="sorted")).digest()
    number = str(int.from_bytes(digest[:4]))
    return "".join(_SUFFIX_LETTERS[ord(digit) % len(_SUFFIX_LETTERS)] for digit in number)
