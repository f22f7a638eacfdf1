"""What the autoscaler remembers of every HPA, from step to step: recent recommendations and scale events.

Stabilisation and rate limits look back at it, so losing it means to scale down early. It lives in this process, which
saves it from time to time (`autoscaler.loop.saved_history_format`) for the next one to restore.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from autoscaler.core.history import LONG_AGO_MS, History
from autoscaler.core.model import HPA, HPAKey


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """The history of the HPA that had this uid; one made anew under the same name has another."""

    uid: str
    history: History

    @property
    def latest_ms(self) -> int:
        """When something was last added, by the history's clock; LONG_AGO_MS: nothing ever was."""
        history = self.history
        scales = (*history.scale_up_events, *history.scale_down_events)
        times = (*(each.time_ms for each in history.recommendations), *(each.time_ms for each in scales))
        return max(times, default=LONG_AGO_MS)


class Histories:
    """The histories of all HPAs."""

    def __init__(self) -> None:
        self._remembered: dict[HPAKey, HistoryEntry] = {}
        self._changes = 0

    @property
    def changes(self) -> int:
        """How often something has changed, so that one who saves it sees whether there is anything new."""
        return self._changes

    def __len__(self) -> int:
        return len(self._remembered)

    def of(self, hpa: HPA) -> History:
        """What is remembered of an HPA; nothing if it is new, also where it has the name of an earlier one."""
        found = self._remembered.get(hpa.key)
        return found.history if found is not None and found.uid == hpa.uid else History()

    def keep(self, hpa: HPA, history: History) -> None:
        """Remember this of an HPA from now on."""
        self._set(hpa.key, HistoryEntry(hpa.uid, history))

    def forget(self, key: HPAKey) -> None:
        """An HPA is gone."""
        if self._remembered.pop(key, None) is not None:
            self._changes += 1

    def snapshot(self) -> dict[HPAKey, HistoryEntry]:
        """All that is remembered now; a copy that does not change."""
        return dict(self._remembered)

    def restore(self, saved: Mapping[HPAKey, HistoryEntry]) -> None:
        """Take over what another process, or this one at another time, has saved; another may have acted meanwhile.

        Of two memories of one HPA the one that was added to later wins: whoever held the lease last knows best. What is
        known here already is not complete any more, unless it is replaced: who acted since may not have saved.
        """
        for key, known in list(self._remembered.items()):
            if known.history.complete:
                self._set(key, HistoryEntry(known.uid, replace(known.history, complete=False)))
        for key, remembered in saved.items():
            before = self._remembered.get(key)
            if before is None or before.latest_ms < remembered.latest_ms:
                self._set(key, remembered)

    def _set(self, key: HPAKey, remembered: HistoryEntry) -> None:
        self._remembered[key] = remembered
        self._changes += 1
