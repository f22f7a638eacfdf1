"""The HPAs of a cluster, of every API that is reconciled: one watch each, read as one collection.

The operator chooses the APIs (`--hpa-apis`). Nothing starts before the HPAs of the required APIs are listed, and a
required API that the cluster does not serve is a problem. An optional API is watched as soon as the cluster serves it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from functools import partial

from autoscaler.core.model import HPA, HPAApi, HPAKey
from autoscaler.objects.hpa import track_hpa
from kube.api.client import KubeClient, KubeError
from kube.api.retries import Backoff
from kube.api.status import StatusError
from kube.cache.store import Key, Store

_log = logging.getLogger(__name__)

# The CustomResourceDefinition may be applied soon after the start, or never.
_RETRY_DELAYS = (1.0, 30.0)


class HPAs:
    """The HPAs of all APIs.

    Args:
        required, optional: the APIs that must, and that need not be served.
        scale_to_zero: the feature HPAScaleToZero.
        on_change: called with (key, old, new) after each change of an HPA, as by a store.
    """

    def __init__(
        self,
        client: KubeClient,
        *,
        required: Iterable[HPAApi],
        optional: Iterable[HPAApi] = (),
        scale_to_zero: bool,
        on_change: Callable[[HPAKey, HPA | None, HPA | None], None],
    ) -> None:
        self.changes = 0
        """Grows with each change."""

        def changed(api: HPAApi, key: Key, old: HPA | None, new: HPA | None) -> None:
            self.changes += 1
            on_change(HPAKey(*key, api.group), old, new)

        def store(api: HPAApi) -> Store[HPA]:
            select = partial(track_hpa, api=api, scale_to_zero=scale_to_zero)
            return Store(client, api.collection, select, on_change=partial(changed, api))

        self._client = client
        self._required = {api: store(api) for api in required}
        self._optional = {api: store(api) for api in optional}
        self._by_group = {api.group: store for api, store in (self._required | self._optional).items()}
        self._missing: set[HPAApi] = set()

    def get(self, key: HPAKey) -> HPA | None:
        """Return one HPA, or None."""
        store = self._by_group.get(key.group)
        return None if store is None else store.get(key.namespace, key.name)

    def list(self) -> list[HPA]:
        """Return all HPAs."""
        return [each for store in self._by_group.values() for each in store.list()]

    def __len__(self) -> int:
        return sum(map(len, self._by_group.values()))

    @property
    def disconnected(self) -> bool:
        """True if the watch of a required API is disconnected."""
        return any(store.disconnected for store in self._required.values())

    def synced(self, key: HPAKey) -> bool:
        """True if the API of this HPA is listed, so that an HPA that is not found does not exist."""
        store = self._by_group.get(key.group)
        return store is not None and store.synced

    def stale(self, key: HPAKey) -> bool:
        """True if the watch on the API of this HPA may be out of date, or the HPA cannot be read."""
        store = self._by_group.get(key.group)
        return store is not None and (store.stale or store.is_unknown(key.namespace, key.name))

    @property
    def any_stale(self) -> bool:
        """True if the watch on any API may be out of date."""
        return any(store.stale for store in self._by_group.values())

    @property
    def unknown(self) -> int:
        """The number of HPAs that cannot be read."""
        return sum(store.unknown for store in self._by_group.values())

    @property
    def problem(self) -> str | None:
        """Why the HPAs of the required APIs are not up to date; None: they are."""
        for api, store in self._required.items():
            where = "" if api.built_in else f"{api.api_version}: "
            if api in self._missing:
                return f"{where}not served by this cluster"
            if store.problem is not None:
                return f"{where}{store.problem}"
        return None

    async def wait_synced(self) -> None:
        """Wait until the HPAs of the required APIs are listed."""
        for store in self._required.values():
            await store.wait_synced()

    async def run(self) -> None:
        """List and watch, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for api, store in (self._required | self._optional).items():
                tasks.create_task(self._watch(api, store))

    async def _watch(self, api: HPAApi, store: Store[HPA]) -> None:
        if not api.built_in:
            await self._wait_served(api)
        await store.run()

    async def _wait_served(self, api: HPAApi) -> None:
        """Wait for the API's CustomResourceDefinition."""
        level = logging.WARNING if api in self._required else logging.DEBUG
        delays = Backoff(*_RETRY_DELAYS)
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
