"""A queue of objects that namespaces share fairly: no namespace with many or slow objects delays those of others."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from kube.aio.tasks import Pace

K = TypeVar("K")


class FairQueue(Generic[K]):
    """Keys, each in a namespace; a key is in the queue once.

    Urgent keys come before all others. Among the namespaces that have such keys, the one that was served longest ago
    comes first; one key of a namespace is handed out at a time.
    """

    def __init__(self) -> None:
        self._urgent: dict[str, dict[K, None]] = {}
        self._others: dict[str, dict[K, None]] = {}
        self._served: set[str] = set()
        self._changed = asyncio.Event()

    def add(self, namespace: str, key: K, *, urgent: bool) -> None:
        """Add a key; if it waits already, it becomes urgent with `urgent`."""
        if urgent:
            self._discard(self._others, namespace, key)
            self._urgent.setdefault(namespace, {})[key] = None
        elif key not in self._urgent.get(namespace, ()):
            self._others.setdefault(namespace, {})[key] = None
        self._changed.set()

    async def get(self) -> tuple[str, K]:
        """Wait for a key of a namespace that has none handed out; call `done` with the namespace afterwards."""
        while True:
            for level in (self._urgent, self._others):
                for namespace in level:
                    if namespace not in self._served:
                        return namespace, self._take(level, namespace)
            self._changed.clear()
            await self._changed.wait()

    async def serve(self, work: Callable[[K], Awaitable[None]]) -> None:
        """Work on one key after the other, until cancelled; yield to the event loop also if the work does not."""
        pace = Pace()
        while True:
            namespace, key = await self.get()
            try:
                await work(key)
            finally:
                self.done(namespace)
            await pace.pause()

    def done(self, namespace: str) -> None:
        """Let the next key of a namespace be handed out."""
        self._served.discard(namespace)
        self._changed.set()

    def _take(self, level: dict[str, dict[K, None]], namespace: str) -> K:
        keys = level.pop(namespace)
        key = next(iter(keys))
        del keys[key]
        if keys:
            level[namespace] = keys  # behind the other namespaces
        self._served.add(namespace)
        return key

    def _discard(self, level: dict[str, dict[K, None]], namespace: str, key: K) -> None:
        keys = level.get(namespace, {})
        if keys.pop(key, True) is None and not keys:
            del level[namespace]
