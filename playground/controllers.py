"""A deployment controller: creates and deletes pods, and updates the status of Deployments.

Unlike kube-controller-manager it has no ReplicaSets: pods belong to their Deployment directly, and a changed template
replaces all pods at once. It also works with a real API server. See playground.kubelet for what makes pods Ready.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import hashlib
import logging
import random
from collections import defaultdict
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from kube.api.client import KubeClient, KubeError
from kube.api.retries import Backoff
from kube.api.status import StatusError
from kube.cache.store import Key, Store

_log = logging.getLogger(__name__)

_HASH_LABEL: Final = "pod-template-hash"
_SUFFIX_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"
_KIND: Final = "Deployment"
_NOT_FOUND: Final = 404


class _Json(msgspec.Struct, rename="camel"):
    """The fields of an object that are read."""


class _OwnerJson(_Json):
    kind: str = ""
    uid: str = ""
    controller: bool = False


class _MetadataJson(_Json):
    name: str
    namespace: str
    uid: str
    generation: int = 0
    deletion_timestamp: str | None = None
    creation_timestamp: str = ""
    labels: dict[str, str] = {}
    owner_references: list[_OwnerJson] = []


class _ConditionJson(_Json):
    type: str = ""
    status: str = ""
    last_transition_time: str | None = None


class _ConditionsJson(_Json):
    conditions: list[_ConditionJson] = []

    def find(self, wanted: str) -> _ConditionJson:
        return next((one for one in self.conditions if one.type == wanted), _ConditionJson())


class _DeploymentSpecJson(_Json):
    template: dict[str, Any]
    replicas: int = 1


class _DeploymentJson(_Json):
    metadata: _MetadataJson
    spec: _DeploymentSpecJson
    status: dict[str, Any] = {}


class _PodJson(_Json):
    metadata: _MetadataJson
    status: _ConditionsJson = msgspec.field(default_factory=_ConditionsJson)


class _Counts(_Json):
    """A Deployment's status without its conditions, as it is read and written."""

    observed_generation: int = 0
    replicas: int = 0
    updated_replicas: int = 0
    ready_replicas: int = 0
    available_replicas: int = 0
    unavailable_replicas: int = 0


@dataclass(frozen=True, slots=True)
class _Deployment:
    namespace: str
    name: str
    uid: str
    generation: int
    replicas: int
    template: dict[str, Any]
    template_hash: str
    counts: _Counts
    available: _ConditionJson

    @staticmethod
    def select(entry: Mapping[str, Any]) -> _Deployment | None:
        try:
            json = msgspec.convert(entry, _DeploymentJson)
            counts = msgspec.convert(json.status, _Counts)
            conditions = msgspec.convert(json.status, _ConditionsJson)
        except msgspec.ValidationError:
            return None
        if json.metadata.deletion_timestamp is not None:
            return None
        return _Deployment(
            namespace=json.metadata.namespace,
            name=json.metadata.name,
            uid=json.metadata.uid,
            generation=json.metadata.generation,
            replicas=json.spec.replicas,
            template=json.spec.template,
            template_hash=_hash(json.spec.template),
            counts=counts,
            available=conditions.find("Available"),
        )


@dataclass(frozen=True, slots=True)
class _Pod:
    namespace: str
    name: str
    owner: str
    """The UID of its Deployment."""
    template_hash: str
    created: str
    ready: bool
    deleting: bool

    @staticmethod
    def select(entry: Mapping[str, Any]) -> _Pod | None:
        """Return the view of a pod whose controller is a Deployment; None for others."""
        try:
            json = msgspec.convert(entry, _PodJson)
        except msgspec.ValidationError:
            return None
        owners = [owner.uid for owner in json.metadata.owner_references if owner.controller and owner.kind == _KIND]
        if not owners:
            return None
        return _Pod(
            namespace=json.metadata.namespace,
            name=json.metadata.name,
            owner=owners[0],
            template_hash=json.metadata.labels.get(_HASH_LABEL, ""),
            created=json.metadata.creation_timestamp,
            ready=json.status.find("Ready").status == "True",
            deleting=json.metadata.deletion_timestamp is not None,
        )


