"""Pages that stay current: a view is loaded, templates show it, and an event stream sends what has changed.

A change may concern all open pages at once. Each needs some milliseconds, in which the process does no other work, so a
hundred of them at once would delay it by most of a second. So pages are rendered one at a time.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeVar

from aiohttp import web
from markupsafe import Markup

from kube.aio.fairness import Throttle
from kube.aio.tasks import in_slices
from kube.api.status import not_found
from kube.security.authentication import User
from kube.web.event_stream import EventStream, ServerEvent
from kube.web.pages import Templates

_T = TypeVar("_T")

_MAX_PAUSE_SECONDS: Final = 1.0
"""Between two computations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """The body of a table that changes row by row."""

    id: str
    """The id of the tbody."""
    states: Mapping[Any, Any]
    """What each row shows, by the id of its element. A row is rendered again if its state is another one."""
    render: Callable[..., str]
    """Returns the HTML of a state, given as `row`; it takes less than a millisecond."""
    empty: str = ""
    """The HTML of the body without rows."""

    async def html(self, states: Iterable[Any]) -> Markup:
        """Return the HTML of some rows, or of none."""
        rendered = [self.render(row=state) async for state in in_slices(states)]
        return Markup("".join(rendered) or self.empty)  # noqa: S704  # templates escape


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What a page shows at one time."""

    values: Mapping[str, Any]
    """The values of the names in its templates."""
    rows: Rows | None = None
    """The rows of its table, if there is one."""
    events: Sequence[ServerEvent] = ()
    """Further events for open pages."""


class Page:
    """A page for one request; see LivePages."""

    template: str
    """The template of the whole page; it gets the view's values, `events`, and `rows` if there is a table."""
    parts: Sequence[str] = ()
    """Templates of what may change: elements with ids, which the event stream replaces."""
    user: User | None = None
    """Who requests it; None on loopback."""
    events_url: str = ""
    """The events url of its event stream; "" if it has none."""
    in_thread: bool = False
    """Its templates are rendered in a thread, because they may take long."""

    @property
    def user_name(self) -> str:
        """The key of the user in limits; "" on loopback."""
        return "" if self.user is None else self.user.name

    async def check(self) -> None:
        """Check that the user may see the page. Raises StatusError."""

    async def load(self, throttle: Throttle) -> View:
        """Return what the page shows now; long computations hold a slot. Raises StatusError."""
        raise NotImplementedError

    async def wait(self) -> None:
        """Wait until the page may have changed."""
        await asyncio.Event().wait()


@dataclass(slots=True)
class _Shown:
    """What an open page shows: hashes of its parts, because the text of charts is long, and the states of its rows."""

    parts: dict[str, int] = field(default_factory=dict)
    rows: Mapping[Any, Any] | None = None

    def changed_parts(self, parts: Mapping[str, str]) -> str:
        changed = [html for name, html in parts.items() if self.parts.get(name) != hash(html)]
        self.parts = {name: hash(html) for name, html in parts.items()}
        return "\n".join(changed)

    async def changed_rows(self, rows: Rows) -> str:
        before, self.rows = self.rows, rows.states
        if before is None or list(before) != list(rows.states):
            return f'<tbody id="{rows.id}" role="rowgroup">{await rows.html(rows.states.values())}</tbody>'
        changed = [state for key, state in rows.states.items() if before[key] != state]
        return await rows.html(changed) if changed else ""


class LivePages:
    """Responds with pages and their event streams, whose computations have a throttle each."""

    def __init__(self, templates: Templates) -> None:
        self._templates = templates
        self._views = Throttle(max_pause=_MAX_PAUSE_SECONDS)
        self._updates = Throttle(max_pause=_MAX_PAUSE_SECONDS)

    async def respond(self, page: Page, *, events: bool) -> web.StreamResponse:
        """Return a page, or its event stream. Raises StatusError."""
        if events and not page.events_url:
            raise not_found("there is no such page")
        await page.check()
        return EventStream(self._events(page)) if events else await self._view(page)

    async def _view(self, page: Page) -> web.Response:
        view = await page.load(self._views)
        async with self._views.slot(page.user_name):
            values = {**view.values, "events": page.events_url}
            if view.rows is not None:
                values["rows"] = await view.rows.html(view.rows.states.values())
            return await _run(page, partial(self._templates.page, page.template, **values))

    async def _events(self, page: Page) -> AsyncIterator[ServerEvent]:
        """Yield the present state of a page, and then what changes. Raises StatusError."""
        shown = _Shown()
        while True:
            events = await self._changes(page, shown)
            while events:  # no reference to one while the page waits: they can be long
                yield events.popleft()
            await page.wait()
            await page.check()

    async def _changes(self, page: Page, shown: _Shown) -> deque[ServerEvent]:
        view = await page.load(self._updates)
        async with self._updates.slot(page.user_name):
            rows = await shown.changed_rows(view.rows) if view.rows is not None else ""
            parts = shown.changed_parts(await _run(page, partial(self._parts, page, view)))
        # Rows come alone, because a browser parses them only as the first elements.
        return deque([*(ServerEvent("replace", html) for html in (rows, parts) if html), *view.events])

    def _parts(self, page: Page, view: View) -> dict[str, str]:
        return {name: self._templates.render(name, **view.values) for name in page.parts}


async def _run(page: Page, render: Callable[[], _T]) -> _T:
    return await asyncio.to_thread(render) if page.in_thread else render()
