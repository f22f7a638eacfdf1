"""What all pages share."""

from __future__ import annotations

from dataclasses import dataclass, field

from autoscaler.core.model import HPA, HPAKey
from autoscaler.ui.sources import Sources
from kube.api.status import not_found
from kube.security.authentication import User
from kube.web.access import NamespaceAccess
from kube.web.templates import Templates
from kube.web.throttle import Throttle


@dataclass(frozen=True, slots=True, kw_only=True)
class PageContext:
    """What all pages share.

    Attributes:
        sources: the controller's state.
        access: decides which HPAs a user may see.
        templates: of the pages.
        views: the throttle of requests for a page.
        updates: the throttle of updates to open pages.
    """

    sources: Sources
    access: NamespaceAccess
    templates: Templates
    views: Throttle = field(default_factory=Throttle)
    updates: Throttle = field(default_factory=Throttle)

    async def visible_hpa(self, user: User | None, key: HPAKey) -> HPA:
        """Return an HPA.

        Raises:
            StatusError: 403 if the user may not see the namespace, 404 if there is no such HPA.
        """
        await self.access.require(user, key.group, key.namespace)
        hpa = self.sources.hpa(key)
        if hpa is None:
            raise not_found(f"there is no HPA {key}")
        return hpa
