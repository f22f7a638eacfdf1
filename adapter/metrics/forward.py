"""External metrics that no rule makes, forwarded to other adapters: KEDA, Datadog, or a prometheus-adapter.

A cluster has one APIService for external.metrics.k8s.io, and therefore one server. With `forwardExternal` this adapter
is that server: it serves the metrics of its rules and forwards others. It authorizes each request itself; the other
adapter sees the identity of this adapter and must allow it to list external metrics.

The name of a metric decides which adapter has it. Each adapter has its own deadline, connections, cache and list, so
one that is slow or unreachable affects only its own metrics.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import operator
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

import aiohttp

from adapter.metrics.forward_adapter import OtherAdapter
from adapter.rules import ForwardOptions
from adapter.settings import DEFAULTS, ForwardSettings


class Forwarder:
    """The other adapters, if any, of one version of the rules. Use as an async context manager.

    Args:
        options: the other adapters; a metric belongs to the first one that takes its name.
        relist_interval: of their lists of metrics, in seconds.
        ttl: of cached values, in seconds; 0 caches nothing.
        session: an HTTP session to share; None: each adapter opens its own.
        settings: see ForwardSettings.
        clock: returns seconds since the epoch.
    """

    def __init__(
        self,
        options: tuple[ForwardOptions, ...],
        *,
        relist_interval: float,
        ttl: float = 0.0,
        session: aiohttp.ClientSession | None = None,
        settings: ForwardSettings = DEFAULTS.forward,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._options = options
        self.adapters = tuple(
            OtherAdapter(
                one,
                takes=lambda metric, index=index: self._index(metric) == index,  # type: ignore[misc]
                relist_interval=relist_interval,
                ttl=ttl,
                max_cache_bytes=settings.cache_bytes // len(options),
                session=session,
                settings=settings,
                clock=clock,
            )
            for index, one in enumerate(options)
        )
        self._open = contextlib.AsyncExitStack()
        self._listed: tuple[tuple[str, ...], ...] = ()
        self._names: tuple[str, ...] = ()

    async def __aenter__(self) -> Self:
        for adapter in self.adapters:
            await self._open.enter_async_context(adapter)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._open.aclose()

    @property
    def names(self) -> tuple[str, ...]:
        """The metrics that the other adapters last listed, sorted; the same tuple until they change.

        A metric that an adapter lists is left out if requests for it go to another one.
        """
        listed = tuple(adapter.names for adapter in self.adapters)
        if len(listed) != len(self._listed) or not all(map(operator.is_, listed, self._listed)):
            self._listed = listed
            self._names = tuple(sorted(itertools.chain.from_iterable(listed)))
        return self._names

    def adapter_for(self, metric: str) -> OtherAdapter | None:
        """Return the adapter that requests for a metric are forwarded to, whether it lists it or not."""
        index = self._index(metric)
        return self.adapters[index] if index is not None else None

    def _index(self, metric: str) -> int | None:
        return next((index for index, one in enumerate(self._options) if one.takes(metric)), None)

    def states(self) -> list[tuple[str, bool]]:
        """Return the name of each adapter, and whether its last list succeeded."""
        return [(one.options.name, not one.problem) for one in self.adapters if one.tried.is_set()]

    async def carry_over(self, previous: Forwarder) -> None:
        """Start with the names that another version's forwarder has listed of the same adapters."""
        for adapter, other in itertools.product(self.adapters, previous.adapters):
            await adapter.carry_over(other)

    async def wait_tried(self) -> None:
        """Wait until each adapter has been listed, with success or not, by this version or the one before."""
        for adapter in self.adapters:
            await adapter.tried.wait()

    async def run(self) -> None:
        """Keep the lists of names up to date, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for adapter in self.adapters:
                tasks.create_task(adapter.run(), name=f"list {adapter.options}")
