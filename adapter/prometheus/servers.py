"""The Prometheus servers that rules name, each with its own client, opened for its first query.

All queries go through here, so nothing that comes from a rule with a Tenant reads more than the tenant may.

A rule has the definition of its server, not only the name, so a request keeps its server across a reload of the rules
file. After a reload, clients of removed definitions are closed once no request uses them.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import math
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from adapter.caches import CacheShares
from adapter.prometheus.client import PrometheusClient
from adapter.prometheus.errors import PrometheusQueryError
from adapter.prometheus.long_responses import MemoryBudget
from adapter.prometheus.options import DEFAULT_DESTINATION, Destination, PrometheusOptions, Tenant
from adapter.prometheus.results import RangeSeries, Vector
from adapter.prometheus.series import Series
from adapter.promql import PromqlError, restrict_query, restrict_selector
from adapter.settings import DEFAULTS, PrometheusSettings
from kube.aio.fairness import for_namespace

# The length of the cached queries.
_CACHED_CHARACTERS = 4 * 1024 * 1024
# Shorter ones take a millisecond or two to restrict, long ones up to 40: those are restricted in a thread.
_SHORT = 100
_Key = tuple[str, str, str, bool]


@dataclass(slots=True)
class _Entry:
    client: PrometheusClient
    users: int = 0


class PrometheusServers:
    """Queries the Prometheus of each rule. Use as an async context manager."""

    def __init__(
        self,
        default: PrometheusOptions,
        *,
        observe: Callable[[str, str, float], None] = lambda *_: None,
        on_gone: Callable[[str], None] = lambda _: None,
        budget: MemoryBudget | None = None,
        settings: PrometheusSettings = DEFAULTS.prometheus,
    ) -> None:
        """Open no connection yet.

        `observe` is called after each request with server, path and seconds, `on_gone` with the name of each server
        that is closed. `budget` is for the long responses of all servers together.
        """
        self._on_gone = on_gone
        self._budget = budget or MemoryBudget()
        self._settings = settings
        self._default = default
        self._tenants = TenantQueries()
        self._observe = observe
        self._entries: dict[PrometheusOptions, _Entry] = {}
        self._wanted: frozenset[PrometheusOptions] = frozenset((default,))

    async def __aenter__(self) -> Self:
        """Open the default server's client.

        Raises:
            PrometheusConfigError: one of its files cannot be used.
        """
        await self._entry(self._default).client.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        entries, self._entries = list(self._entries.values()), {}
        for entry in entries:
            await entry.client.__aexit__(None, None, None)

    async def close_others(self, servers: Iterable[PrometheusOptions]) -> None:
        """Close all clients except the default's and those of these servers, once no request uses them."""
        self._wanted = frozenset((self._default, *servers))
        for options in [options for options in self._entries if options not in self._wanted]:
            await self._close_if_idle(options)

    async def instant(
        self, query: str, *, deadline: float = math.inf, destination: Destination = DEFAULT_DESTINATION
    ) -> Vector:
        """Query the server of a destination, as its tenant may; see PrometheusClient.instant."""
        query = await self._permitted(query, destination)
        async with self._client(destination) as client:
            return await client.instant(query, deadline=deadline, destination=destination)

    async def range(
        self, query: str, *, start: int, end: int, step: int, destination: Destination = DEFAULT_DESTINATION
    ) -> list[RangeSeries]:
        """Query the server of a destination over a range, as its tenant may; see PrometheusClient.range."""
        query = await self._permitted(query, destination)
        async with self._client(destination) as client:
            return await client.range(query, start=start, end=end, step=step, destination=destination)

    async def series(
        self, selector: str, *, start: float, end: float, destination: Destination = DEFAULT_DESTINATION
    ) -> tuple[Series, ...]:
        """List series on the server of a destination, as its tenant may; see PrometheusClient.series."""
        selector = await self._permitted(selector, destination, is_selector=True)
        async with self._client(destination) as client:
            return await client.series(selector, start=start, end=end, destination=destination)

    async def _permitted(self, query: str, destination: Destination, *, is_selector: bool = False) -> str:
        """Return the query to send: for a tenant, one that reads nothing but the tenant's series.

        Raises:
            PrometheusQueryError: it cannot be restricted, or the destination is none that a tenant may have. Headers
                could name another tenant of the server, such as X-Scope-OrgID of Mimir.
        """
        if not destination.tenant.namespace:
            return query
        if destination.headers:
            raise PrometheusQueryError("the rules of a namespace cannot set headers")
        if destination.server is not None and not destination.server.tenants:
            why = f"prometheusServers.{destination.server.name} has no `tenants: true`"
            raise PrometheusQueryError(f"the rules of a namespace cannot use this server: {why}")
        return await self._tenants.restricted(query, destination.tenant, is_selector=is_selector)

    @contextlib.asynccontextmanager
    async def _client(self, destination: Destination) -> AsyncIterator[PrometheusClient]:
        """Use the client for a destination, and keep it open until the end of the context."""
        options, tenant = destination.server or self._default, destination.tenant
        entry = self._entry(options)
        entry.users += 1
        try:
            with for_namespace(tenant.namespace) if tenant.namespace else contextlib.nullcontext():
                yield entry.client
        finally:
            entry.users -= 1
            if options is not self._default and options not in self._wanted:
                await self._close_if_idle(options)

    def _entry(self, options: PrometheusOptions) -> _Entry:
        found = self._entries.get(options)
        if found is None:
            observe = functools.partial(self._observe, options.name)
            client = PrometheusClient(options, observe=observe, budget=self._budget, settings=self._settings)
            found = self._entries[options] = _Entry(client)
        return found

    async def _close_if_idle(self, options: PrometheusOptions) -> None:
        entry = self._entries.get(options)
        if entry is not None and entry.users == 0:
            del self._entries[options]
            await entry.client.__aexit__(None, None, None)
            if all(one.name != options.name for one in self._entries):
                self._on_gone(options.name)