class DeploymentController:
    """Reconciles all Deployments while `run` runs."""

    def __init__(self, client: KubeClient, *, node: str) -> None:
        """Create a controller that binds new pods to `node`."""
        self._client = client
        self._node = node
        self._changed = asyncio.Event()
        self._deployments = Store(
            client, "/apis/apps/v1/deployments", _Deployment.select, on_change=lambda *_: self._changed.set()
        )
        self._pods = Store(client, "/api/v1/pods", _Pod.select, on_change=self._pod_changed)
        # Writes that the watch has not returned yet, so that none is repeated.
        self._created: dict[Key, _Pod] = {}
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

    def _pod_changed(self, key: Key, _: _Pod | None, new: _Pod | None) -> None:
        self._created.pop(key, None)
        if new is None or new.deleting:
            self._deleted.discard(key)
        self._changed.set()

    async def _reconcile_all(self) -> bool:
        """Reconcile every Deployment; return False if one failed."""
        pods: defaultdict[str, list[_Pod]] = defaultdict(list)
        for pod in (*self._pods.list(), *self._created.values()):
            if not pod.deleting and (pod.namespace, pod.name) not in self._deleted:
                pods[pod.owner].append(pod)
        done = True
        for deployment in self._deployments.list():
            what = f"deployment {deployment.namespace}/{deployment.name}"
            work = self._reconcile(deployment, pods.pop(deployment.uid, []))
            done &= await self._attempt(what, work)
        for orphans in pods.values():  # upstream: the garbage collector
            for pod in orphans:
                done &= await self._attempt(f"pod {pod.namespace}/{pod.name}", self._delete(pod))
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

    async def _reconcile(self, deployment: _Deployment, pods: list[_Pod]) -> None:
        await self._adjust_pods(deployment, pods)
        await self._update_status(deployment)

    async def _adjust_pods(self, deployment: _Deployment, pods: list[_Pod]) -> None:
        current = [pod for pod in pods if pod.template_hash == deployment.template_hash]
        for pod in pods:
            if pod.template_hash != deployment.template_hash:
                await self._delete(pod)
        # Ready pods stay, then the oldest.
        current.sort(key=lambda pod: (not pod.ready, pod.created))
        for pod in current[deployment.replicas :]:
            await self._delete(pod)
        for _ in range(deployment.replicas - len(current)):
            await self._create(deployment)

    async def _create(self, deployment: _Deployment) -> None:
        pod = await self._client.post(
            f"/api/v1/namespaces/{deployment.namespace}/pods", _pod_of(deployment, self._node)
        )
        view = _Pod.select(pod)
        key = (deployment.namespace, pod["metadata"]["name"])
        if view is not None and self._pods.get(*key) is None:
            self._created[key] = view

    async def _delete(self, pod: _Pod) -> None:
        try:
            await self._client.delete(f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}")
        except StatusError as error:
            if error.code != _NOT_FOUND:
                raise
        found = self._pods.get(pod.namespace, pod.name)
        if found is not None and not found.deleting:
            self._deleted.add((pod.namespace, pod.name))

    async def _update_status(self, deployment: _Deployment) -> None:
        pods = [
            pod
            for pod in self._pods.list(deployment.namespace)
            if pod.owner == deployment.uid and not pod.deleting and (pod.namespace, pod.name) not in self._deleted
        ]
        ready = sum(pod.ready for pod in pods)
        counts = _Counts(
            observed_generation=deployment.generation,
            replicas=len(pods),
            updated_replicas=sum(pod.template_hash == deployment.template_hash for pod in pods),
            ready_replicas=ready,
            available_replicas=ready,
            unavailable_replicas=max(0, deployment.replicas - ready),
        )
        available = "True" if ready >= deployment.replicas else "False"
        before = deployment.available
        if counts == deployment.counts and available == before.status:
            return
        condition = {
            "type": "Available",
            "status": available,
            "reason": "MinimumReplicasAvailable" if available == "True" else "MinimumReplicasUnavailable",
            "message": f"{ready} of {deployment.replicas} replicas are available",
            "lastUpdateTime": _now(),
            "lastTransitionTime": before.last_transition_time if available == before.status else _now(),
        }
        await self._client.patch(
            f"/apis/apps/v1/namespaces/{deployment.namespace}/deployments/{deployment.name}/status",
            {"status": {**msgspec.to_builtins(counts), "conditions": [condition]}},
        )


def _pod_of(deployment: _Deployment, node: str) -> dict[str, Any]:
    metadata = deployment.template.get("metadata") or {}
    suffix = "".join(random.choices(_SUFFIX_LETTERS, k=5))
    owner = {
        "apiVersion": "apps/v1",
        "kind": _KIND,
        "name": deployment.name,
        "uid": deployment.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{deployment.name}-{deployment.template_hash}-{suffix}",
            "namespace": deployment.namespace,
            "labels": {**(metadata.get("labels") or {}), _HASH_LABEL: deployment.template_hash},
            "annotations": metadata.get("annotations") or {},
            "ownerReferences": [owner],
        },
        "spec": {**(deployment.template.get("spec") or {}), "nodeName": node},
    }


def _hash(template: Mapping[str, Any]) -> str:
    """Return the pod-template-hash. Upstream: rand.SafeEncodeString of the decimal digits of a 32-bit hash."""
    digest = hashlib.sha256(msgspec.json.encode(template, order="sorted")).digest()
    number = str(int.from_bytes(digest[:4]))
    return "".join(_SUFFIX_LETTERS[ord(digit) % len(_SUFFIX_LETTERS)] for digit in number)


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
