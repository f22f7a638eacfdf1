"""Detect HPAs whose status kube-controller-manager writes too, and do not act on them.

An HPA does not name its controller, so kube-controller-manager reconciles every `autoscaling/v2` HPA unless its HPA
controller is switched off. Two controllers on one target conflict, because each has its own history. `managedFields` of
the HPA show it: each writer of the status has an entry there with the time of its last write.

Only writes with a later time than all previously seen ones count. So an old entry of a disabled kube-controller-manager
has no effect. Times are compared only with each other, so clock differences do not matter. Ten minutes after the last
such write this process acts again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

from autoscaler.core.model import HPAKey
from autoscaler.objects.hpa import FOREIGN_MANAGER

_log = logging.getLogger(__name__)

EVENT_REASON: Final = "ForeignController"
"""Of the event about an HPA on which this process stops acting."""
EVENT_MESSAGE: Final = (
    f"{FOREIGN_MANAGER} writes the status of this HPA, so it is not scaled from here until ten minutes have passed "
    "without such a write"
)

_QUIET_SECONDS: Final = 600.0
_ADVICE: Final = (
    f"run {FOREIGN_MANAGER} with --controllers=*,-horizontal-pod-autoscaler-controller, or this one with "
    "--mode=shadow or on HPAs of its own kind"
)


class ForeignWriterDetector:
    """Detects foreign HPAs: those on which another controller acts.

    Args:
        allowed: act on foreign HPAs anyway, and only log them.
        on_write: called for each write of the other controller.
        on_release: called for each HPA that is not foreign any more.
        clock: the current time in seconds; only differences matter.
    """

    def __init__(
        self,
        *,
        allowed: bool,
        on_write: Callable[[], None],
        on_release: Callable[[HPAKey], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._allowed = allowed
        self._on_write = on_write
        self._on_release = on_release
        self._clock = clock
        # The latest time of a write, as served; empty: there was none.
        self._latest: dict[HPAKey, str] = {}
        self._foreign_since: dict[HPAKey, float] = {}
        self._last_write: tuple[HPAKey, float] | None = None

    def __len__(self) -> int:
        """The number of foreign HPAs."""
        return len(self._foreign_since)

    @property
    def problem(self) -> str | None:
        """A warning with advice; None: no recent write of another controller."""
        if self._last_write is None or self._clock() - self._last_write[1] > _QUIET_SECONDS:
            return None
        seen = f"{FOREIGN_MANAGER} writes the status of HPAs, too (last seen: {self._last_write[0]})"
        if self._allowed:
            return f"{seen}, so two controllers scale the same targets; {_ADVICE}"
        return f"{seen}, so this process does not act on those; {_ADVICE}"

    def is_foreign(self, key: HPAKey) -> bool:
        """True if this process must not act on an HPA."""
        since = self._foreign_since.get(key)
        if since is None:
            return False
        if self._clock() - since <= _QUIET_SECONDS:
            return True
        del self._foreign_since[key]
        log_text = "%s: %s has not written its status for %d s; acting on it again"
        _log.info(log_text, key, FOREIGN_MANAGER, _QUIET_SECONDS)
        self._on_release(key)
        return False

    def changed(self, key: HPAKey, written: str, *, acting: bool) -> bool:
        """Process an HPA that was created or changed.

        Args:
            key: the HPA.
            written: the time of the other controller's last write of the status, as served; empty: it never wrote it,
                or others have written every field since.
            acting: this process acts on the HPA, by its Lease and the configured mode.

        Returns:
            True if the HPA has become foreign.
        """
        before = self._latest.get(key)
        self._latest[key] = max(written, before or "")
        if before is None or written <= before or not acting:
            return False
        was_quiet, was_foreign = self.problem is None, key in self._foreign_since
        now = self._clock()
        self._last_write = key, now
        self._on_write()
        if not self._allowed:
            self._foreign_since[key] = now
        if was_quiet:
            _log.warning("%s", self.problem)
        return not (self._allowed or was_foreign)

    def forget(self, key: HPAKey) -> None:
        """Drop the state of an HPA that was deleted."""
        self._latest.pop(key, None)
        self._foreign_since.pop(key, None)
