"""What the log says of steps that fail: each reason once, and nothing where all fail for one reason.

An HPA that cannot be reconciled fails at every step, and thousands fail together while the API server is away. The
stores say that the API server is away, once for all.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from autoscaler.core.model import HPAKey

_log = logging.getLogger(__name__)

_UNANSWERED_SECONDS = 1.0


class ErrorLog:
    """Says it.

    Args:
        away: whether contact to the API server is known to be lost.
        clock: the current time in seconds; only differences matter.
    """

    def __init__(self, *, away: Callable[[], bool], clock: Callable[[], float] = time.monotonic) -> None:
        self._away = away
        self._clock = clock
        self._said: dict[HPAKey, str] = {}
        self._unanswered_at = float("-inf")
        self._unanswered: set[HPAKey] = set()

    def unanswered(self) -> None:
        """A request got no answer just now."""
        self._unanswered_at = self._clock()

    def ended(self, key: HPAKey, error: str) -> None:
        """A step has ended, with this error or with none (empty); say so if that is news."""
        if not error:
            self._unanswered.discard(key)
        if error and self._without_contact(key):
            _log.debug("%s: %s", key, error)
        elif error != self._said.get(key, ""):
            self._said[key] = error
            if error:
                _log.warning("%s: %s", key, error)
            else:
                _log.info("%s: reconciles again", key)

    def forget(self, key: HPAKey) -> None:
        """An HPA is gone."""
        self._said.pop(key, None)
        self._unanswered.discard(key)

    def _without_contact(self, key: HPAKey) -> bool:
        """Whether an HPA's step failed because the API server is away."""
        if self._away():
            return True
        # A watch may notice a little later than a request; but a second step that fails is not passed over.
        lately = self._clock() - self._unanswered_at < _UNANSWERED_SECONDS
        if not lately or key in self._unanswered:
            return False
        self._unanswered.add(key)
        return True
