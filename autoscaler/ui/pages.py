"""The paths of the pages.

/                                        all HPAs; `q`, `namespace`, `show`, `sort`, `page` choose rows
/events                                  changes of these rows, as server-sent events
/hpas/NAMESPACE/NAME                     one HPA; `group=milliscale.io` for one of that API
/hpas/NAMESPACE/NAME/events              its decisions, as server-sent events
/hpas/NAMESPACE/NAME/what-if             its kept decisions with another spec
/metric                                  one metric, as the adapter explains it; `metric`, `namespace`, ...
/static/FILE                             styles and scripts
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from typing import Final
from urllib.parse import urlencode

from aiohttp import web

from autoscaler.core.model import HPA_APIS, KUBERNETES, HPAKey
from autoscaler.core.status import rfc3339
from autoscaler.records.metric_lookup import PARAMETERS, debug_path
from autoscaler.ui.access import NamespaceAccess
from autoscaler.ui.hpa_page import DecisionCharts, HPAPage
from autoscaler.ui.listing import ListPage, ListRows
from autoscaler.ui.page_context import PageContext
from autoscaler.ui.sources import Sources
from autoscaler.ui.what_if import WhatIfPage
from kube.aio.fairness import FairSemaphore, Throttle
from kube.api.client import KubeError
from kube.api.status import StatusError, not_found
from kube.web.live import LivePages, Page, View
from kube.web.pages import PageRequest, StaticFiles, Templates
from kube.web.plotly import plotly_js


class MetricPage(Page):
    """The page about the metric of the parameter `metric`.

    This process reads it with its own rights, after a review that the user has the right which the adapter requires.
    """

    template = "metric.html"
    in_thread = True  # an explanation may have a mebibyte

    def __init__(self, context: PageContext, request: PageRequest) -> None:
        self._context = context
        self.user = request.user
        self._parameters = {name: request.query.get(name) for name in ("metric", *PARAMETERS) if name in request.query}

    async def check(self) -> None:
        """Raises StatusError: 400 for a name of no metric, 403 if the user may not see it."""
        await self._context.access.require_path(self.user, debug_path(self._parameters.get("metric", "")))

    async def load(self, _: Throttle) -> View:
        """Return what the adapter says, or why it says nothing."""
        sources, explanation, problem = self._context.sources, None, ""
        try:
            explanation = await sources.explain_metric(self._parameters)
        except (StatusError, KubeError) as error:
            problem = f"the adapter's explanation cannot be read: {error}"
        on_adapter = sources.adapter_ui_url and f"{sources.adapter_ui_url}/metric?{urlencode(self._parameters)}"
        values = {"explanation": explanation, "problem": problem, "parameters": self._parameters}
        return View(values={**values, "on_adapter": on_adapter})


_STYLE_ID: Final = re.compile(r'getElementById\("([0-9a-f]{64})"\)')
"""In plotly.js: the id of a style element, which it adds unless there is an element of this id."""


@functools.cache
def _static_files() -> tuple[StaticFiles, list[str]]:
    """Return the files, and the ids of plotly's style elements; once, because compression takes 50 ms."""
    plotly = plotly_js()
    files = StaticFiles(["kube.web", "autoscaler.ui"], {"plotly.min.js": plotly.encode()})
    return files, sorted(set(_STYLE_ID.findall(plotly)))


class UIPages:
    """Responds to requests for the pages; see kube.web.pages.Pages."""

    def __init__(self, sources: Sources, access: NamespaceAccess) -> None:
        self.static, style_ids = _static_files()
        self.templates = Templates(
            "autoscaler.ui",
            process="autoscaler",
            static=self.static.url,
            plotly_style_ids=style_ids,
            rfc3339=rfc3339,
        )
        self._context = PageContext(sources, access, self.templates)
        self._rows = ListRows(self._context)
        self._charts = DecisionCharts(sources.decisions)
        # One replay of a what-if runs at a time, and users are served round robin.
        self._replays = FairSemaphore(1, max_waiting=sources.what_if_settings.waiting_per_user)
        self._live = LivePages(self.templates)

    async def respond(self, request: PageRequest) -> web.StreamResponse:
        """Return the response. Raises StatusError."""
        events = request.segments[-1:] == ("events",)
        page = self._page(request.segments[:-1] if events else request.segments, request)
        return await self._live.respond(page, events=events)

    def _page(self, segments: Sequence[str], request: PageRequest) -> Page:
        match segments:
            case ():
                return ListPage(self._context, request, self._rows)
            case ("hpas", namespace, name):
                return HPAPage(self._context, request, _key(request, namespace, name), self._charts)
            case ("hpas", namespace, name, "what-if"):
                return WhatIfPage(self._context, request, _key(request, namespace, name), self._replays)
            case ("metric",):
                return MetricPage(self._context, request)
        raise not_found("there is no such page")


def _key(request: PageRequest, namespace: str, name: str) -> HPAKey:
    group = request.query.get("group", KUBERNETES.group)
    if group not in (api.group for api in HPA_APIS):
        raise not_found(f"there is no API group {group} of HPAs")
    return HPAKey(namespace, name, group)
