"""Which pods really belong to a scale target: those that it owns, not all that its selector happens to match.

Kubernetes takes every pod that the selector matches, so a pod of another Deployment with the same labels, or one that a
Job left behind, counts like the target's own. With the pod selection `owner` only those count whose ownerReferences
lead to the target: directly, as a StatefulSet's pods do, or by way of a ReplicaSet, as a Deployment's do. The chain is
followed by uid, so an object made anew under an old name owns nothing of the old one's.

ReplicaSets are watched from the moment that some HPA asks for this; where none does, nothing is read and no right to
read them is needed. Of each only the uid and its owner's are kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from autoscaler.core.observation import MetricResponse, Owned, Pod, PodsResponse, ResourceResponse
from autoscaler.objects.fields import ParseError
from autoscaler.objects.workloads import parse_owned
from kube.client import KubeClient
from kube.store import Key, Store

_REPLICA_SET: Final = "ReplicaSet"
_REPLICA_SETS: Final = "/apis/apps/v1/replicasets"


@dataclass(frozen=True, slots=True, kw_only=True)
class PodsByOwner:
    """The pods that a target's selector matches, by what is known of their owners."""

    owned: tuple[Pod, ...]
    """Those that belong to the target."""
    foreign: tuple[str, ...]
    """The names of those that do not."""
    unknown: tuple[str, ...]
    """The names of those of a ReplicaSet that is not known: a new one, or one that has just gone."""


def split_by_owner(pods: Iterable[Pod], *, target_uid: str, controllers: Mapping[str, str]) -> PodsByOwner:
    """Which of the pods belong to a target.

    Args:
        pods: what the target's selector matches.
        target_uid: the target's uid.
        controllers: {a ReplicaSet's uid: the uid of its controller, or "" where it has none}.
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


def restrict_to_pods(answer: MetricResponse | None, pods: Iterable[Pod]) -> MetricResponse | None:
    """What is left of a metrics API's answer if only these pods count; one that is not about pods stays as it is."""
    names = {pod.name for pod in pods}
    match answer:
        case ResourceResponse(samples):
            return ResourceResponse(tuple(each for each in samples if each.name in names))
        case PodsResponse(samples_by_name):
            return PodsResponse({name: sample for name, sample in samples_by_name.items() if name in names})
        case _:
            return answer


class ReplicaSets:
    """Who controls which ReplicaSet, in all namespaces; begins to look when it is first asked."""

    def __init__(self, client: KubeClient) -> None:
        self._controllers: dict[str, str] = {}
        self._asked = asyncio.Event()
        self._store: Store[Owned] = Store(client, _REPLICA_SETS, _track, metadata_only=True, on_change=self._changed)

    def controllers(self) -> Mapping[str, str] | None:
        """{a ReplicaSet's uid: the uid of its controller, or ""}; None until they have been listed."""
        self._asked.set()
        return self._controllers if self._store.synced else None

    @property
    def stale(self) -> bool:
        """Whether what is known of ReplicaSets may be out of date."""
        return self._store.stale

    async def run(self) -> None:
        """List and watch once somebody has asked, until cancelled."""
        await self._asked.wait()
        await self._store.run()

    def _changed(self, _: Key, old: Owned | None, new: Owned | None) -> None:
        if old is not None:
            self._controllers.pop(old.uid, None)
        if new is not None:
            self._controllers[new.uid] = new.owner.uid if new.owner else ""


def _track(raw: Mapping[str, Any]) -> Owned | None:
    try:
        return parse_owned(raw)
    except ParseError:
        return None
