"""Restricts the queries of a namespace's own rules to the namespace; see Tenant."""

from __future__ import annotations

from cachetools import LRUCache

from adapter.prometheus.errors import PrometheusQueryError
from adapter.prometheus.options import Tenant
from adapter.promql import PromqlError, restrict_query, restrict_selector

# The length of the cached queries. One takes a fraction of a millisecond to restrict; a long one up to 40 ms.
_CACHED_CHARACTERS = 4 * 1024 * 1024


def sent_query(query: str, tenant: Tenant | None) -> str:
    """Return the text that is sent for a query; the query itself, if it is refused."""
    if tenant is None:
        return query
    try:
        return TenantQueries().query(query, tenant)
    except PrometheusQueryError:
        return query


class TenantQueries:
    """Adds the label of a tenant to queries and selectors. The last results are cached."""

    def __init__(self) -> None:
        self._cache: LRUCache[tuple[str, str, str, bool], tuple[int, str | PromqlError]] = LRUCache(
            _CACHED_CHARACTERS, getsizeof=lambda entry: entry[0]
        )

    def query(self, query: str, tenant: Tenant) -> str:
        """Return a query that reads nothing but the tenant's series.

        Raises:
            PrometheusQueryError: it cannot be restricted.
        """
        return self._restricted(query, tenant, is_selector=False)

    def selector(self, selector: str, tenant: Tenant) -> str:
        """Return a selector for `match[]` that finds nothing but the tenant's series; raises as `query`."""
        return self._restricted(selector, tenant, is_selector=True)

    def _restricted(self, text: str, tenant: Tenant, *, is_selector: bool) -> str:
        if not tenant.label:
            return text
        key = (text, tenant.label, tenant.namespace, is_selector)
        entry = self._cache.get(key)
        if entry is None:
            result: str | PromqlError
            try:
                restrict = restrict_selector if is_selector else restrict_query
                result = restrict(text, label=tenant.label, value=tenant.namespace)
            except PromqlError as error:
                result = PromqlError(str(error))  # without the traceback, which would keep the tree in memory
            entry = (len(text) + len(str(result)), result)
            self._cache[key] = entry
        if isinstance(entry[1], PromqlError):
            what = f"{tenant.label}={tenant.namespace!r}"
            raise PrometheusQueryError(f"the query cannot be restricted to {what}: {entry[1]}")
        return entry[1]
