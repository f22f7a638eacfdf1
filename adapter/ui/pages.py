"""The paths of the pages.

/                     all rules; `q` and `show=problems` choose rows
/rules/KEY            one rule, such as /rules/rules[2]; `q` and `page` choose series
/objects              the objects with rules; `q`, `show=problems` and `page` choose rows
/object               one of them; `kind`, `namespace`, `name`; `rule` is the number of one of several rules
/metric               one metric, explained; `metric`, `namespace`, `name`, `labelSelector`, `metricLabelSelector`
PAGE/events           changes of a page above, as server-sent events
/try                  check the rule of the parameter `rule`; `section` is rules or externalRules
/static/FILE          styles and scripts

They show all namespaces. So on an address that is not a loopback one, each requires the right to `get` the
nonResourceURL below /debug that has the same content: /debug/rules, or /debug/metrics/RESOURCE/METRIC. A rule that is
tried can query everything in Prometheus, so that requires a right of its own: /debug/try.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final
from urllib.parse import quote, urlencode

from aiohttp import web

from adapter.forecasts.options import number_text
from adapter.rules.objects import ObjectName
from adapter.ui.formatting import age_text, metric_target, object_url, rule_url, time_text
from adapter.ui.metric_page import MetricForm, metric_view
from adapter.ui.overview import SECTIONS, Overview
from adapter.ui.reports import Reports, Sources
from adapter.ui.rule_page import RESOURCE_RULES, object_view, objects_view, resource_rules_view, rule_view
from adapter.ui.trial import Trials, trial_view
from kube.aio.fairness import Throttle
from kube.api.status import not_found
from kube.security.authentication import User
from kube.security.authorization import Authorizer
from kube.security.request_info import Query, RequestInfo
from kube.values.durations import format_duration
from kube.web.live import LivePages, Page, View
from kube.web.pages import PageRequest, StaticFiles, Templates

_RULES_RIGHT: Final = "/debug/rules"
_TRY_RIGHT: Final = "/debug/try"
_SAME_ORIGIN: Final = "same-origin"  # browsers before 2023 do not send the header
# Between two updates of a page of figures, and of one for which Prometheus is queried.
_FIGURES_SECONDS: Final = 2.0
_QUERIES_SECONDS: Final = 10.0
_FINDINGS_SECONDS: Final = 1.0


@dataclass(kw_only=True)
class _Page(Page):
    """A page that is read again every few seconds."""

    template: str
    read: Callable[[], Awaitable[View]]
    """Returns the view. Raises StatusError."""
    right: str = _RULES_RIGHT
    """The path that the user must have the right to `get`."""
    parts: Sequence[str] = ()
    seconds: float = _QUERIES_SECONDS
    """Between two updates."""
    in_thread: bool = True
    user: User | None = None
    events_url: str = ""
    authorizer: Authorizer | None = None
    """Reviews access; None: on loopback."""

    async def check(self) -> None:
        if self.authorizer is not None:
            assert self.user is not None, "requests on other addresses than loopback are authenticated"
            await self.authorizer.authorize(self.user, RequestInfo(verb="get", path=self.right))

    async def load(self, _: Throttle) -> View:
        return await self.read()

    async def wait(self) -> None:
        await asyncio.sleep(self.seconds)


class AdapterPages:
    """Responds to requests for the pages; see kube.web.pages.Pages.

    Args:
        sources: what the pages read.
        authorizer: reviews access; None: on a loopback address, where everyone may see everything.
        tick_seconds: the time between two updates of an open page; None: each page has its own.
        findings_seconds: how long a view waits for the findings of `check`, which follow live.
        clock: monotonic, in seconds.
    """

    def __init__(
        self,
        sources: Sources,
        authorizer: Authorizer | None,
        *,
        tick_seconds: float | None = None,
        findings_seconds: float = _FINDINGS_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._sources = sources
        self._authorizer = authorizer
        self._tick_seconds = tick_seconds
        self.static = StaticFiles(["kube.web", "adapter.ui"])
        self.templates = Templates(
            "adapter.ui",
            process="adapter",
            static=self.static.url,
            age_text=age_text,
            duration=format_duration,
            metric_target=metric_target,
            number_text=number_text,
            object_url=object_url,
            rule_url=rule_url,
            time_text=time_text,
        )
        self._live = LivePages(self.templates)
        self._reports = Reports(sources, clock=clock)
        self._overview = Overview(sources, self._reports, self.templates, findings_seconds=findings_seconds)
        self._trials = Trials(sources)

    async def respond(self, request: PageRequest) -> web.StreamResponse:
        """Return the response. Raises StatusError."""
        events = request.segments[-1:] == ("events",)
        segments = request.segments[:-1] if events else request.segments
        page = self._page(segments, request)
        page.user, page.authorizer = request.user, self._authorizer
        if page.parts:
            page.events_url = _url([*segments, "events"], request.query)
            page.seconds = page.seconds if self._tick_seconds is None else self._tick_seconds
        return await self._live.respond(page, events=events)

    def _page(self, segments: Sequence[str], request: PageRequest) -> _Page:
        sources, reports, query = self._sources, self._reports, request.query
        text, problems = query.get("q").strip(), query.get("show") == "problems"
        match segments:
            case ():
                digest = sources.active.rules.digest
                return _Page(
                    template="overview.html",
                    parts=SECTIONS,
                    read=partial(self._overview.view, digest, text=text, problems=problems),
                    seconds=_FIGURES_SECONDS,
                )
            case ("rules", key) if key == RESOURCE_RULES:
                return _Page(
                    template="rule.html",
                    parts=("_rule_examples.html",),
                    read=partial(resource_rules_view, sources, reports),
                )
            case ("rules", key):
                return _Page(
                    template="rule.html",
                    parts=("_rule_facts.html", "_rule_findings.html", "_rule_examples.html", "_rule_series.html"),
                    read=partial(rule_view, sources, reports, key, text=text, page=_number(query, "page", 1)),
                )
            case ("objects",):
                return _Page(
                    template="objects.html",
                    parts=("_objects.html",),
                    read=partial(objects_view, sources, text=text, problems=problems, page=_number(query, "page", 1)),
                )
            case ("object",):
                name = ObjectName(query.get("kind"), query.get("namespace"), query.get("name"))
                return _Page(
                    template="object.html",
                    parts=("_object_facts.html", "_rule_findings.html", "_rule_examples.html"),
                    read=partial(object_view, sources, reports, name, number=_number(query, "rule", 0)),
                )
            case ("metric",):
                form = MetricForm.parse(query)
                return _Page(
                    template="metric.html",
                    parts=("explanation.html", "_forecasts.html") if form.target is not None else (),
                    read=partial(metric_view, sources, reports, form),
                    right=f"/debug/metrics/{form.target}" if form.target is not None else _RULES_RIGHT,
                )
            case ("try",):
                # A link of another site, or of a mail, must not run queries with the rights of who follows it.
                is_own = request.raw.headers.get("Sec-Fetch-Site", _SAME_ORIGIN) == _SAME_ORIGIN
                return _Page(
                    template="try.html",
                    read=partial(trial_view, self._trials, query.get("rule"), query.get("section"), runs=is_own),
                    right=_TRY_RIGHT,
                )
        raise not_found("there is no such page")


def _url(segments: Sequence[str], query: Query) -> str:
    parameters = urlencode([(name, text) for name, text in query.pairs if text])
    return f"/{'/'.join(map(quote, segments))}{parameters and f'?{parameters}'}"


def _number(query: Query, parameter: str, default: int) -> int:
    text = query.get(parameter)
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 7 else default
