"""Suggestions for misspelled names of metrics: similar names in the discovery of the metrics APIs.

It works beside any adapter and any controller, because discovery is part of the API and readable for all users.
"""

from __future__ import annotations

import asyncio
import contextlib
import difflib
import time
from collections.abc import Awaitable, Callable, Hashable, Iterator
from typing import Any, Final, TypeAlias

from cachetools import TTLCache

from autoscaler.records.record import DecisionRecord, MetricRecord
from kube.aio.single_flight import SingleFlight
from kube.api.client import KubeError
from kube.api.status import StatusError

_CUSTOM: Final = ("/apis/custom.metrics.k8s.io/v1beta2", "/apis/custom.metrics.k8s.io/v1beta1")
_EXTERNAL: Final = ("/apis/external.metrics.k8s.io/v1beta1",)
_VALID_SECONDS: Final = 60.0
_MAX_NAMES: Final = 20_000
"""Of a list; to compare them takes 0.6 s in a thread."""
_MAX_FOUND: Final = 1000
_MAX_LENGTH: Final = 200
"""Characters of a name that is compared."""
_SUGGESTIONS: Final = 3
_CUTOFF: Final = 0.7

Get: TypeAlias = Callable[[str], Awaitable[dict[str, Any]]]
"""Reads a path of the API server. Raises KubeError or StatusError."""


class MetricNames:
    """Reads discovery when it is needed, at most once a minute. `clock` is monotonic, in seconds."""

    def __init__(self, get: Get, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._get = get
        self._lists: TTLCache[tuple[str, ...], tuple[str, ...]] = TTLCache(2, _VALID_SECONDS, timer=clock)
        self._found: TTLCache[Hashable, tuple[str, ...]] = TTLCache(_MAX_FOUND, _VALID_SECONDS, timer=clock)
        self._flights: SingleFlight[Hashable, tuple[str, ...]] = SingleFlight()

    async def suggestions(self, record: DecisionRecord) -> list[tuple[MetricRecord, tuple[str, ...]]]:
        """Return the metrics of a decision that failed, each with similar names, if there are any."""
        found = [(metric, await self.like(metric)) for metric in record.metrics if metric.failure is not None]
        return [(metric, names) for metric, names in found if names]

    async def like(self, metric: MetricRecord) -> tuple[str, ...]:
        """Return the names most like that of a metric, best first; none if it exists, or if discovery fails."""
        if metric.type not in ("Pods", "Object", "External"):
            return ()
        kind = "pod" if metric.described_object is None else metric.described_object.kind.lower()
        key = (metric.type, kind, metric.name)
        if key not in self._found:
            self._found[key] = await self._flights.do(key, lambda: self._close(*key))
        return self._found.get(key, ())

    async def _close(self, type_: str, kind: str, name: str) -> tuple[str, ...]:
        """Compare the names of a list with one."""
        paths = _EXTERNAL if type_ == "External" else _CUSTOM
        listed = self._lists.get(paths)
        if listed is None:
            listed = self._lists[paths] = await self._flights.do(paths, lambda: self._list(paths))
        # "networkpolicies" is the resource of "networkpolicy".
        resource = "" if type_ == "External" else kind[:-1]
        return await asyncio.to_thread(_similar, name, resource, listed)

    async def _list(self, paths: tuple[str, ...]) -> tuple[str, ...]:
        for path in paths:
            with contextlib.suppress(KubeError, StatusError):
                entries = (await self._get(path)).get("resources")
                return tuple(_names(entries))[:_MAX_NAMES]
        return ()


def _names(entries: object) -> Iterator[str]:
    """Yield the names of an APIResourceList: "pods/requests", "services/requests"; "queue" of an external metric."""
    for entry in entries if isinstance(entries, list) else ():
        name = entry.get("name") if isinstance(entry, dict) else None
        if isinstance(name, str) and len(name) <= _MAX_LENGTH:
            yield name


def _similar(name: str, resource: str, listed: tuple[str, ...]) -> tuple[str, ...]:
    """Return names like one, of resources that begin like `resource`; none if the name is among them."""
    pairs = (each.rpartition("/") for each in listed)
    names = list(dict.fromkeys(metric for of, _, metric in pairs if of.startswith(resource)))
    if name in names or len(name) > _MAX_LENGTH:
        return ()
    return tuple(difflib.get_close_matches(name, names, n=_SUGGESTIONS, cutoff=_CUTOFF))
