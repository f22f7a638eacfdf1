"""The page of one HPA: its status, charts of its kept decisions, and the decisions with their explanations."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any, Final
from urllib.parse import urlencode

from aiohttp import web
from markupsafe import Markup

from autoscaler.core.model import HPA, HPAKey
from autoscaler.records.explanation import METRIC_HEADINGS, explain_record
from autoscaler.records.record import DecisionRecord
from autoscaler.records.sentence import with_sentence
from autoscaler.ui.decisions import PAGE_SIZE, DecisionReader, Decisions, Selection, in_slices
from autoscaler.ui.figures import scales
from autoscaler.ui.links import hpa_url
from autoscaler.ui.page_context import PageContext
from autoscaler.ui.rows import row
from autoscaler.ui.settings import settings
from kube.web.event_stream import EventStream, ServerEvent
from kube.web.requests import PageRequest

_UPDATE_SECONDS: Final = 0.5
"""Between two updates of an open page."""
_IDLE_SECONDS: Final = 5.0
"""The user's rights and the notices are checked at least so often."""


class HPAPage:
    """Responds with the page, and with the events that keep it current."""

    def __init__(self, context: PageContext) -> None:
        self._context = context
        self._sources = context.sources
        self._templates = context.templates
        self._decisions = DecisionReader(context.sources.decisions)

    async def respond(self, request: PageRequest, key: HPAKey) -> web.StreamResponse:
        """Return the page.

        Raises:
            StatusError: 403 if the user may not see the namespace, 404 if there is no such HPA.
        """
        hpa = await self._context.visible_hpa(request.user, key)
        async with self._context.views.slot():
            return await self._page(request, hpa)

    async def _page(self, request: PageRequest, hpa: HPA) -> web.Response:
        key = hpa.key
        selection = Selection.parse(request.query)
        decisions = await self._decisions.read(key, selection)
        items = await self._rendered(decisions.shown, key, selection)
        show = "scaling" if selection.scaling_only else ""
        older = decisions.shown[-1].time if decisions.has_older else ""
        return self._templates.page(
            "hpa.html",
            **self._values(hpa, decisions),
            selection=selection,
            page_size=PAGE_SIZE,
            decisions=items,
            found=not selection.decision or any(each.time == selection.decision for each in decisions.shown),
            settings=[] if hpa.problem else list(settings(hpa, self._sources.config, self._sources.sync_period)),
            links={
                "namespace": "/?" + urlencode({"namespace": key.namespace}),
                "all": hpa_url(key),
                "scaling": hpa_url(key, show="scaling"),
                "older": older and hpa_url(key, show=show, before=older),
                "newest": hpa_url(key, show=show),
                "what_if": hpa_url(key, "what-if"),
            },
            events=hpa_url(key, "events", show=show) if selection.is_newest else hpa_url(key, "events", list="no"),
        )

    async def respond_with_events(self, request: PageRequest, key: HPAKey) -> web.StreamResponse:
        """Send the events of the page. Raises StatusError as `respond`."""
        await self._context.visible_hpa(request.user, key)
        return EventStream(self._events(request, key))

    async def _events(self, request: PageRequest, key: HPAKey) -> AsyncIterator[ServerEvent]:
        """Yield the present state, which the page may have already, and then what changes."""
        selection, with_list = Selection.parse(request.query), request.query.get("list") != "no"
        decisions: Decisions | None = None
        shown: int | None = None  # a hash: the text of charts is long
        with self._sources.changes.subscribe(key) as subscription:
            while True:
                subscription.take()
                hpa = await self._context.visible_hpa(request.user, key)
                items: Sequence[Markup] = ()
                async with self._context.updates.slot():
                    decisions = await self._decisions.read(
                        key, selection, after=0 if decisions is None else decisions.last
                    )
                    live = self._templates.render("hpa_live.html", **self._values(hpa, decisions))
                    if with_list:
                        items = await self._rendered(decisions.shown, key, selection)
                if hash(live) != shown:
                    shown = hash(live)
                    yield ServerEvent("replace", live)
                if items:
                    yield ServerEvent("decisions", "".join(items))
                del live, items
                await asyncio.sleep(_UPDATE_SECONDS)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_IDLE_SECONDS):
                        await subscription.wait()

    def _values(self, hpa: HPA, decisions: Decisions) -> dict[str, Any]:
        """Return what the parts of the page that change are rendered with."""
        sources = self._sources
        return {
            "hpa": hpa,
            "row": row(
                hpa,
                sources.mode_of(hpa),
                sources.config,
                is_foreign=sources.is_foreign(hpa.key),
                is_owned=sources.owns(hpa.key),
            ),
            "problem": sources.problem(),
            "is_leader": sources.is_leader(),
            "number": len(decisions.charts.points),
            "no_decisions": "" if decisions.charts.points else self._why_none(hpa),
            # No `<` may end the script element.
            "figure": Markup(decisions.charts.figure.replace("<", "\\u003c")),  # noqa: S704
        }

    def _why_none(self, hpa: HPA) -> str:
        """Return why there is no decision on an HPA."""
        sources = self._sources
        if not sources.owns(hpa.key):
            return "another shard of the autoscaler reconciles this HPA: open the pages of that shard's leader"
        if not sources.is_leader():
            return "this process is not the leader, so it makes no decisions: open the pages of the leader"
        if hpa.problem:
            return "the HPA is not reconciled, because its spec is invalid"
        if not sources.decisions.keeps:
            return "this process keeps no decisions: start it with --kept-decisions=20"
        return "the HPA was not reconciled yet, or memory for its decisions was needed for newer ones of other HPAs"

    async def _rendered(self, records: Iterable[DecisionRecord], key: HPAKey, selection: Selection) -> list[Markup]:
        """Return the items of the list."""
        items = []
        async for record in in_slices(records):
            explanation = explain_record(with_sentence(record))
            change, _, cause = explanation.sentence.partition(": ")
            html = self._templates.render(
                "decision.html",
                time=record.time,
                change=change,
                cause=cause,
                direction=_direction(record),
                explanation=explanation,
                headings=METRIC_HEADINGS,
                link=hpa_url(key, decision=record.time),
                is_open=record.time == selection.decision,
            )
            items.append(Markup(html))  # noqa: S704  # rendered, and so escaped
        return items


def _direction(record: DecisionRecord) -> str:
    if record.desired_replicas is None:
        return "failed"
    if not scales(record):
        return "none"
    return "up" if record.desired_replicas > (record.current_replicas or 0) else "down"
