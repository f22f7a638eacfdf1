"""One step, computed from outside: what the autoscaler would decide on an HPA now, read with whatever rights one has.

It observes and decides with the same parts as the running loop, and does not act: its connections refuse to write. What
the loop has by watching, the pods of the namespace and its other HPAs, is listed here. What the loop remembers is read
from the ConfigMap in which it is saved, if the caller says where that is and may read it; without it the step knows no
earlier recommendation and no earlier scale, and a caller is told so.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final
from urllib.parse import quote

from autoscaler.core.config import Config, PodSelection
from autoscaler.core.model import HPA, HPA_APIS, KIND, HPAApi
from autoscaler.core.reconcile import decide
from autoscaler.loop.memory import Memory
from autoscaler.loop.memory_store import MemoryLocation, MemoryStore
from autoscaler.loop.metrics_client import MetricsClient
from autoscaler.loop.observe import Observer
from autoscaler.loop.scales import ScaleClient
from autoscaler.loop.selector_index import PodIndex, SelectorIndex
from autoscaler.loop.shards import Shard
from autoscaler.loop.throttle import ThrottledClient, TokenBucket
from autoscaler.objects.fields import ParseError
from autoscaler.objects.parse_targets import parse_owned
from autoscaler.objects.watched import RefusedHPA, TrackedHPA, track_hpa, track_pod
from autoscaler.records.record import DecisionRecord
from autoscaler.records.recording import record_of
from kube.client import KubeClient, KubeError
from kube.mapping import NoMatchError, RestMapper
from kube.status import StatusError

_QPS: Final = 50.0
_BURST: Final = 100
_PAGE: Final = 500
_NOT_FOUND: Final = 404
_MODE: Final = "explain"
_LOAD_SECONDS: Final = 5.0


class StepError(Exception):
    """No step can be computed; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputedStep:
    """A step, and how far it can be trusted."""

    record: DecisionRecord
    notes: tuple[str, ...]
    """What the running loop may know and this step does not, a sentence each."""


async def compute_step(
    client: KubeClient,
    *,
    namespace: str,
    name: str,
    config: Config,
    apis: Iterable[HPAApi] = HPA_APIS,
    memory: MemoryLocation | None = None,
    wall_clock: Callable[[], float] = time.time,
    clock: Callable[[], float] = time.monotonic,
) -> ComputedStep:
    """Observe an HPA and decide on it, without acting.

    Args:
        client: the connection, which needs no rights but to read.
        namespace: the HPA's.
        name: the HPA's.
        config: the settings that the flags of the running loop say.
        apis: where to look for the HPA, in this order.
        memory: where the running loop saves what it remembers; None: the step has no memory.
        wall_clock: the current time in seconds since the epoch.
        clock: the clock of restored histories, in seconds.

    Raises:
        StepError: there is no such HPA, or something that is needed cannot be read.
    """
    reading = ThrottledClient(client, TokenBucket(qps=_QPS, burst=_BURST), may_write=lambda: False)
    mapper = RestMapper(client)
    served = [api for api in apis if await _is_served(mapper, api)]
    hpa = await _find(reading, namespace, name, served, scale_to_zero=config.scale_to_zero)
    pods, selectors = PodIndex(), SelectorIndex()
    controllers = await _controllers(reading, hpa)
    observer = Observer(
        scales=ScaleClient(reading, mapper),
        metrics=MetricsClient(resource=reading, custom=reading, external=reading, mapper=mapper, version_seconds=60.0),
        pods=pods,
        selectors=selectors,
        controllers=lambda: controllers,
        config=config,
    )
    await _list_pods(reading, namespace, pods)
    remembered = Memory()
    notes = [
        *await _note_rivals(reading, hpa, observer, served, scale_to_zero=config.scale_to_zero),
        *await _restore(reading, memory, remembered, hpa),
    ]
    observed = await observer.observe(hpa)
    # The running loop goes on remembering after each save, so for its next step nothing is to be caught up with.
    history = replace(remembered.of(hpa), complete=True)
    now_ms, monotonic_ms = round(wall_clock() * 1000), round(clock() * 1000)
    decision = decide(observed.observation, history, now_ms, monotonic_ms=monotonic_ms)
    return ComputedStep(record=record_of(decision, mode=_MODE), notes=tuple(notes))


