"""The page of all HPAs: which it shows, and in which order: search, filters, sort, pages.

The index has a small entry for each HPA, and updates those that have changed when it is read. Entries are read in
slices, so that ten thousand HPAs do not block the event loop. An open page costs little, however many HPAs there are:
only its rows are rendered again when their HPAs change, and which rows those are is determined at most once a second,
less often with more than ten thousand HPAs.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, fields, replace
from functools import cached_property, lru_cache
from typing import Any, Final, TypeVar
from urllib.parse import urlencode

from autoscaler.core.config import Mode
from autoscaler.core.model import HPA, HPAKey
from autoscaler.ui.access import GroupNamespace
from autoscaler.ui.figures import sparkline
from autoscaler.ui.page_context import HPAsPage, PageContext
from autoscaler.ui.rows import STATES, State, highest_ratio, search_text, states_of
from autoscaler.ui.sources import Sources, Subscription
from kube.aio.tasks import in_slices
from kube.api.status import bad_request, forbidden
from kube.security.request_info import Query
from kube.web.live import Rows, Throttle, View
from kube.web.pages import PageRequest

_T = TypeVar("_T")

ROWS: Final = 100
"""Of a page."""
_SLICE: Final = 100
"""Without a yield to the event loop. Shorter slices would wait too often for other work of a busy loop."""


@dataclass(frozen=True, eq=False)
class Entry:
    """An HPA in the index, with its effective mode; a new one for each change of the HPA."""

    hpa: HPA
    mode: Mode
    is_foreign: bool
    """Another controller writes its status."""

    @cached_property
    def key(self) -> HPAKey:
        """The HPA's key."""
        return self.hpa.key

    @property
    def group_namespace(self) -> GroupNamespace:
        """What a user must have the right to see."""
        return self.key.group, self.key.namespace

    @cached_property
    def states(self) -> frozenset[State]:
        """See `states_of`."""
        return states_of(self.hpa)

    @cached_property
    def text(self) -> str:
        """What a search finds."""
        return search_text(self.hpa)

    @cached_property
    def ratio(self) -> float:
        """The highest ratio of a metric and its target."""
        return highest_ratio(self.hpa)

    @property
    def severity(self) -> int:
        """Failing before limited before all others."""
        return 2 * ("failing" in self.states) + ("limited" in self.states)


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of the list."""

    title: str
    """Its heading."""
    value: Callable[[Entry], Any] | None = None
    """By which the column is sorted, equal ones by name; None: by name."""
    descending: bool = False
    """The order at the first click."""
    seconds: float = 1.0
    """Between changes of the order."""


COLUMNS: Final[Mapping[str, Column]] = {
    "name": Column(title="HPA"),
    "mode": Column(title="Mode", value=lambda entry: entry.mode.value),
    "metrics": Column(title="Metrics", value=lambda entry: entry.ratio, descending=True, seconds=10.0),
    "replicas": Column(title="Replicas", value=lambda entry: entry.hpa.status.current_replicas, descending=True),
    "scaled": Column(title="Last scale", value=lambda entry: entry.hpa.status.last_scale_ms or 0, descending=True),
    "conditions": Column(title="Last decision, conditions", value=lambda entry: entry.severity, descending=True),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ListQuery:
    """The choice of rows in the query of the page's URL."""

    q: str = ""
    """Words that all must be found."""
    namespace: str = ""
    """Only HPAs of this one; empty: all."""
    show: State | str = ""
    """Only HPAs in this state; empty: all."""
    sort: str = "name"
    """A name of COLUMNS, after a "-" if descending."""
    page: int = 1
    """From 1 on."""

    @classmethod
    def parse(cls, query: Query) -> ListQuery:
        """Parse the query. Raises StatusError (400) with what to write."""
        show, sort, page = query.get("show"), query.get("sort") or "name", query.get("page") or "1"
        if show not in ("", *STATES):
            raise bad_request(f"show must be one of {', '.join(STATES)}")
        if sort.removeprefix("-") not in COLUMNS:
            raise bad_request(f"sort must be one of {', '.join(COLUMNS)}, after a - if descending")
        if not (page.isascii() and page.isdigit() and int(page[:9]) > 0):
            raise bad_request("page must be a number from 1 on")
        return cls(q=query.get("q").strip(), namespace=query.get("namespace"), show=show, sort=sort, page=int(page[:9]))

    @property
    def column(self) -> str:
        """The name of the column by which the rows are sorted."""
        return self.sort.removeprefix("-")

    @property
    def is_descending(self) -> bool:
        """The direction."""
        return self.sort.startswith("-")

    def url(self, path: str = "/", **changes: str | int) -> str:
        """Return a URL with this query and changes of it; a change begins at page 1, unless it is the page."""
        changed = replace(self, **({"page": 1} | changes))  # type: ignore[arg-type]
        defaults = ListQuery()
        values = {each.name: getattr(changed, each.name) for each in fields(self)}
        pairs = {name: value for name, value in values.items() if value != getattr(defaults, name)}
        return f"{path}?{urlencode(pairs)}" if pairs else path

    def sorted_by(self, column: str) -> str:
        """Return the URL of a column's heading: the column's first order, or the reverse if it is sorted by it."""
        descending = COLUMNS[column].descending if column != self.column else not self.is_descending
        return self.url(sort=f"-{column}" if descending else column)


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The rows of a page."""

    entries: Sequence[Entry]
    """The entries of this page, in order."""
    page: int
    """The number of the page; the last one, if the query's is beyond."""
    total: int
    """The number of rows of all pages."""
    counts: Mapping[str, int]
    """The number of HPAs that are found, "" for all and for each state."""

    @property
    def pages(self) -> int:
        """The number of pages, at least 1."""
        return _pages(self.total)

    @property
    def first(self) -> int:
        """The number of the first row; 0 if there is none."""
        return (self.page - 1) * ROWS + 1 if self.total else 0

    @property
    def last(self) -> int:
        """The number of the last row."""
        return min(self.page * ROWS, self.total)


