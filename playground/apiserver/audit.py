"""How often what was asked of the API server, for tests that assert what a client does not do."""

from __future__ import annotations

from collections import Counter

from playground.apiserver.identity import User
from playground.apiserver.requests import RequestInfo


class RequestCounts:
    """Counts requests by user, verb and resource ("pods", "deployments/scale"; the path for what is no resource)."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str, str]] = Counter()

    def record(self, user: User, info: RequestInfo) -> None:
        """Count one request, whatever its answer."""
        self._counts[user.name, info.verb, info.counted_as if info.is_resource else info.path] += 1

    def of(self, verb: str, resource: str, *, user: str | None = None) -> int:
        """How many there were, of one user or of all."""
        return sum(
            count for (name, *what), count in self._counts.items() if what == [verb, resource] and user in (None, name)
        )

    def by_user(self, user: str) -> dict[tuple[str, str], int]:
        """All that one user asked: (verb, resource) -> count."""
        return {(verb, resource): count for (name, verb, resource), count in self._counts.items() if name == user}

    def clear(self) -> None:
        """Begin to count anew."""
        self._counts.clear()
