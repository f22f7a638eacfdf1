"""The page of all HPAs: which it shows, and in which order: search, filters, sort, pages.

What the order and the filters need of an HPA is computed once. Entries are read in slices, so that ten thousand HPAs do
not block the event loop. An open page costs little, however many HPAs there are: only its rows are rendered again when
their HPAs change, and which rows those are is determined at most once a second, less often with more than ten thousand
HPAs.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property, lru_cache
from operator import attrgetter
from typing import Any, Final, TypeAlias, TypeVar
from urllib.parse import urlencode

from autoscaler.core.config import Mode
from autoscaler.core.model import HPA, HPAKey
from autoscaler.ui.access import GroupNamespace
from autoscaler.ui.figures import sparkline
from autoscaler.ui.page_context import HPAsPage, PageContext
from autoscaler.ui.rows import STATES, State, highest_ratio, search_text, states_of
from autoscaler.ui.sources import Sources
from kube.aio.fairness import Throttle
from kube.aio.tasks import in_slices
from kube.api.status import bad_request, forbidden
from kube.security.request_info import Query
from kube.web.live import Rows, View
from kube.web.pages import PageRequest

_T = TypeVar("_T")

ROWS: Final = 100
"""Of a page."""
_SLICE: Final = 100
"""Without a yield to the event loop. Shorter slices would wait too often for other work of a busy loop."""


@dataclass(frozen=True, eq=False)
class Entry:
    """An HPA, and what the list needs of it; a new one for each change of the HPA."""

    hpa: HPA
    sources: Sources

    @property
    def mode(self) -> Mode:
        """Its effective mode, which may change without the HPA."""
        return self.sources.mode_of(self.hpa)

    @cached_property
    def key(self) -> HPAKey:
        """The HPA's key."""
        return self.hpa.key

    @cached_property
    def name(self) -> tuple[str, str, str]:
        """By which entries are sorted: namespace, name, group."""
        return self.key.namespace, self.key.name, self.key.group

    @cached_property
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


def _pages(total: int) -> int:
    return max(1, -(-total // ROWS))


_HPAS_PER_SECOND: Final = 10_000
_RENDERED: Final = 1000
"""The size of the cache of rendered rows: 4 KiB each."""
_SPARKLINE: Final = 60
"""Decisions of a sparkline, at most."""

_RowState: TypeAlias = tuple[Entry, Mode, bool, int]
"""The HPA, its mode, whether another controller writes its status, and the number of its newest decision."""


class ListRows:
    """The rows of all HPAs, the same for all viewers. They take no memory and no time before they are read.

    Attributes:
        rendered: returns the HTML of a row, given its state.
    """

    def __init__(self, context: PageContext) -> None:
        self._context = context
        self._entries: dict[int, Entry] = {}
        """By the identity of the HPA, which the entry keeps alive."""
        self.rendered = lru_cache(_RENDERED)(self._rendered)

    def entries(self) -> Sequence[Entry]:
        """Return all entries, sorted by name: of ten thousand HPAs in some milliseconds."""
        sources, known = self._context.sources, self._entries
        self._entries = {id(hpa): known.get(id(hpa)) or Entry(hpa, sources) for hpa in sources.hpas()}
        return sorted(self._entries.values(), key=attrgetter("name"))

    def state(self, key: HPAKey) -> _RowState | None:
        """Return what a row shows; None: the HPA was deleted."""
        sources = self._context.sources
        hpa = sources.hpa(key)
        if hpa is None:
            return None
        entry = self._entries.setdefault(id(hpa), Entry(hpa, sources))
        return entry, entry.mode, sources.is_foreign(key), sources.decisions.newest(key)

    def _rendered(self, row: _RowState) -> str:
        entry, _, _, newest = row
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

    def state(self) -> int:
        """See HPAsPage. The selection of rows is that of the state that was `shown`."""
        return self.sources.version()

    async def load(self, throttle: Throttle) -> View:
        """Return the rows of the page. Raises StatusError (403)."""
        clock, state, selection = asyncio.get_running_loop().time, self.state(), self._selection
        if selection is None or (state != self.shown and clock() >= self._select_at):
            async with throttle.slot(self.user_name):
                entries = self._rows.entries()
                namespaces = frozenset(each.group_namespace for each in entries)
            self._visible = await self._visible_of(namespaces)
            async with throttle.slot(self.user_name):
                selection = await select(entries, self._query, None if self._visible >= namespaces else self._visible)
            self._selection, self.shown = selection, state
            self._select_at = clock() + max(COLUMNS[self._query.column].seconds, len(entries) / _HPAS_PER_SECOND)
        states = {each.key: self._rows.state(each.key) for each in selection.entries}
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
            rows=Rows(
                id="rows",
                states={key: state for key, state in states.items() if state is not None},
                render=self._rows.rendered,
            ),
        )

    async def _visible_of(self, namespaces: frozenset[GroupNamespace]) -> frozenset[GroupNamespace]:
        visible = await self.context.access.visible(self.user, namespaces)
        if namespaces and not visible:
            raise forbidden("you need the right to get horizontalpodautoscalers in a namespace that has one")
        return visible
