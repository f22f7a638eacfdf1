"""Save histories for the next process in ConfigMaps, one per shard.

Only the leader saves, at most every 15 seconds and when it ends. The next leader restores before it reconciles. A save
overwrites other changes of the ConfigMap. The last save has the newest of the kept decisions, too, as many as fit.

A failure here never stops the autoscaler. A failed save is logged once, until one succeeds. If the ConfigMaps cannot be
read, the autoscaler starts without saved history. It first retries for a while, because without history it would scale
down early.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypedDict
from urllib.parse import quote

import msgspec

from autoscaler.core.config import MAX_STABILIZATION_WINDOW_MS
from autoscaler.core.model import HPAKey
from autoscaler.loop.clocks import Clocks
from autoscaler.loop.histories import (
    LIMIT_BYTES,
    Histories,
    HistoryEntry,
    SavedHistoryError,
    decode,
    decode_decisions,
    encode,
    encode_decisions,
)
from autoscaler.loop.sharding import Shard
from autoscaler.objects.decoding import convert
from autoscaler.records.record import DecisionRecord
from autoscaler.settings import DEFAULTS, HistorySettings
from kube.api.client import KubeError, KubeUnreachable
from kube.api.objects import ParseError
from kube.api.retries import Backoff
from kube.api.status import StatusError
from kube.controller.flowcontrol import ThrottledClient

_log = logging.getLogger(__name__)

_LABEL = "milliscale.io/memory"
"""Label of each ConfigMap; the value is the name without the shard's number."""
_DATA = "memory.json.gz"
_DECISIONS = "decisions.json.gz"
_NOT_FOUND = 404
_TEMPORARY = (408, 429, 500, 502, 503, 504)


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedHistoryLocation:
    """Namespace and name of the ConfigMaps; with several shards, each shard's number is added to the name."""

    namespace: str
    name: str


class _ConfigMap(msgspec.Struct, rename="camel"):
    metadata: dict[str, Any]
    binary_data: dict[str, str] | None = None


class _ConfigMapList(msgspec.Struct):
    items: list[_ConfigMap] | None = None


class _Times(TypedDict):
    now_ms: int
    monotonic_ms: int