class HPAIndex:
    """The entries of all HPAs. It takes no memory and no time before it is read for the first time."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._entries: dict[HPAKey, Entry] = {}
        self._is_sorted = True
        self._namespaces: Counter[GroupNamespace] = Counter()
        self._subscribed = ExitStack()
        self._changed: Subscription | None = None
        self._is_listed = False
        self._outdated: list[HPAKey] = []
        self._lock = asyncio.Lock()

    async def update(self) -> None:
        """Bring the entries up to date."""
        async with self._lock:
            # A request may be cancelled at each yield, and must lose no change.
            if self._changed is None:
                self._changed = self._subscribed.enter_context(self._sources.changes.subscribe())
            if not self._is_listed:
                async for hpas in _slices(self._sources.hpas()):
                    for hpa in hpas:
                        self._update(hpa.key, hpa)
                self._is_listed = True
            self._outdated += self._changed.take()
            async for keys in _slices(self._outdated):
                for key in keys:
                    self._update(key, self._sources.hpa(key))
            self._outdated = []

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: HPAKey) -> Entry | None:
        """Return the entry of an HPA; None: it was deleted."""
        return self._entries.get(key)

    def entries(self) -> Sequence[Entry]:
        """Return all entries, sorted by name."""
        if not self._is_sorted:
            self._entries = dict(sorted(self._entries.items(), key=_name))
            self._is_sorted = True
        return list(self._entries.values())

    def namespaces(self) -> frozenset[GroupNamespace]:
        """Return the namespaces that have an HPA."""
        return frozenset(self._namespaces)

    def _update(self, key: HPAKey, hpa: HPA | None) -> None:
        old = self._entries.get(key)
        if hpa is not None:
            mode, is_foreign = self._sources.mode_of(hpa), self._sources.is_foreign(key)
            if old is not None and old.hpa is hpa and old.mode is mode and old.is_foreign == is_foreign:
                return  # it has a new decision, which is not part of the entry
            new = Entry(hpa, mode, is_foreign)
            self._entries[key] = new
            if old is None:
                self._is_sorted = False
                self._namespaces[new.group_namespace] += 1
        elif old is not None:
            del self._entries[key]
            self._namespaces -= Counter([old.group_namespace])


async def select(entries: Sequence[Entry], query: ListQuery, visible: frozenset[GroupNamespace] | None) -> Selection:
    """Return the rows of a page.

    Args:
        entries: all entries, sorted by name.
        query: the choice.
        visible: only HPAs of these namespaces; None: of all.
    """
    found, column = entries, COLUMNS[query.column]
    if visible is not None or query.namespace or query.q:
        found, words = [], query.q.lower().split()
        async for some in _slices(entries):
            found += (each for each in some if _matches(each, query.namespace, words, visible))
    states = Counter(each.states for each in found)
    counts: dict[str, int] = {"": len(found)}
    counts |= {state: sum(count for in_, count in states.items() if state in in_) for state in STATES}
    rows = [each for each in found if not query.show or query.show in each.states]
    if column.value is not None:
        values: list[Any] = []
        async for some in _slices(rows):
            values += map(column.value, some)
        rows = [rows[index] for index in sorted(range(len(rows)), key=values.__getitem__, reverse=query.is_descending)]
    elif query.is_descending:
        rows.reverse()
    page = min(query.page, _pages(len(rows)))
    return Selection(entries=rows[(page - 1) * ROWS : page * ROWS], page=page, total=len(rows), counts=counts)


def _matches(entry: Entry, namespace: str, words: Sequence[str], visible: frozenset[GroupNamespace] | None) -> bool:
    if visible is not None and entry.group_namespace not in visible:
        return False
    if namespace and entry.key.namespace != namespace:
        return False
    return all(word in entry.text for word in words)


def _slices(items: Sequence[_T]) -> AsyncIterator[Sequence[_T]]:
    """Yield the items in slices, and let the event loop do other work every few milliseconds."""
    return in_slices(items[start : start + _SLICE] for start in range(0, len(items), _SLICE))


def _name(item: tuple[HPAKey, Entry]) -> tuple[str, str, str]:
    key, _ = item
    return key.namespace, key.name, key.group


def _pages(total: int) -> int:
    return max(1, -(-total // ROWS))


_HPAS_PER_SECOND: Final = 10_000
_RENDERED: Final = 1000
"""The size of the cache of rendered rows: 4 KiB each."""
_SPARKLINE: Final = 60
"""Decisions of a sparkline, at most."""


class ListRows:
    """The rows of all HPAs, the same for all viewers.

    Attributes:
        index: the HPAs.
        rendered: returns the HTML of a row, of an entry and the number of the HPA's newest decision.
    """

    def __init__(self, context: PageContext) -> None:
        self._context = context
        self.index = HPAIndex(context.sources)
        self.rendered = lru_cache(_RENDERED)(self._rendered)

    def _rendered(self, row: tuple[Entry, int]) -> str:
        entry, newest = row
        replicas = self._context.sources.decisions.desired_replicas(entry.key, last=_SPARKLINE)
        return self._context.templates.render(
            "list_row.html",
            row=self._context.row(entry.hpa),
            last=self._context.decision(newest),
            sparkline=sparkline(replicas),
        )


class ListPage(HPAsPage):
    """The page of all HPAs."""

    template = "list.html"
    parts = ("list_parts.html",)

    def __init__(self, context: PageContext, request: PageRequest, rows: ListRows) -> None:
        self._query = ListQuery.parse(request.query)
        self._rows = rows
        super().__init__(context, request)
        self.events_url = self._query.url("/events", page=self._query.page)
        self._selection: Selection | None = None
        self._visible: frozenset[GroupNamespace] = frozenset()
        self._select_at = 0.0

    async def load(self, throttle: Throttle) -> View:
        """Return the rows of the page. Raises StatusError (403)."""
        index, clock = self._rows.index, asyncio.get_running_loop().time
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
            rows=Rows(id="rows", states=present, render=self._rows.rendered),
        )

    async def _visible_namespaces(self) -> frozenset[GroupNamespace]:
        namespaces = self._rows.index.namespaces()
        visible = await self.context.access.visible(self.user, namespaces)
        if namespaces and not visible:
            raise forbidden("you need the right to get horizontalpodautoscalers in a namespace that has one")
        return visible
