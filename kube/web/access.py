"""The namespaces that a user may see."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias

from kube.security.authentication import User
from kube.security.authorization import Authorizer
from kube.security.request_info import RequestInfo
from kube.status import forbidden
from kube.tasks import all_of

GroupNamespace: TypeAlias = tuple[str, str]
"""(API group, namespace)."""

_CONCURRENT_REVIEWS: Final = 10  # of all users
_CHECKED_AT_ONCE: Final = 200  # cached decisions, about a millisecond


class NamespaceAccess:
    """Decides which namespaces a user may see: those in which the user may `get` a resource.

    A user with that right in all namespaces needs one SubjectAccessReview. Others need one for each namespace; the
    authorizer caches them.

    Args:
        resource: such as "horizontalpodautoscalers".
        authorizer: reviews access; None: on loopback, where everyone may see everything.
    """

    def __init__(self, resource: str, authorizer: Authorizer | None) -> None:
        self._resource = resource
        self._authorizer = authorizer
        self._reviews = asyncio.Semaphore(_CONCURRENT_REVIEWS)

    async def visible(self, user: User | None, among: Iterable[GroupNamespace]) -> frozenset[GroupNamespace]:
        """Return those of the namespaces in which the user may `get` the resource of that API group.

        Raises:
            StatusError: 500 or 503 if the API server did not decide.
        """
        authorizer, asked = self._authorizer, frozenset(among)
        if authorizer is None:
            return asked
        if user is None:
            return frozenset()
        visible: set[GroupNamespace] = set()
        for group in {group for group, _ in asked}:
            of_group = [each for each in asked if each[0] == group]
            if await authorizer.allows(user, self._right(group, "")):
                visible.update(of_group)
            else:
                visible |= await self._reviewed(authorizer, user, of_group)
        return frozenset(visible)

    async def require(self, user: User | None, group: str, namespace: str) -> None:
        """Check that the user may see a namespace.

        Raises:
            StatusError: 403 if not, with Kubernetes' message; 500 or 503 if the API server did not decide.
        """
        if self._authorizer is None:
            return
        if user is None:
            raise forbidden("the user is not known")
        await self._authorizer.authorize(user, self._right(group, namespace))

    async def _reviewed(
        self, authorizer: Authorizer, user: User, namespaces: list[GroupNamespace]
    ) -> set[GroupNamespace]:
        visible: set[GroupNamespace] = set()
        rest = iter(namespaces)
        workers = min(_CONCURRENT_REVIEWS, len(namespaces))
        await all_of([self._check(authorizer, user, rest, visible) for _ in range(workers)])
        return visible

    async def _check(
        self, authorizer: Authorizer, user: User, rest: Iterator[GroupNamespace], visible: set[GroupNamespace]
    ) -> None:
        for number, (group, namespace) in enumerate(rest, start=1):
            if number % _CHECKED_AT_ONCE == 0:
                await asyncio.sleep(0)
            async with self._reviews:
                if await authorizer.allows(user, self._right(group, namespace)):
                    visible.add((group, namespace))

    def _right(self, group: str, namespace: str) -> RequestInfo:
        return RequestInfo(
            verb="get", path="", is_resource=True, group=group, namespace=namespace, resource=self._resource
        )
