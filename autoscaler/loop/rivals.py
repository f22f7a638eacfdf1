"""Noticing that Kubernetes' own controller reconciles the same HPAs, which it does unless it is switched off.

Two controllers that scale one target fight, each with a memory of its own, and neither says so. What tells is the HPAs'
`metadata.managedFields`: who writes a status has an entry there, under its own name, with the time of its last write.
So an HPA whose entry of kube-controller-manager becomes newer while we act was written by it meanwhile. Times are only
compared with one another, so no clock matters, and what it wrote before we acted does not.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final

from autoscaler.objects.watched import RIVAL

if TYPE_CHECKING:
    from collections.abc import Callable

    from autoscaler.core.model import HPAKey

__all__ = ["Rivals"]

_log = logging.getLogger(__name__)

_QUIET_SECONDS: Final = 600.0
"""After so long without such a write it is over."""
_ADVICE: Final = (
    "so two controllers scale the same targets; run kube-controller-manager with "
    "--controllers=*,-horizontal-pod-autoscaler-controller, or this one with --mode=shadow or on HPAs of its own kind"
)


class Rivals:
    """Notices it.

    Args:
        on_write: called for each write of the other's.
        clock: the current time in seconds; only differences matter.
    """

    def __init__(self, *, on_write: Callable[[], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._on_write = on_write
        self._clock = clock
        self._seen_at = float("-inf")
        self._key: HPAKey | None = None

    @property
    def problem(self) -> str | None:
        """What is wrong, and what to do; None: nothing was seen lately."""
        if self._key is None or self._clock() - self._seen_at > _QUIET_SECONDS:
            return None
        return f"{RIVAL} writes the status of HPAs, too (last seen: {self._key}), {_ADVICE}"

    def changed(self, key: HPAKey, old: str, new: str) -> None:
        """An HPA that we act on has changed: `rival_time` before and now."""
        if new <= old:
            return
        news = self.problem is None
        self._key, self._seen_at = key, self._clock()
        self._on_write()
        if news:
            _log.warning("%s", self.problem)
