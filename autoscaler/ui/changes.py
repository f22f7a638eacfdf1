"""Tells open pages which HPAs have changed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from autoscaler.core.model import HPAKey


class Subscription:
    """The HPAs that have changed since they were last taken; of all HPAs, or `only` of one."""

    def __init__(self, only: HPAKey | None = None) -> None:
        self._only = only
        self._keys: set[HPAKey] = set()
        self._changed = asyncio.Event()

    def add(self, key: HPAKey) -> None:
        """Note a changed HPA."""
        if self._only in (None, key):
            self._keys.add(key)
            self._changed.set()

    async def wait(self) -> None:
        """Wait until an HPA has changed that was not taken yet."""
        await self._changed.wait()

    def take(self) -> set[HPAKey]:
        """Return the changed HPAs, and begin anew."""
        taken, self._keys = self._keys, set()
        self._changed.clear()
        return taken


class Changes:
    """Passes changes on to all subscriptions. Without a subscription, publishing costs nothing."""

    def __init__(self) -> None:
        self._subscriptions: set[Subscription] = set()

    def publish(self, key: HPAKey) -> None:
        """Note that an HPA, its status or its decisions have changed, or that it was deleted."""
        for subscription in self._subscriptions:
            subscription.add(key)

    @contextmanager
    def subscribe(self, only: HPAKey | None = None) -> Iterator[Subscription]:
        """Subscribe for the duration of the context, to the changes of all HPAs or of one."""
        subscription = Subscription(only)
        self._subscriptions.add(subscription)
        try:
            yield subscription
        finally:
            self._subscriptions.discard(subscription)
