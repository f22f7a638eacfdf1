"""Find the pods that a scale target owns, for the pod selection `owner`.

Kubernetes counts every pod that the target's selector matches, including pods of another Deployment with the same
labels and finished pods of a Job. The pod selection `owner` counts only pods whose ownerReferences lead to the target:
directly, as for a StatefulSet, or through a ReplicaSet, as for a Deployment. References are compared by uid, so a
recreated object does not own the pods of its predecessor.

ReplicaSets are watched as soon as an HPA has this selection; otherwise no right to read them is needed. Of each only
the uid and its controller's uid are stored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias, TypeVar

from msgspec.structs import replace

from autoscaler.core.observation import Owned, Pod, PodsResponse, ResourceResponse
from autoscaler.objects.workloads import parse_owned
from kube.api.client import KubeClient
from kube.cache.label_index import LabelIndex
from kube.cache.store import Key, Store

_T = TypeVar("_T")

PodIndex: TypeAlias = LabelIndex[Pod]
"""The pods of a cluster by their labels."""

_REPLICA_SET: Final = "ReplicaSet"
_REPLICA_SETS: Final = "/apis/apps/v1/replicasets"


@dataclass(frozen=True, slots=True, kw_only=True)
class PodsByOwner:
    """The pods that a target's selector matches, by their owners."""

    owned: tuple[Pod, ...]
    """The target's own pods."""
    foreign: tuple[str, ...]
    """The names of other owners' pods."""
    unknown: tuple[str, ...]
    """The names of pods of an unknown ReplicaSet: a new one, or one that was just deleted."""


def split_by_owner(pods: Iterable[Pod], *, target_uid: str, controllers: Mapping[str, str]) -> PodsByOwner:
    """Split pods by whether a target owns them.

    Args:
        pods: those that the target's selector matches.
        target_uid: the target's uid.
        controllers: {a ReplicaSet's uid: the uid of its controller, or "" if it has none}.
    """
    owned: list[Pod] = []
    foreign: list[str] = []
    unknown: list[str] = []
    for pod in pods:
        owner = pod.owner
        if owner is None:
            foreign.append(pod.name)
        elif target_uid in (owner.uid, controllers.get(owner.uid)):
            owned.append(pod)
        elif owner.kind == _REPLICA_SET and owner.uid not in controllers:
            unknown.append(pod.name)
        else:
            foreign.append(pod.name)
    return PodsByOwner(owned=tuple(owned), foreign=tuple(foreign), unknown=tuple(unknown))


def restrict_to_pods(response: _T, pods: Iterable[Pod]) -> _T:
    """Drop the samples of other pods from a response; a response that is not about pods stays the same."""
    if not isinstance(response, ResourceResponse | PodsResponse):
        return response
    return replace(response, pods={pod.name: response.pods[pod.name] for pod in pods if pod.name in response.pods})


class ReplicaSets:
    """The controllers of all ReplicaSets; the watch starts with the first call of `controllers`."""

    def __init__(self, client: KubeClient) -> None:
        self._controllers: dict[str, str] = {}
        self._needed = asyncio.Event()
        self._store: Store[Owned] = Store(
            client, _REPLICA_SETS, parse_owned, metadata_only=True, on_change=self._changed
        )

    def controllers(self) -> Mapping[str, str] | None:
        """{a ReplicaSet's uid: the uid of its controller, or ""}; None until they are listed."""
        self._needed.set()
        return self._controllers if self._store.synced else None

    @property
    def stale(self) -> bool:
        """True if the watch may be out of date."""
        return self._store.stale

    async def run(self) -> None:
        """List and watch as soon as they are needed, until cancelled."""
        await self._needed.wait()
        await self._store.run()

    def _changed(self, _: Key, old: Owned | None, new: Owned | None) -> None:
        if old is not None:
            self._controllers.pop(old.uid, None)
        if new is not None:
            self._controllers[new.uid] = new.owner.uid if new.owner else ""
