"""The namespaces whose HPAs a user may see."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

from cachetools import LRUCache

from kube.aio.fairness import FairSemaphore
from kube.aio.tasks import Pace, all_of
from kube.api.status import forbidden
from kube.security.authentication import User
from kube.security.authorization import Authorizer
from kube.security.request_info import RequestInfo

GroupNamespace: TypeAlias = tuple[str, str]
"""(API group, namespace)."""

_CONCURRENT_REVIEWS: Final = 10  # of all users, who are served round robin
_REVIEWS_PER_SECOND: Final = 20  # of one user
_MAX_VIEWS: Final = 100


@dataclass(slots=True)
class _View:
    """What a user may see."""

    decided: dict[GroupNamespace, bool]
    until: float
    """On the clock."""


class NamespaceAccess:
    """Decides which namespaces a user may see: those in which the user may `get` HPAs.

    A user with that right in all namespaces needs one SubjectAccessReview. Others need one for each namespace. The
    authorizer caches them; in a cluster with more than 200 namespaces they are cached longer, so that an open page does
    not cause more than 20 reviews a second.

    Args:
        authorizer: reviews access; None: on loopback, where everyone may see everything.
        clock: counts in seconds.
    """

    def __init__(self, authorizer: Authorizer | None, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._authorizer = authorizer
        self._clock = clock
        self._reviews = FairSemaphore(_CONCURRENT_REVIEWS)
        self._views: LRUCache[User, _View] = LRUCache(_MAX_VIEWS)

    async def visible(self, user: User | None, among: Iterable[GroupNamespace]) -> frozenset[GroupNamespace]:
        """Return those of the namespaces in which the user may `get` HPAs of that API group.

        Raises:
            StatusError: 500 or 503 if the API server did not decide.
        """
        authorizer, requested = self._authorizer, frozenset(among)
        if authorizer is None:
            return requested
        if user is None:
            return frozenset()
        groups = {group for group, _ in requested}
        whole = {group for group in groups if await authorizer.allows(user, _right(group, ""))}
        single = [each for each in requested if each[0] not in whole]
        decided = await self._decided(authorizer, user, single) if single else {}
        return frozenset(each for each in requested if each[0] in whole or decided[each])

    async def require(self, user: User | None, group: str, namespace: str) -> None:
        """Check that the user may see a namespace.

        Raises:
            StatusError: 403 if not, with Kubernetes' message; 500 or 503 if the API server did not decide.
        """
        await self._require(user, _right(group, namespace))

    async def require_path(self, user: User | None, path: str) -> None:
        """Check that the user may `get` a path outside of the API. Raises StatusError as `require`."""
        await self._require(user, RequestInfo(verb="get", path=path))

    async def _require(self, user: User | None, right: RequestInfo) -> None:
        if self._authorizer is None:
            return
        if user is None:
            raise forbidden("the user is not known")
        await self._authorizer.authorize(user, right)

    async def _decided(
        self, authorizer: Authorizer, user: User, namespaces: list[GroupNamespace]
    ) -> dict[GroupNamespace, bool]:
        """Return the decision for each of the namespaces, and perhaps for others."""
        now, view = self._clock(), self._views.get(user)
        if view is None or view.until <= now:
            view = _View({}, now + len(namespaces) / _REVIEWS_PER_SECOND)
        missing = [each for each in namespaces if each not in view.decided]
        rest, decided = iter(missing), dict(view.decided)
        workers = min(_CONCURRENT_REVIEWS, len(missing))
        await all_of([self._review(authorizer, user, rest, decided) for _ in range(workers)])
        self._views[user] = _View(decided, view.until)
        return decided

    async def _review(
        self, authorizer: Authorizer, user: User, rest: Iterator[GroupNamespace], decided: dict[GroupNamespace, bool]
    ) -> None:
        pace = Pace()
        for group, namespace in rest:
            async with self._reviews.slot(user.name):
                decided[group, namespace] = await authorizer.allows(user, _right(group, namespace))
            await pace.pause()  # cached decisions do not yield


def _right(group: str, namespace: str) -> RequestInfo:
    return RequestInfo(
        verb="get", path="", is_resource=True, group=group, namespace=namespace, resource="horizontalpodautoscalers"
    )
