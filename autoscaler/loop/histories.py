"""The histories of all HPAs: recent recommendations and scale events, on which stabilization and rate limits are based.

They are in memory; `autoscaler.loop.saved_history` saves them for the next process, which would otherwise scale down
early.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from msgspec.structs import replace

from autoscaler.core.history import LONG_AGO_MS, History
from autoscaler.core.model import HPA, HPAKey


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """The history of the HPA with this uid; a recreated HPA of the same name has another uid."""

    uid: str
    history: History

    @property
    def latest_ms(self) -> int:
        """The latest time in the history, by the history's clock; LONG_AGO_MS: it is empty."""
        history = self.history
        events = (*history.scale_up_events, *history.scale_down_events)
        times = (*(each.time_ms for each in history.recommendations), *(each.time_ms for each in events))
        return max(times, default=LONG_AGO_MS)


class Histories:
    """The history of each HPA."""

    def __init__(self) -> None:
        self._entries: dict[HPAKey, HistoryEntry] = {}
        self.changes = 0
        """Grows with each change."""

    def __len__(self) -> int:
        return len(self._entries)

    def of(self, hpa: HPA) -> History:
        """Return the history of an HPA; empty for a new one, even if a deleted HPA had the same name."""
        found = self._entries.get(hpa.key)
        return found.history if found is not None and found.uid == hpa.uid else History()

    def replace(self, hpa: HPA, history: History) -> None:
        """Replace the history of an HPA."""
        self._set(hpa.key, HistoryEntry(hpa.uid, history))

    def forget(self, key: HPAKey) -> None:
        """Drop the history of an HPA that was deleted."""
        if self._entries.pop(key, None) is not None:
            self.changes += 1

    def snapshot(self) -> dict[HPAKey, HistoryEntry]:
        """Return a copy of all entries."""
        return dict(self._entries)

    def restore(self, saved: Mapping[HPAKey, HistoryEntry]) -> None:
        """Merge saved histories, after another process may have acted.

        Of two histories of an HPA the one with the latest time is kept. Entries that are not replaced become
        incomplete: the other process may have ended without saving.
        """
        for key, entry in list(self._entries.items()):
            if entry.history.complete:
                self._set(key, HistoryEntry(entry.uid, replace(entry.history, complete=False)))
        for key, entry in saved.items():
            before = self._entries.get(key)
            if before is None or before.latest_ms < entry.latest_ms:
                self._set(key, entry)

    def _set(self, key: HPAKey, entry: HistoryEntry) -> None:
        self._entries[key] = entry
        self.changes += 1
