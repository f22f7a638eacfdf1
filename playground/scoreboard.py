"""The HPAs of a namespace since the start: metrics, replicas, numbers of scale-ups and scale-downs, events.

All from watches of the API, as kubectl would show it.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from kube.api.client import KubeClient
from kube.cache.store import Key, Store
from kube.values.quantity import Quantity, QuantityError
from playground.views import Deployment, Event, Hpa

_EVENTS_KEPT: Final = 50


@dataclass(slots=True)
class Tally:
    """Counts of a Deployment and the largest value of its HPA's metric: a quantity, or "" without a value."""

    ups: int = 0
    downs: int = 0
    lowest: int = 0
    highest: int = 0
    largest: str = ""

    @property
    def swung(self) -> bool:
        """True if it has scaled up and down at least once."""
        return self.ups > 0 and self.downs > 0


@dataclass(frozen=True, slots=True)
class Standing:
    """An HPA, its Deployment, and its tally."""

    hpa: Hpa
    deployment: Deployment
    tally: Tally


class Scoreboard:
    """Watches the HPAs of a namespace, their Deployments and events while `run` runs."""

    def __init__(self, client: KubeClient, namespace: str, *, swinging: Collection[str]) -> None:
        """`swinging` are the names of the HPAs that are to scale up and down."""
        self._namespace = namespace
        self._swinging = swinging
        self._tallies: defaultdict[str, Tally] = defaultdict(Tally)  # by the Deployment's name
        hpas = f"/apis/autoscaling/v2/namespaces/{namespace}/horizontalpodautoscalers"
        deployments = f"/apis/apps/v1/namespaces/{namespace}/deployments"
        events = f"/api/v1/namespaces/{namespace}/events"
        self._hpas = Store(client, hpas, Hpa.select, on_change=self._hpa_changed)
        self._deployments = Store(client, deployments, Deployment.select, on_change=self._deployment_changed)
        self._events = Store(client, events, Event.select, on_change=self._event_came)
        self.events: deque[Event] = deque(maxlen=_EVENTS_KEPT)
        """The last events, in order of arrival."""
        self.events_seen = 0
        """The number of all events, without repeated failures."""

    async def run(self) -> None:
        """Watch until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for store in (self._hpas, self._deployments, self._events):
                tasks.create_task(store.run())

    async def wait_synced(self) -> None:
        """Wait until everything is listed."""
        for store in (self._hpas, self._deployments, self._events):
            await store.wait_synced()

    @property
    def standings(self) -> list[Standing]:
        """The standings of HPAs whose Deployment exists, by name."""
        found = []
        for hpa in sorted(self._hpas.list(self._namespace), key=lambda hpa: hpa.name):
            deployment = self._deployments.get(self._namespace, hpa.target)
            if deployment is not None:
                found.append(Standing(hpa, deployment, self._tallies[hpa.target]))
        return found

    @property
    def swinging(self) -> list[Standing]:
        """The standings of the HPAs that are to scale up and down."""
        return [standing for standing in self.standings if standing.hpa.name in self._swinging]

    @property
    def all_swung(self) -> bool:
        """True if each of them has scaled up and down."""
        swung = [standing.tally.swung for standing in self.swinging]
        return len(swung) == len(self._swinging) and all(swung)

    def _hpa_changed(self, _key: Key, _old: Hpa | None, new: Hpa | None) -> None:
        if new is not None and new.value:
            tally = self._tallies[new.target]
            if _milli(new.value) > _milli(tally.largest):
                tally.largest = new.value

    def _deployment_changed(self, key: Key, old: Deployment | None, new: Deployment | None) -> None:
        if new is None:
            return
        tally = self._tallies[key[1]]
        if old is None:
            tally.lowest = tally.highest = new.spec.replicas
        else:
            tally.ups += new.spec.replicas > old.spec.replicas
            tally.downs += new.spec.replicas < old.spec.replicas
            tally.lowest = min(tally.lowest, new.spec.replicas)
            tally.highest = max(tally.highest, new.spec.replicas)

    def _event_came(self, _key: Key, old: Event | None, new: Event | None) -> None:
        # A failure is repeated with each reconciliation.
        if new is not None and (old is None or not new.reason.startswith("Failed")):
            self.events.append(new)
            self.events_seen += 1


def _milli(quantity: str) -> int:
    try:
        return Quantity.parse(quantity).milli_value()
    except QuantityError:
        return -1
