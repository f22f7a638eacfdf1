"""Where a memory outlives its process: a ConfigMap in the autoscaler's own namespace, one for each shard.

Only the one that leads saves, at most every 15 seconds and when it ends; the next one to lead restores before it takes
its first step. A save is an update of the version that was read, so what somebody else wrote meanwhile is noticed.

Nothing here can stop the autoscaler. What cannot be saved is said once, until it can be again. What cannot be read is
said and done without, but only then: an API server that merely is slow is asked again, since to begin without memory
is to scale down early.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypedDict
from urllib.parse import quote

from autoscaler.core.annotations import MAX_STABILIZATION_WINDOW_MS
from autoscaler.core.model import HPAKey
from autoscaler.loop.histories import Histories, HistoryEntry
from autoscaler.loop.saved_history_format import SavedHistoryError, decode, encode
from autoscaler.loop.sharding import Shard
from autoscaler.loop.throttle import ThrottledClient
from kube.client import KubeError, KubeUnreachable
from kube.retries import Backoff
from kube.status import StatusError

_log = logging.getLogger(__name__)

SAVE_SECONDS = 15.0
"""The time between saves."""

_LABEL = "milliscale.io/memory"
"""On each ConfigMap, with the name that all shards have in common."""
_DATA = "memory.json.gz"
_CONFLICT = 409
_NOT_FOUND = 404
# How long an API server that fails is asked for what was saved.
_LOAD_SECONDS = 30.0
_LOAD_DELAYS = (0.5, 5.0)
_TEMPORARY = (408, 429, 500, 502, 503, 504)


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedHistoryLocation:
    """Where the ConfigMaps are, and what they are called; with sharding, each shard's number is added to the name."""

    namespace: str
    name: str


class _Times(TypedDict):
    now_ms: int
    monotonic_ms: int


