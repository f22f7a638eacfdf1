"""The namespaces that a user may see."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from kube.security.authentication import User
from kube.security.authorization import Authorizer

GroupNamespace: TypeAlias = tuple[str, str]
"""(API group, namespace)."""


class NamespaceAccess:
    """Decides which namespaces a user may see: those in which he may `get` a resource.

    Args:
        resource: such as "horizontalpodautoscalers".
        authorizer: reviews access; None: on loopback, where everyone may see everything.
    """

    def __init__(self, resource: str, authorizer: Authorizer | None) -> None:
        self._resource = resource
        self._authorizer = authorizer

    async def visible(self, user: User | None, among: Iterable[GroupNamespace]) -> frozenset[GroupNamespace]:
        """Return those of the namespaces in which the user may `get` the resource of that API group.

        Raises:
            StatusError: 500 or 503 if the API server did not decide.
        """
        if self._authorizer is None:
            return frozenset(among)
        raise NotImplementedError(user, self._resource)
