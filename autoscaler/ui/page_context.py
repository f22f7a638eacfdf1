"""What all pages share."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

from autoscaler.core.model import HPA, HPAKey
from autoscaler.records.record import DecisionRecord
from autoscaler.records.sentence import with_sentence
from autoscaler.ui.access import NamespaceAccess
from autoscaler.ui.rows import Row, row
from autoscaler.ui.sources import Sources
from kube.api.status import not_found
from kube.security.authentication import User
from kube.web.live import Page
from kube.web.pages import PageRequest, Templates

_UPDATE_SECONDS: Final = 0.5
"""Between two updates of an open page."""
_IDLE_UPDATES: Final = 10
"""The user's rights and the notices, which depend on more than HPAs, are checked at least so often: every 5 s."""


@dataclass(frozen=True, slots=True)
class PageContext:
    """What all pages share."""

    sources: Sources
    """The controller's state."""
    access: NamespaceAccess
    """Decides which HPAs a user may see."""
    templates: Templates
    """The templates of the pages."""

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

    def row(self, hpa: HPA) -> Row:
        """Return an HPA as the list shows it."""
        sources, key = self.sources, hpa.key
        is_foreign, is_owned = sources.is_foreign(key), sources.owns(key)
        return row(hpa, sources.mode_of(hpa), sources.config, is_foreign=is_foreign, is_owned=is_owned)

    def decision(self, number: int) -> DecisionRecord | None:
        """Return a decision with its sentence, by its number in the log; None if it is not in memory."""
        record = self.sources.decisions.get(number)
        return None if record is None else with_sentence(record)


class HPAsPage(Page):
    """A page that changes with HPAs and decisions.

    Attributes:
        shown: the `state` that it shows; `load` sets it.
    """

    def __init__(self, context: PageContext, request: PageRequest) -> None:
        self.context = context
        self.sources = context.sources
        self.user = request.user
        self.shown: object = None

    def state(self) -> object:
        """Return what is another one after each change."""
        raise NotImplementedError

    async def wait(self) -> None:
        """See Page."""
        for _ in range(_IDLE_UPDATES):
            await asyncio.sleep(_UPDATE_SECONDS)
            if self.state() != self.shown:
                return