async def _is_served(mapper: RestMapper, api: HPAApi) -> bool:
    """Whether the cluster has this API; one that it does not have would be forbidden rather than not found."""
    if api.built_in:
        return True
    try:
        await mapper.mappings_for_kind(api.group, KIND)
    except NoMatchError:
        return False
    except (StatusError, KubeError) as error:
        raise StepError(str(error)) from error
    return True


async def _find(
    client: ThrottledClient, namespace: str, name: str, apis: Iterable[HPAApi], *, scale_to_zero: bool
) -> HPA:
    refused: list[str] = []
    for api in apis:
        try:
            raw = await client.get(api.path(namespace, name))
        except StatusError as error:
            if error.code != _NOT_FOUND:
                refused.append(str(error))
            continue
        except KubeError as error:
            raise StepError(str(error)) from error
        tracked = track_hpa(raw, api=api, scale_to_zero=scale_to_zero)
        if isinstance(tracked, RefusedHPA):
            raise StepError(f"{tracked.hpa.key} is left alone, because its spec is not valid: {tracked.hpa.problem}")
        if tracked is None:
            raise StepError(f"{namespace}/{name} cannot be understood, and so is left alone")
        return tracked.hpa
    raise StepError("; ".join(refused) or f"there is no HorizontalPodAutoscaler {namespace}/{name}")


async def _controllers(client: ThrottledClient, hpa: HPA) -> Mapping[str, str] | None:
    """{a ReplicaSet's uid: the uid of its controller, or ""}, where the HPA wants to know whose its pods are."""
    if hpa.overrides.pod_selection is not PodSelection.OWNER:
        return None
    controllers: dict[str, str] = {}
    try:
        async for raw in _items(client, f"/apis/apps/v1/namespaces/{quote(hpa.namespace, safe='')}/replicasets"):
            owned = parse_owned(raw)
            controllers[owned.uid] = owned.owner.uid if owned.owner else ""
    except (StatusError, KubeError, ParseError) as error:
        raise StepError(f"the ReplicaSets cannot be listed: {error}") from error
    return controllers


async def _list_pods(client: ThrottledClient, namespace: str, pods: PodIndex) -> None:
    """Fill `pods`; nothing can be computed without them."""
    try:
        async for raw in _items(client, f"/api/v1/namespaces/{quote(namespace, safe='')}/pods"):
            pod = track_pod(raw)
            if pod is not None:
                pods.apply((pod.namespace, pod.name), None, pod)
    except (StatusError, KubeError) as error:
        raise StepError(f"the pods cannot be listed: {error}") from error


async def _note_rivals(
    client: ThrottledClient, hpa: HPA, observer: Observer, apis: Iterable[HPAApi], *, scale_to_zero: bool
) -> list[str]:
    """Let `observer` know which pods the namespace's other HPAs control."""
    try:
        for api in apis:
            async for raw in _items(client, api.path(hpa.namespace)):
                other = track_hpa(raw, api=api, scale_to_zero=scale_to_zero)
                if isinstance(other, TrackedHPA) and other.hpa.key != hpa.key:
                    await observer.note(other.hpa)
    except (StatusError, KubeError) as error:
        return [f"it was not checked whether another HPA controls the same pods: {error}"]
    return []


async def _restore(client: ThrottledClient, location: MemoryLocation | None, memory: Memory, hpa: HPA) -> list[str]:
    """Fill `memory` with what the running loop has saved."""
    where = ""
    if location is not None:
        store = MemoryStore(client, location=location, shard=Shard(), load_seconds=_LOAD_SECONDS)
        memory.restore(await store.load())
        if memory.of(hpa).recommendations:
            return []
        config_map = f"ConfigMap {location.namespace}/{location.name}"
        where = f" ({config_map} {store.problem})" if store.problem else f" (none was found in {config_map})"
    unknown = "earlier recommendations and scales, by which the running autoscaler stabilises and limits, are not known"
    return [f"computed without a memory of earlier steps{where}: {unknown}"]


async def _items(client: ThrottledClient, path: str) -> AsyncIterator[dict[str, Any]]:
    """The objects of a collection, page by page."""
    token = ""
    while True:
        page = await client.get(path, {"limit": _PAGE} | ({"continue": token} if token else {}))
        items = page.get("items")
        for item in items if isinstance(items, list) else ():
            if isinstance(item, dict):
                yield item
        metadata = page.get("metadata")
        token = str(metadata.get("continue") or "") if isinstance(metadata, dict) else ""
        if not token:
            return