def sent_query(query: str, tenant: Tenant) -> str:
    """Return the text that is sent for a query; the query itself, if it is refused."""
    if not tenant.label:
        return query
    result = _restricted((query, tenant.label, tenant.namespace, False))
    return query if isinstance(result, PromqlError) else result


class TenantQueries:
    """Adds the label of a tenant to queries and selectors. Each namespace has a share of the cached results."""

    def __init__(self) -> None:
        self._cache: dict[_Key, str | PromqlError] = {}
        self._shares: CacheShares[_Key] = CacheShares(_CACHED_CHARACTERS, of_namespaces=_CACHED_CHARACTERS)

    async def restricted(self, text: str, tenant: Tenant, *, is_selector: bool) -> str:
        """Return a query, or a selector for `match[]`, that reads nothing but the tenant's series.

        Raises:
            PrometheusQueryError: it cannot be restricted.
        """
        if not tenant.label:
            return text
        key = (text, tenant.label, tenant.namespace, is_selector)
        result = self._cache.get(key)
        if result is None:
            result = _restricted(key) if len(text) <= _SHORT else await asyncio.to_thread(_restricted, key)
        self._put(key, result, tenant.namespace)
        if isinstance(result, PromqlError):
            what = f"{tenant.label}={tenant.namespace!r}"
            raise PrometheusQueryError(f"the query cannot be restricted to {what}: {result}")
        return result

    def _put(self, key: _Key, result: str | PromqlError, namespace: str) -> None:
        size = len(key[0]) + len(str(result))
        self._shares.discard(namespace, key)
        while (evicted := self._shares.to_evict(namespace, size)) is not None:
            self._shares.discard(evicted[2], evicted)
            del self._cache[evicted]
        self._cache[key] = result
        self._shares.add(namespace, key, size)


def _restricted(key: _Key) -> str | PromqlError:
    text, label, namespace, is_selector = key
    try:
        return (restrict_selector if is_selector else restrict_query)(text, label=label, value=namespace)
    except PromqlError as error:
        return PromqlError(str(error))  # without the traceback, which would keep the tree in memory
