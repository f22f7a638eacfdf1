"""The HPAs of a cluster, of every API that is asked for: one watch each, read as one collection.

Which APIs are asked for is the operator's choice (`--hpa-apis`). An API may be required, then nothing starts before its
HPAs are known, and it is said when the cluster does not serve it. Or it may be welcome: it is taken up as soon as the
cluster serves it, and its absence is no news.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import TypeAlias

from autoscaler.core.model import HPAApi, HPAKey
from autoscaler.objects.hpa import RefusedHPA, TrackedHPA, track_hpa
from kube.client import KubeClient, KubeError
from kube.retries import Backoff
from kube.status import StatusError
from kube.store import Key, Store

_log = logging.getLogger(__name__)

_Tracked: TypeAlias = TrackedHPA | RefusedHPA
# From a second at first to half a minute: a CustomResourceDefinition may be applied right after us, or never.
_LOOK_AGAIN = (1.0, 30.0)


class HPAs:
    """All of them. Reading is synchronous, as a store's is."""

    def __init__(
        self,
        client: KubeClient,
        *,
        required: Iterable[HPAApi],
        welcome: Iterable[HPAApi] = (),
        scale_to_zero: bool,
        on_change: Callable[[HPAKey, _Tracked | None, _Tracked | None], None],
    ) -> None:
        """Nothing is read before `run`.

        Args:
            client: the connection.
            required: the APIs that must be there.
            welcome: the APIs that need not be there.
            scale_to_zero: whether the feature HPAScaleToZero is on.
            on_change: called with (key, old, new) after each change of an HPA, as a store does.
        """

        def changed(api: HPAApi, key: Key, old: _Tracked | None, new: _Tracked | None) -> None:
            on_change(HPAKey(*key, api.group), old, new)

        def store(api: HPAApi) -> Store[_Tracked]:
            select = partial(track_hpa, api=api, scale_to_zero=scale_to_zero)
            return Store(client, api.collection, select, on_change=partial(changed, api))

        self._client = client
        self._required = {api: store(api) for api in required}
        self._welcome = {api: store(api) for api in welcome}
        self._by_group = {api.group: store for api, store in (self._required | self._welcome).items()}
        self._missing: set[HPAApi] = set()

    def get(self, key: HPAKey) -> _Tracked | None:
        """One HPA, or None."""
        store = self._by_group.get(key.group)
        return None if store is None else store.get(key.namespace, key.name)

    def list(self) -> list[_Tracked]:
        """All HPAs."""
        return [each for store in self._by_group.values() for each in store.list()]

    def __len__(self) -> int:
        return sum(map(len, self._by_group.values()))

    @property
    def away(self) -> bool:
        """Whether contact to the API server is lost, as far as the required APIs can tell."""
        return any(store.disconnected for store in self._required.values())

    def stale(self, key: HPAKey) -> bool:
        """Whether what is known of an HPA may be out of date."""
        store = self._by_group.get(key.group)
        return store is not None and store.stale

    @property
    def problem(self) -> str | None:
        """Why not all HPAs of the required APIs are known at the moment; None: they are."""
        for api, store in self._required.items():
            where = "" if api.built_in else f"{api.api_version}: "
            if api in self._missing:
                return f"{where}not served by this cluster"
            if store.problem is not None:
                return f"{where}{store.problem}"
        return None

    async def wait_synced(self) -> None:
        """Return when the HPAs of the required APIs are listed."""
        for store in self._required.values():
            await store.wait_synced()

    async def run(self) -> None:
        """List and watch, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for api, store in self._required.items():
                tasks.create_task(self._follow(api, store, required=True))
            for api, store in self._welcome.items():
                tasks.create_task(self._follow(api, store, required=False))

    async def _follow(self, api: HPAApi, store: Store[_Tracked], *, required: bool) -> None:
        if not api.built_in:
            await self._until_served(api, required=required)
        await store.run()

    async def _until_served(self, api: HPAApi, *, required: bool) -> None:
        """Wait for the API's CustomResourceDefinition."""
        level = logging.WARNING if required else logging.DEBUG
        delays = Backoff(*_LOOK_AGAIN)
        while True:
            try:
                await self._client.get(f"/apis/{api.api_version}")
            except StatusError as error:
                if error.code == 404 and api not in self._missing:
                    self._missing.add(api)
                    advice = "apply manifests/crds; waiting for it"
                    _log.log(level, "this cluster does not serve %s: %s", api.api_version, advice)
            except KubeError as error:
                _log.log(level, "%s: %s; trying again", api.api_version, error)
                level = logging.DEBUG
            else:
                if api in self._missing:
                    self._missing.discard(api)
                    _log.info("%s is served now", api.api_version)
                return
            await asyncio.sleep(delays.next())
