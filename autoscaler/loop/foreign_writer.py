"""Detect HPAs whose status another controller writes too, and do not act on them.

An HPA does not name its controller, so kube-controller-manager reconciles every `autoscaling/v2` HPA unless its HPA
controller is switched off. Two controllers on one target conflict, because each has its own history. `managedFields` of
the HPA show it: each writer of the status has an entry there with the time of its last write.

Only writes with a later time than all previously seen ones count. So an old entry of a disabled kube-controller-manager
has no effect. Times are compared only with each other, so clock differences do not matter.

A controller writes a status only if it has changed, so it may be there and write nothing. It is gone if it leaves a
status as it is for ten minutes in which the metrics have other values; then this process acts again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from autoscaler.core.model import HPAKey

_log = logging.getLogger(__name__)

EVENT_REASON: Final = "ForeignController"
"""Of the event about an HPA on which this process stops acting."""

_QUIET_SECONDS: Final = 600.0
_ADVICE: Final = (
    "run kube-controller-manager with --controllers=*,-horizontal-pod-autoscaler-controller, or this one with "
    "--mode=shadow or on HPAs of its own kind"
)


def event_message(manager: str) -> str:
    """Return the message of the event about an HPA that a field manager writes."""
    return (
        f"{manager} writes the status of this HPA, so it is not scaled from here until that status has been out of "
        "date for ten minutes"
    )


@dataclass(kw_only=True)
class ForeignWriterDetector:
    """Detects foreign HPAs: those on which another controller acts.

    Args:
        allowed: act on foreign HPAs anyway, and only log them.
        on_write: called for each write of the other controller.
        on_release: called for each HPA that is not foreign any more.
        clock: the current time in seconds; only differences matter.
    """

    allowed: bool
    on_write: Callable[[], None]
    on_release: Callable[[HPAKey], None]
    clock: Callable[[], float] = time.monotonic
    _latest: dict[HPAKey, str] = field(default_factory=dict, init=False)
    """The latest time of a write, as served; empty: there was none."""
    _foreign: dict[HPAKey, float | None] = field(default_factory=dict, init=False)
    """Foreign HPAs; since when their status has been out of date, None: it is not."""
    _last_write: tuple[HPAKey, str, float] | None = field(default=None, init=False)
    """HPA, manager, time."""

    def __len__(self) -> int:
        """The number of foreign HPAs."""
        return len(self._foreign)

    @property
    def problem(self) -> str | None:
        """A warning with advice; None: no foreign HPA, and no recent write of another controller."""
        if self._last_write is None:
            return None
        key, manager, written = self._last_write
        if not self._foreign and self.clock() - written > _QUIET_SECONDS:
            return None
        seen = f"{manager} writes the status of HPAs, too (last seen: {key})"
        if self.allowed:
            return f"{seen}, so two controllers scale the same targets; {_ADVICE}"
        return f"{seen}, so this process does not act on those; {_ADVICE}"

    def is_foreign(self, key: HPAKey) -> bool:
        """True if this process must not act on an HPA."""
        return key in self._foreign

    def decided(self, key: HPAKey, outdated: bool) -> None:
        """Process a decision on an HPA; `outdated`: its status has other values of the metrics."""
        if key not in self._foreign:
            return
        now, since = self.clock(), self._foreign[key]
        if not outdated:
            self._foreign[key] = None
        elif since is None:
            self._foreign[key] = now
        elif now - since > _QUIET_SECONDS:
            del self._foreign[key]
            _log.info("%s: its status has been out of date for %d s; acting on it again", key, _QUIET_SECONDS)
            self.on_release(key)

    def changed(self, key: HPAKey, write: tuple[str, str], *, acting: bool) -> bool:
        """Process an HPA that was created or changed.

        Args:
            key: the HPA.
            write: time and manager of the other controller's last write of the status, as served; empty: it never wrote
                it, or others have written every field since.
            acting: processes of this mode act on the HPA.

        Returns:
            True if the HPA has become foreign.
        """
        written, manager = write
        before = self._latest.get(key)
        self._latest[key] = max(written, before or "")
        if before is None or written <= before or not acting:
            return False
        was_quiet, was_foreign = self.problem is None, key in self._foreign
        self._last_write = key, manager, self.clock()
        self.on_write()
        if not self.allowed:
            self._foreign[key] = None
        if was_quiet:
            _log.warning("%s", self.problem)
        return not (self.allowed or was_foreign)

    def forget(self, key: HPAKey) -> None:
        """Drop the state of an HPA that was deleted."""
        self._latest.pop(key, None)
        self._foreign.pop(key, None)
