"""The page of all HPAs, and the events that keep it current.

An open page costs little, however many HPAs there are: only its rows are rendered again when their HPAs change, and
which rows those are is determined at most once a second, less often with more than ten thousand HPAs.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator, Sequence
from functools import lru_cache
from typing import Any, Final

from aiohttp import web
from markupsafe import Markup

from autoscaler.ui.listing import COLUMNS, Entry, HPAIndex, ListQuery, Selection, select, slices
from autoscaler.ui.page_context import PageContext
from autoscaler.ui.rows import STATES, row
from kube.api.status import forbidden
from kube.security.authentication import User
from kube.web.access import GroupNamespace
from kube.web.event_stream import ServerEvent
from kube.web.requests import PageRequest

_UPDATE_SECONDS: Final = 0.5
_HPAS_PER_SECOND: Final = 10_000
_IDLE_SECONDS: Final = 5.0
"""The notices depend on more than HPAs."""
_RENDERED: Final = 1000
"""Rendered rows that are kept: 3 KiB each."""
_RENDERED_AT_ONCE: Final = 10


class ListPage:
    """The page of all HPAs."""

    def __init__(self, context: PageContext) -> None:
        self._context = context
        self._sources = context.sources
        self._templates = context.templates
        self._index = HPAIndex(context.sources)
        self._row = lru_cache(_RENDERED)(self._render_row)

    async def respond(self, request: PageRequest) -> web.Response:
        """Return the page. Raises StatusError."""
        query = ListQuery.parse(request.query)
        await self._index.update()
        visible = await self._visible(request.user)
        async with self._context.views.slot():
            selection = await self._select(query, visible)
            return self._templates.page(
                "list.html",
                events=query.url("/events", page=query.page),
                columns=COLUMNS,
                namespaces=sorted({namespace for _, namespace in visible}),
                rows=await self._rows(selection.entries),
                **self._values(query, selection),
            )

    async def events(self, request: PageRequest) -> AsyncIterator[ServerEvent]:
        """Yield the state of the page, and then its changes. Raises StatusError."""
        query, clock = ListQuery.parse(request.query), asyncio.get_running_loop().time
        shown = _Shown()
        selection, is_outdated, select_at = None, True, clock()
        with self._sources.changes.subscribe() as changes:
            while True:
                is_outdated = bool(changes.take()) or is_outdated
                await self._index.update()
                visible = None
                if selection is None or (is_outdated and clock() >= select_at):
                    visible = await self._visible(request.user)
                async with self._context.updates.slot():
                    if selection is None or visible is not None:
                        assert visible is not None
                        selection = await self._select(query, visible)
                        is_outdated = False
                        select_at = clock() + max(COLUMNS[query.column].seconds, len(self._index) / _HPAS_PER_SECOND)
                    present = [entry for each in selection.entries if (entry := self._index.get(each.key)) is not None]
                    events = list(shown.update(present, await self._rows(present), self._parts(query, selection)))
                for event in events:
                    yield event
                await asyncio.sleep(_UPDATE_SECONDS)
                if not is_outdated:
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(_IDLE_SECONDS):
                            await changes.wait()

    async def _visible(self, user: User | None) -> frozenset[GroupNamespace]:
        namespaces = self._index.namespaces()
        visible = await self._context.access.visible(user, namespaces)
        if namespaces and not visible:
            raise forbidden("you need the right to get horizontalpodautoscalers in a namespace that has one")
        return visible

    async def _select(self, query: ListQuery, visible: frozenset[GroupNamespace]) -> Selection:
        is_all_visible = visible >= self._index.namespaces()
        return await select(self._index.entries(), query, None if is_all_visible else visible)

    async def _rows(self, entries: Sequence[Entry]) -> list[Markup]:
        rows: list[Markup] = []
        async for some in slices(entries, _RENDERED_AT_ONCE):
            rows += map(self._row, some)
        return rows

    def _render_row(self, entry: Entry) -> Markup:
        shown = row(
            entry.hpa,
            entry.mode,
            self._sources.config,
            is_foreign=entry.is_foreign,
            is_owned=self._sources.owns(entry.key),
        )
        return Markup(self._templates.render("list_row.html", row=shown))  # noqa: S704  # the template escapes

    def _parts(self, query: ListQuery, selection: Selection) -> str:
        """Return what changes above and below the rows."""
        return self._templates.render("list_parts.html", **self._values(query, selection))

    def _values(self, query: ListQuery, selection: Selection) -> dict[str, Any]:
        return {
            "query": query,
            "selection": selection,
            "states": STATES,
            "problem": self._sources.problem(),
            "is_leader": self._sources.is_leader(),
        }


class _Shown:
    """What an open page shows."""

    def __init__(self) -> None:
        self._entries: list[Entry] | None = None
        self._parts = ""

    def update(self, entries: list[Entry], rows: Sequence[Markup], parts: str) -> Iterator[ServerEvent]:
        """Yield the events that change the page to these rows, one for each entry, and these other parts."""
        before, self._entries = self._entries, entries
        if before is None or [each.key for each in before] != [each.key for each in entries]:
            yield ServerEvent("replace", f'<tbody id="rows">{Markup().join(rows)}</tbody>')
        elif changed := [html for old, new, html in zip(before, entries, rows, strict=True) if old is not new]:
            yield ServerEvent("replace", Markup().join(changed))
        before_parts, self._parts = self._parts, parts
        if parts != before_parts:
            yield ServerEvent("replace", parts)