class SavedHistoryStore:
    """Saves and loads histories.

    Args:
        client: the connection; it refuses writes while this process is not the leader.
        location: where the ConfigMaps are.
        shard: the shard of this process.
        longest_window_ms: the stabilization window of the flags; samples older than this and than the API's longest
            window are dropped.
        settings: see HistorySettings.
        clocks: those of the decisions.
    """

    def __init__(
        self,
        client: ThrottledClient,
        *,
        location: SavedHistoryLocation,
        shard: Shard,
        longest_window_ms: int = 0,
        settings: HistorySettings = DEFAULTS.history,
        clocks: Clocks | None = None,
    ) -> None:
        self._client = client
        self._location = location
        self._name = shard.name(location.name)
        self._collection = f"/api/v1/namespaces/{quote(location.namespace, safe='')}/configmaps"
        self._path = f"{self._collection}/{quote(self._name, safe='')}"
        self._longest_window_ms = max(MAX_STABILIZATION_WINDOW_MS, longest_window_ms)
        self._settings = settings
        self._clocks = clocks or Clocks()
        self._saved_changes: tuple[int, bool] | None = None
        self.problem = ""
        """The reason why the last save or load failed; empty: it succeeded."""

    async def load(self) -> dict[HPAKey, HistoryEntry]:
        """Return the saved histories of all shards, since a change of --shards moves HPAs to other shards."""
        return await self._histories(await self._list())

    async def _histories(self, config_maps: Iterable[_ConfigMap]) -> dict[HPAKey, HistoryEntry]:
        saved: dict[HPAKey, HistoryEntry] = {}
        self._saved_changes = None
        for config_map in config_maps:
            try:
                # In a thread, because decoding many HPAs takes long and the Lease must be renewed.
                found = await asyncio.to_thread(decode, _content(config_map, _DATA), **self._times())
            except SavedHistoryError as error:
                name = config_map.metadata.get("name")
                _log.warning("ConfigMap %s/%s is not restored: %s", self._location.namespace, name, error)
                continue
            for key, entry in found.items():
                if key not in saved or _age(saved[key]) < _age(entry):
                    saved[key] = entry
        return saved

    async def restore(
        self,
        histories: Histories,
        *,
        exists: Callable[[HPAKey], bool | None],
        on_decisions: Callable[[list[DecisionRecord]], None] = lambda _: None,
    ) -> None:
        """Add the saved histories, and save them again marked as incomplete.

        Args:
            histories: those of this process.
            on_decisions: called with the saved decisions of a shard, the oldest first.
            exists: returns whether an HPA of this process exists; None: unknown. Then its history is restored unless it
                is too old for any window, so that histories of deleted HPAs expire.
        """
        oldest_ms = self._times()["monotonic_ms"] - self._longest_window_ms

        def is_wanted(key: HPAKey, entry: HistoryEntry) -> bool:
            known = exists(key)
            return entry.latest_ms >= oldest_ms if known is None else known

        config_maps = await self._list()
        for config_map in config_maps:
            with contextlib.suppress(SavedHistoryError):  # of a process that was killed, or is older
                on_decisions(await asyncio.to_thread(decode_decisions, _content(config_map, _DECISIONS)))
        saved = await self._histories(config_maps)
        histories.restore({key: entry for key, entry in saved.items() if is_wanted(key, entry)})
        _log.info("restored the history of %d HPAs", len(histories))
        if len(histories):
            # If this process is killed from here on, the saved history is incomplete.
            await self.save(histories, final=False)

    async def run(self, histories: Histories) -> None:
        """Save periodically, until cancelled."""
        while True:
            await asyncio.sleep(self._settings.save_seconds)
            await self.save(histories, final=False)

    async def save(
        self, histories: Histories, *, final: bool = True, decisions: Callable[[], list[bytes]] = list
    ) -> None:
        """Save, unless nothing has changed since the last save.

        Args:
            histories: all of them.
            final: this process has stopped reconciling, so the saved histories are complete.
            decisions: returns the JSON of the kept decisions, newest first; called in a thread.
        """
        changes = histories.changes, final
        if changes == self._saved_changes:
            return
        content, left_out = await asyncio.to_thread(
            encode, histories.snapshot(), **self._times(), final=final, longest_window_ms=self._longest_window_ms
        )
        data = {_DATA: content}
        left = LIMIT_BYTES - len(content)
        if kept := await asyncio.to_thread(lambda: encode_decisions(decisions(), limit_bytes=left)):
            data[_DECISIONS] = kept
        try:
            await self._put(data)
        except (StatusError, KubeError) as error:
            self._report(f"is not saved: {error}")
            return
        self._saved_changes = changes
        self._report("has only some of the HPAs, the others do not fit; use more --shards" if left_out else "")

    async def _list(self) -> list[_ConfigMap]:
        delays = Backoff(self._settings.retry_seconds / 10, self._settings.retry_seconds)
        query = {"labelSelector": f"{_LABEL}={self._location.name}"}
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._settings.load_seconds):
                while True:
                    try:
                        page = convert(await self._client.get(self._collection, query), _ConfigMapList, "ConfigMapList")
                    except ParseError as error:
                        self._report(f"cannot be read: {error}")
                    except (StatusError, KubeError) as error:
                        self._report(f"cannot be read: {error}")
                        if not _is_temporary(error):
                            return []
                    else:
                        self._report("")
                        return page.items or []
                    await asyncio.sleep(delays.next())
        _log.warning("ConfigMap %s/%s: starting without saved history", self._location.namespace, self._name)
        return []

    async def _put(self, data: dict[str, bytes]) -> None:
        labels = {
            "app.kubernetes.io/name": "milliscale",
            "app.kubernetes.io/component": "autoscaler",
            _LABEL: self._location.name,
        }
        body = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": self._name, "namespace": self._location.namespace, "labels": labels},
            "binaryData": {key: base64.b64encode(content).decode() for key, content in data.items()},
        }
        try:
            await self._client.put(self._path, body)
        except StatusError as error:
            if error.code != _NOT_FOUND:
                raise
            await self._client.post(self._collection, body)

    def _report(self, problem: str) -> None:
        """Log a new problem, or the end of one."""
        if problem == self.problem:
            return
        self.problem = problem
        where = f"ConfigMap {self._location.namespace}/{self._name}"
        if problem:
            _log.warning("%s %s", where, problem)
        else:
            _log.info("%s: no problem any more", where)

    def _times(self) -> _Times:
        now_ms, monotonic_ms = self._clocks.read_ms()
        return {"now_ms": now_ms, "monotonic_ms": monotonic_ms}


def _content(config_map: _ConfigMap, key: str) -> bytes:
    data = (config_map.binary_data or {}).get(key)
    if data is None:
        raise SavedHistoryError(f"it has no binaryData {key!r}")
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError) as error:
        raise SavedHistoryError(f"it is damaged: {error}") from error


def _age(entry: HistoryEntry) -> tuple[int, bool]:
    """Return a sort key: newest last; of equal times, an incomplete history is from a later process that was killed."""
    return entry.latest_ms, not entry.history.complete


def _is_temporary(error: StatusError | KubeError) -> bool:
    return isinstance(error, KubeUnreachable) or (isinstance(error, StatusError) and error.code in _TEMPORARY)
