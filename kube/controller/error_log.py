"""Log the errors of a controller's objects: each once until it changes, and none while the API server is disconnected.

An object's error usually repeats at every sync. While the API server is unavailable all objects have the same error,
which the stores log once.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Hashable

_log = logging.getLogger(__name__)

_NO_RESPONSE_SECONDS = 1.0


class ErrorLog:
    """Logs each object's error once, until it changes. A key's text names the object.

    Args:
        disconnected: True: the stores have lost, and logged, the connection to the API server.
        clock: the current time in seconds; only differences matter.
    """

    def __init__(self, *, disconnected: Callable[[], bool], clock: Callable[[], float] = time.monotonic) -> None:
        self._disconnected = disconnected
        self._clock = clock
        self._logged: dict[Hashable, str] = {}
        self._no_response_at = float("-inf")
        self._skipped: set[Hashable] = set()

    def no_response(self) -> None:
        """Record that a request got no response."""
        self._no_response_at = self._clock()

    def reconciled(self, key: Hashable, error: str | None) -> None:
        """Record the end of a reconciliation, with or without an error."""
        if error is None:
            self._skipped.discard(key)
            if self._logged.pop(key, None) is not None:
                _log.info("%s: reconciles again", key)
        elif self._is_connection_lost(key):
            _log.debug("%s: %s", key, error)
        elif error != self._logged.get(key):
            self._logged[key] = error
            _log.warning("%s: %s", key, error)

    def forget(self, key: Hashable) -> None:
        """Drop the state of an object that was deleted."""
        self._logged.pop(key, None)
        self._skipped.discard(key)

    def _is_connection_lost(self, key: Hashable) -> bool:
        """True if the stores log that the API server is disconnected, or will do so in a moment."""
        if self._disconnected():
            return True
        # A watch may notice it later than a request. While that is possible, only an object's first error is skipped.
        lately = self._clock() - self._no_response_at < _NO_RESPONSE_SECONDS
        if not lately or key in self._skipped:
            return False
        self._skipped.add(key)
        return True
