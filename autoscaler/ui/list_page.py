"""The page of all HPAs.

An open page costs little, however many HPAs there are: only its rows are rendered again when their HPAs change, and
which rows those are is determined at most once a second, less often with more than ten thousand HPAs.
"""

from __future__ import annotations

import asyncio
from typing import Final

from autoscaler.ui.access import GroupNamespace
from autoscaler.ui.listing import COLUMNS, ListQuery, Selection, select
from autoscaler.ui.page_context import HPAsPage, PageContext
from autoscaler.ui.rows import STATES
from kube.api.status import forbidden
from kube.web.live import Rows, Throttle, View
from kube.web.requests import PageRequest

_HPAS_PER_SECOND: Final = 10_000


class ListPage(HPAsPage):
    """The page of all HPAs."""

    template = "list.html"
    parts = ("list_parts.html",)

    def __init__(self, context: PageContext, request: PageRequest) -> None:
        self._query = ListQuery.parse(request.query)
        super().__init__(context, request)
        self.events_url = self._query.url("/events", page=self._query.page)
        self._selection: Selection | None = None
        self._visible: frozenset[GroupNamespace] = frozenset()
        self._select_at = 0.0

    async def load(self, throttle: Throttle) -> View:
        """Return the rows of the page. Raises StatusError (403)."""
        index, clock = self.context.index, asyncio.get_running_loop().time
        self.is_outdated = bool(self.changes.take()) or self.is_outdated
        await index.update()
        selection = self._selection
        if selection is None or (self.is_outdated and clock() >= self._select_at):
            self._visible = await self._visible_namespaces()
            async with throttle.slot(self.user):
                is_all = self._visible >= index.namespaces()
                selection = await select(index.entries(), self._query, None if is_all else self._visible)
            self._selection, self.is_outdated = selection, False
            self._select_at = clock() + max(COLUMNS[self._query.column].seconds, len(index) / _HPAS_PER_SECOND)
        newest = self.sources.decisions.newest
        present = {
            each.key: (entry, newest(each.key))
            for each in selection.entries
            if (entry := index.get(each.key)) is not None
        }
        return View(
            values={
                "query": self._query,
                "selection": selection,
                "columns": COLUMNS,
                "namespaces": sorted({namespace for _, namespace in self._visible}),
                "states": STATES,
                "problem": self.sources.problem(),
                "is_leader": self.sources.is_leader(),
            },
            rows=Rows(id="rows", states=present, render=self.context.rendered),
        )

    async def _visible_namespaces(self) -> frozenset[GroupNamespace]:
        namespaces = self.context.index.namespaces()
        visible = await self.context.access.visible(self.user, namespaces)
        if namespaces and not visible:
            raise forbidden("you need the right to get horizontalpodautoscalers in a namespace that has one")
        return visible
