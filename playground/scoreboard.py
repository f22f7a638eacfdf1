"""What the HPAs of a namespace did since one began to look: metrics, replicas, how often scaled up and down, events.

It only watches the API, as anybody could with kubectl, so what it shows is what the cluster holds and not what the
playground believes.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from kube.quantity import Quantity, QuantityError
from kube.store import Key, Store
from playground.views import Deployment, Event, Hpa

if TYPE_CHECKING:
    from kube.client import KubeClient

__all__ = ["Scoreboard", "Tally"]

_EVENTS_KEPT: Final = 50


@dataclass(slots=True)
class Tally:
    """How a Deployment's replicas changed."""

    lowest: int
    highest: int
    ups: int = 0
    downs: int = 0

    @property
    def swung(self) -> bool:
        """Scaled up and down at least once."""
        return self.ups > 0 and self.downs > 0


@dataclass(slots=True)
class Scoreboard:
    """The HPAs of a namespace, their Deployments and events; kept up to date while `run` runs."""

    client: KubeClient
    namespace: str
    tallies: dict[str, Tally] = field(default_factory=dict)
    """By the Deployment's name."""
    largest: dict[str, Quantity] = field(default_factory=dict)
    """The largest value of an HPA's metric, by the HPA's name."""
    events: deque[Event] = field(default_factory=lambda: deque(maxlen=_EVENTS_KEPT))
    """The last ones, in the order in which they came."""
    _hpas: Store[Hpa] = field(init=False)
    _deployments: Store[Deployment] = field(init=False)
    _events: Store[Event] = field(init=False)

    def __post_init__(self) -> None:
        hpas = f"/apis/autoscaling/v2/namespaces/{self.namespace}/horizontalpodautoscalers"
        deployments = f"/apis/apps/v1/namespaces/{self.namespace}/deployments"
        events = f"/api/v1/namespaces/{self.namespace}/events"
        self._hpas = Store(self.client, hpas, Hpa.select, on_change=self._hpa_changed)
        self._deployments = Store(self.client, deployments, Deployment.select, on_change=self._deployment_changed)
        self._events = Store(self.client, events, Event.select, on_change=self._event_came)

    async def run(self) -> None:
        """Watch, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for store in (self._hpas, self._deployments, self._events):
                tasks.create_task(store.run())

    async def wait_synced(self) -> None:
        """Wait until everything was read once."""
        for store in (self._hpas, self._deployments, self._events):
            await store.wait_synced()

    @property
    def hpas(self) -> list[Hpa]:
        """By name."""
        return sorted(self._hpas.list(self.namespace), key=lambda hpa: hpa.name)

    def deployment(self, name: str) -> Deployment | None:
        """As it is now."""
        return self._deployments.get(self.namespace, name)

    @property
    def all_swung(self) -> bool:
        """Whether every HPA has scaled up and down at least once."""
        tallies = [self.tallies.get(hpa.target) for hpa in self.hpas]
        return bool(tallies) and all(tally is not None and tally.swung for tally in tallies)

    def _hpa_changed(self, _key: Key, _old: Hpa | None, new: Hpa | None) -> None:
        if new is None or not new.value:
            return
        try:
            value = Quantity.parse(new.value)
        except QuantityError:
            return
        largest = self.largest.get(new.name)
        if largest is None or value.milli_value() > largest.milli_value():
            self.largest[new.name] = value

    def _deployment_changed(self, key: Key, old: Deployment | None, new: Deployment | None) -> None:
        if new is None:
            return
        tally = self.tallies.setdefault(key[1], Tally(new.replicas, new.replicas))
        tally.lowest = min(tally.lowest, new.replicas)
        tally.highest = max(tally.highest, new.replicas)
        if old is not None:
            tally.ups += new.replicas > old.replicas
            tally.downs += new.replicas < old.replicas

    def _event_came(self, _key: Key, _old: Event | None, new: Event | None) -> None:
        if new is not None:
            self.events.append(new)
