"""Counts of requests, for tests that assert what a client does not send."""

from __future__ import annotations

from collections import Counter

from playground.apiserver.identity import User
from playground.apiserver.requests import RequestInfo


class RequestCounts:
    """Counts requests by user, verb and resource ("pods", "deployments/scale"; the path for what is no resource)."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str, str]] = Counter()

    def record(self, user: User, info: RequestInfo) -> None:
        """Count a request, whatever its response."""
        self._counts[user.name, info.verb, info.counted_as if info.is_resource else info.path] += 1

    def of(self, verb: str, resource: str, *, user: str | None = None) -> int:
        """Return the number of requests, of one user or of all."""
        return sum(
            count for (name, *what), count in self._counts.items() if what == [verb, resource] and user in (None, name)
        )

    def by_user(self, user: str) -> dict[tuple[str, str], int]:
        """Return the counts of one user by (verb, resource)."""
        return {(verb, resource): count for (name, verb, resource), count in self._counts.items() if name == user}

    def clear(self) -> None:
        """Set all counts to zero."""
        self._counts.clear()
