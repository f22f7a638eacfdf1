"""Compute one decision outside of the controller, with read-only rights.

It observes and decides with the controller's code and does not act: its client refuses to write. Pods and the other
HPAs of the namespace, which the controller watches, are listed. The history is read from the controller's ConfigMap, if
the caller names it. Without it, the decision disregards earlier recommendations and scale events, and has a note about
that.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar
from urllib.parse import quote

import click
from msgspec.structs import replace

from autoscaler.core.config import Config, PodSelection
from autoscaler.core.decide import decide
from autoscaler.core.model import HPA, HPA_APIS, KIND, HPAApi
from autoscaler.loop.clocks import Clocks
from autoscaler.loop.histories import Histories
from autoscaler.loop.metrics_client import MetricsClient
from autoscaler.loop.observe import Observer
from autoscaler.loop.pod_owners import PodIndex
from autoscaler.loop.saved_history import SavedHistoryLocation, SavedHistoryStore
from autoscaler.loop.scales import ScaleClient
from autoscaler.loop.selector_index import SelectorIndex
from autoscaler.loop.sharding import Shard
from autoscaler.objects.hpa import track_hpa
from autoscaler.objects.workloads import parse_owned, track_pod
from autoscaler.records.build import build_record
from autoscaler.records.record import DecisionRecord
from autoscaler.records.sentence import with_sentence
from autoscaler.settings import HistorySettings
from kube.api.client import KubeClient, KubeError
from kube.api.listing import list_objects
from kube.api.mapping import NoMatchError, RestMapper
from kube.api.objects import ParseError
from kube.api.status import StatusError
from kube.controller.flowcontrol import ThrottledClient, TokenBucket

_T = TypeVar("_T")

_QPS: Final = 50.0
_BURST: Final = 100
_NOT_FOUND: Final = 404
_MODE: Final = "explain"
_HISTORY: Final = HistorySettings(load_seconds=5.0)


async def decide_once(
    client: KubeClient,
    *,
    namespace: str,
    name: str,
    config: Config,
    apis: Iterable[HPAApi] = HPA_APIS,
    saved_history: SavedHistoryLocation | None = None,
) -> tuple[DecisionRecord, list[str]]:
    """Observe an HPA and decide on it, without acting.

    Args:
        client: needs read-only rights.
        namespace: the HPA's.
        name: the HPA's.
        config: the settings of the controller.
        apis: the APIs in which to look for the HPA, in this order.
        saved_history: the ConfigMap in which the controller saves its history; None: decide without history.

    Returns:
        The record, and notes: a sentence for each input that the controller may have and this decision lacks.

    Raises:
        click.ClickException: the HPA does not exist, or required data cannot be read.
    """
    reading = ThrottledClient(client, TokenBucket(qps=_QPS, burst=_BURST), may_write=lambda: False)
    mapper = RestMapper(client)
    served = [api for api in apis if await _is_served(client, mapper, api)]
    hpa = await _find(client, namespace, name, served, scale_to_zero=config.scale_to_zero)
    controllers = await _controllers(client, hpa)
    observer = Observer(
        scales=ScaleClient(reading, mapper),
        metrics=MetricsClient(resource=reading, custom=reading, external=reading, mapper=mapper, version_seconds=60.0),
        pods=await _pods(client, namespace),
        selectors=SelectorIndex(),
        controllers=lambda: controllers,
        config=config,
    )
    histories = Histories()
    notes = [
        *await _read_other_hpas(client, hpa, observer, served, scale_to_zero=config.scale_to_zero),
        *await _restore(reading, saved_history, histories, hpa),
    ]
    observed = await observer.observe(hpa)
    # An incomplete history only means that the controller is still running. Its next decision uses this history.
    history = replace(histories.of(hpa), complete=True)
    now_ms, monotonic_ms = Clocks().read_ms()
    decision = decide(observed.observation, history, now_ms, monotonic_ms=monotonic_ms)
    return with_sentence(build_record(decision, mode=_MODE)), notes


async def _is_served(client: KubeClient, mapper: RestMapper, api: HPAApi) -> bool:
    """True if the cluster serves this API. Checked first, because requests for unknown APIs may be forbidden."""
    if api.built_in:
        return True
    try:
        await mapper.mappings_for_kind(api.group, KIND)
    except NoMatchError:
        return False
    except (StatusError, KubeError) as error:
        raise click.ClickException(client.describe(error)) from error
    return True


async def _find(client: KubeClient, namespace: str, name: str, apis: Iterable[HPAApi], *, scale_to_zero: bool) -> HPA:
    refused: dict[HPAApi, str] = {}
    for api in apis:
        try:
            raw = await client.get(api.path(namespace, name))
        except StatusError as error:
            if error.code != _NOT_FOUND:
                refused[api] = client.describe(error)
            continue
        except KubeError as error:
            raise click.ClickException(str(error)) from error
        hpa = track_hpa(raw, api=api, scale_to_zero=scale_to_zero)
        if hpa is None:
            raise click.ClickException(f"{namespace}/{name} cannot be parsed, and is not reconciled")
        if hpa.problem:
            raise click.ClickException(f"{hpa.key} is not reconciled, because its spec is invalid: {hpa.problem}")
        return hpa
    # Few users have rights on the other API, and that must not hide that the HPA does not exist.
    if refused and (any(api.built_in for api in refused) or not any(api.built_in for api in apis)):
        raise click.ClickException("; ".join(dict.fromkeys(refused.values())))
    unread = "".join(f" ({api.group} may not be read)" for api in refused)
    raise click.ClickException(
        f"there is no HorizontalPodAutoscaler {namespace}/{name}{unread}; kubectl get hpa -A lists those that are there"
    )


async def _controllers(client: KubeClient, hpa: HPA) -> Mapping[str, str] | None:
    """Return {a ReplicaSet's uid: its controller's uid or ""}; None if the HPA does not select pods by owner."""
    if hpa.overrides.pod_selection is not PodSelection.OWNER:
        return None
    path = f"/apis/apps/v1/namespaces/{quote(hpa.namespace, safe='')}/replicasets"
    owned = await _listed(client, "ReplicaSets", path, parse_owned)
    return {each.uid: each.owner.uid if each.owner else "" for each in owned}


async def _pods(client: KubeClient, namespace: str) -> PodIndex:
    pods = PodIndex()
    for pod in await _listed(client, "pods", f"/api/v1/namespaces/{quote(namespace, safe='')}/pods", track_pod):
        pods.apply((pod.namespace, pod.name), None, pod)
    return pods


async def _listed(
    client: KubeClient, what: str, path: str, parse: Callable[[Mapping[str, Any]], _T | None]
) -> Sequence[_T]:
    try:
        return (await list_objects(client, path, parse)).items
    except (StatusError, KubeError, ParseError) as error:
        text = str(error) if isinstance(error, ParseError) else client.describe(error)
        raise click.ClickException(f"the {what} cannot be listed: {text}") from error


async def _read_other_hpas(
    client: KubeClient, hpa: HPA, observer: Observer, apis: Iterable[HPAApi], *, scale_to_zero: bool
) -> list[str]:
    """Give the observer the selectors of the namespace's other HPAs; return a note if they cannot be listed."""
    try:
        for api in apis:
            track = functools.partial(track_hpa, api=api, scale_to_zero=scale_to_zero)
            for other in (await list_objects(client, api.path(hpa.namespace), track)).items:
                if not other.problem and other.key != hpa.key:
                    await observer.note(other)
    except (StatusError, KubeError) as error:
        return [f"not checked for other HPAs that select the same pods: {error}"]
    return []


async def _restore(
    client: ThrottledClient, location: SavedHistoryLocation | None, histories: Histories, hpa: HPA
) -> list[str]:
    """Restore the saved history; return a note if it has no entry for the HPA."""
    where = ""
    if location is not None:
        store = SavedHistoryStore(client, location=location, shard=Shard(), settings=_HISTORY)
        histories.restore(await store.load())
        if histories.of(hpa).recommendations:
            return []
        config_map = f"ConfigMap {location.namespace}/{location.name}"
        where = f" ({config_map} {store.problem})" if store.problem else f" (there is none in {config_map})"
    unknown = "stabilization and rate limits do not know the running autoscaler's recommendations and scale events"
    return [f"computed without history{where}: {unknown}"]