class SavedHistoryStore:
    """Saves and restores a memory.

    Args:
        client: the connection; it refuses to write when this process does not lead.
        location: where to.
        shard: which part of the HPAs this process has.
        longest_window_ms: the longest stabilisation window that is in use by flag.
        load_seconds: how long to ask an API server that fails.
        wall_clock: the current time in seconds since the epoch.
        clock: the clock of the histories' times, in seconds.
    """

    def __init__(
        self,
        client: ThrottledClient,
        *,
        location: SavedHistoryLocation,
        shard: Shard,
        longest_window_ms: int = 0,
        load_seconds: float = _LOAD_SECONDS,
        wall_clock: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._location = location
        self._name = shard.name(location.name)
        self._collection = f"/api/v1/namespaces/{quote(location.namespace, safe='')}/configmaps"
        self._path = f"{self._collection}/{quote(self._name, safe='')}"
        self._label = f"ConfigMap {location.namespace}/{self._name}"
        self._longest_window_ms = max(MAX_STABILIZATION_WINDOW_MS, longest_window_ms)
        self._load_seconds = load_seconds
        self._wall_clock = wall_clock
        self._clock = clock
        # None: there is no ConfigMap, as far as is known.
        self._version: str | None = None
        self._saved_changes: tuple[int, bool] | None = None
        self._said = ""

    @property
    def problem(self) -> str:
        """What went wrong with the ConfigMap last; empty: nothing."""
        return self._said

    async def load(self) -> dict[HPAKey, HistoryEntry]:
        """What all shards have saved: after a change of their number an HPA's memory is in another's ConfigMap."""
        saved: dict[HPAKey, HistoryEntry] = {}
        self._version, self._saved_changes = None, None
        for config_map in await self._list():
            metadata = config_map.get("metadata")
            metadata = metadata if isinstance(metadata, dict) else {}
            name = metadata.get("name")
            if name == self._name:
                self._version = metadata.get("resourceVersion")
            try:
                content = _content(config_map)
                # Decoding takes long where there are many HPAs, and the lease has to be renewed meanwhile.
                found = await asyncio.to_thread(decode, content, **self._times())
            except SavedHistoryError as error:
                _log.warning("ConfigMap %s/%s is not restored: %s", self._location.namespace, name, error)
                continue
            for key, remembered in found.items():
                if key not in saved or _age(saved[key]) < _age(remembered):
                    saved[key] = remembered
        return saved

    async def run(self, memory: Histories) -> None:
        """Save from time to time, until cancelled."""
        while True:
            await asyncio.sleep(SAVE_SECONDS)
            await self.save(memory, final=False)

    async def save(self, memory: Histories, *, final: bool = True) -> None:
        """Save, if something has changed since it was last done.

        Args:
            memory: what to save.
            final: whether this process takes no further step: whoever restores it then knows all that was done.
        """
        changes = memory.changes, final
        if changes == self._saved_changes:
            return
        encoded = await asyncio.to_thread(
            encode, memory.snapshot(), **self._times(), final=final, longest_window_ms=self._longest_window_ms
        )
        try:
            await self._write(encoded.content)
        except (StatusError, KubeError) as error:
            self._say(f"is not saved: {error}")
            return
        self._saved_changes = changes
        self._say("holds only part of the HPAs, the rest has no room; use more --shards" if encoded.left_out else "")

    async def _list(self) -> list[dict[str, Any]]:
        delays = Backoff(*_LOAD_DELAYS)
        query = {"labelSelector": f"{_LABEL}={self._location.name}"}
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._load_seconds):
                while True:
                    try:
                        items = (await self._client.get(self._collection, query)).get("items")
                    except (StatusError, KubeError) as error:
                        self._say(f"cannot be read: {error}")
                        if not _is_temporary(error):
                            return []
                    else:
                        self._say("")
                        return [each for each in items if isinstance(each, dict)] if isinstance(items, list) else []
                    await asyncio.sleep(delays.next())
        _log.warning("%s: starting without what was saved", self._label)
        return []

    async def _write(self, content: bytes) -> None:
        try:
            await self._put(content)
        except StatusError as error:
            if error.code not in (_CONFLICT, _NOT_FOUND):
                raise
            # Not by another leader: there is none beside this process. So what is there now makes room.
            await self._find_version()
            await self._put(content)

    async def _put(self, content: bytes) -> None:
        metadata = {
            "name": self._name,
            "namespace": self._location.namespace,
            "labels": {
                "app.kubernetes.io/name": "milliscale",
                "app.kubernetes.io/component": "autoscaler",
                _LABEL: self._location.name,
            },
        }
        body: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": metadata,
            "binaryData": {_DATA: base64.b64encode(content).decode()},
        }
        if self._version is None:
            answer = await self._client.post(self._collection, body)
        else:
            metadata["resourceVersion"] = self._version
            answer = await self._client.put(self._path, body)
        self._version = answer["metadata"]["resourceVersion"]

    async def _find_version(self) -> None:
        try:
            self._version = (await self._client.get(self._path))["metadata"]["resourceVersion"]
        except StatusError as error:
            if error.code != _NOT_FOUND:
                raise
            self._version = None

    def _say(self, problem: str) -> None:
        """Log how it went, if that is news."""
        if problem == self._said:
            return
        self._said = problem
        if problem:
            _log.warning("%s %s", self._label, problem)
        else:
            _log.info("%s: all is well again", self._label)

    def _times(self) -> _Times:
        return {"now_ms": round(self._wall_clock() * 1000), "monotonic_ms": round(self._clock() * 1000)}


def _content(config_map: Mapping[str, Any]) -> bytes:
    data = config_map.get("binaryData")
    text = data.get(_DATA) if isinstance(data, dict) else None
    if not isinstance(text, str):
        raise SavedHistoryError(f"it has no binaryData {_DATA!r}")
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise SavedHistoryError(f"it is damaged: {error}") from error


def _age(remembered: HistoryEntry) -> tuple[int, bool]:
    """Of two of the same time, the one that is not complete comes later: what it lacks is what was done since."""
    return remembered.latest_ms, not remembered.history.complete


def _is_temporary(error: StatusError | KubeError) -> bool:
    return isinstance(error, KubeUnreachable) or (isinstance(error, StatusError) and error.code in _TEMPORARY)
