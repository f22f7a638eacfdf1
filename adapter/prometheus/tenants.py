"""Restricts the queries of a namespace's own rules to the namespace; see Tenant."""

from __future__ import annotations

import asyncio

from adapter.caches import CacheShares
from adapter.prometheus.errors import PrometheusQueryError
from adapter.prometheus.options import Tenant
from adapter.promql import PromqlError, restrict_query, restrict_selector

# The length of the cached queries.
_CACHED_CHARACTERS = 4 * 1024 * 1024
# Shorter ones take a millisecond or two to restrict, long ones up to 40: those are restricted in a thread.
_SHORT = 100
_Key = tuple[str, str, str, bool]


def sent_query(query: str, tenant: Tenant | None) -> str:
    """Return the text that is sent for a query; the query itself, if it is refused."""
    if tenant is None or not tenant.label:
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
