"""Detect HPAs whose status Kubernetes' own controller writes too, and decide when to stop acting on them.

An HPA does not name its controller, so kube-controller-manager reconciles every `autoscaling/v2` HPA unless it is
switched off. Two controllers that scale one target fight, each with a history of its own. The evidence is in the HPA's
`metadata.managedFields`: a writer of the status has an entry there under its own name, with the time of its last write.

Only a write that is new counts: one with a later time than any that this process has seen before. So the entry that
kube-controller-manager left behind does not keep this process from replacing it. Times are only compared with one
another, so no clock matters.

After a while without such a write this process acts again, so that nothing needs to be done here when the other
controller is switched off later.
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
"""Of the event about an HPA that this process stops acting on."""
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
    """Which HPAs another controller writes.

    Args:
        allowed: go on acting on them, and only log it.
        on_write: called for each write of the other controller's.
        on_release: called for each HPA that this process may act on again.
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
        # The latest time of a write, as served; empty: there has been none.
        self._latest: dict[HPAKey, str] = {}
        self._held: dict[HPAKey, float] = {}
        self._seen_at = float("-inf")
        self._key: HPAKey | None = None

    @property
    def problem(self) -> str | None:
        """What is wrong, and what to do; None: no foreign write was seen lately."""
        if self._key is None or self._clock() - self._seen_at > _QUIET_SECONDS:
            return None
        seen = f"{FOREIGN_MANAGER} writes the status of HPAs, too (last seen: {self._key})"
        if self._allowed:
            return f"{seen}, so two controllers scale the same targets; {_ADVICE}"
        return f"{seen}, so this process does not act on those; {_ADVICE}"

    @property
    def held(self) -> int:
        """How many HPAs this process does not act on for this reason."""
        return len(self._held)

    def holds(self, key: HPAKey) -> bool:
        """Whether this process may not act on an HPA."""
        since = self._held.get(key)
        if since is None:
            return False
        if self._clock() - since <= _QUIET_SECONDS:
            return True
        del self._held[key]
        log_text = "%s: %s has not written its status for %d s; acting on it again"
        _log.info(log_text, key, FOREIGN_MANAGER, _QUIET_SECONDS)
        self._on_release(key)
        return False

    def changed(self, key: HPAKey, written: str, *, acting: bool) -> bool:
        """An HPA is new, or has changed.

        Args:
            key: which.
            written: when the other controller last wrote its status, as served; empty: it never did, or its entry is
                gone since others have written every field.
            acting: whether this process acts on it, by its Lease, its mode and the HPA's.

        Returns:
            Whether this process stops acting on the HPA with this.
        """
        before = self._latest.get(key)
        self._latest[key] = max(written, before or "")
        if before is None or written <= before or not acting:
            return False
        is_new, held = self.problem is None, key in self._held
        self._key, self._seen_at = key, self._clock()
        self._on_write()
        if not self._allowed:
            self._held[key] = self._seen_at
        if is_new:
            _log.warning("%s", self.problem)
        return not (self._allowed or held)

    def forget(self, key: HPAKey) -> None:
        """An HPA is gone."""
        self._latest.pop(key, None)
        self._held.pop(key, None)
