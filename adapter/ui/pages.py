"""The paths of the pages.

/                     all rules; `q` and `show=problems` choose rows
/events               changes of these, as server-sent events
/rules/KEY            one rule, such as /rules/rules[2]; `q` and `page` choose series
/rules/KEY/events     its changes
/objects              the objects with rules; `q`, `show=problems` and `page` choose rows
/objects/events       its changes
/object               one of them; `kind`, `namespace`, `name`; `rule` is the number of one of several rules
/object/events        its changes
/metric               one metric, explained; `metric`, `namespace`, `name`, `labelSelector`, `metricLabelSelector`
/metric/events        its changes
/try                  check the rule of the parameter `rule`; `section` is rules or externalRules
/static/FILE          styles and scripts

They show all namespaces. So on an address that is not a loopback one, each requires the right to `get` the
nonResourceURL below /debug that has the same content: /debug/rules, or /debug/metrics/RESOURCE/METRIC. A rule that is
tried can query everything in Prometheus, so that requires a right of its own: /debug/try.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final
from urllib.parse import quote, urlencode

from aiohttp import web

from adapter.rules.objects import ObjectName
from adapter.ui.formatting import age_text, metric_target, object_url, rule_url, time_text
from adapter.ui.live import CheckAccess
from adapter.ui.metric_page import MetricForm, MetricPage
from adapter.ui.object_pages import ObjectFilter, ObjectPage, ObjectsPage
from adapter.ui.overview import Overview, RuleFilter
from adapter.ui.reports import Reports
from adapter.ui.rule_page import RulePage
from adapter.ui.sources import Sources
from adapter.ui.trial import Trials
from adapter.ui.trial_page import TrialPage
from kube.api.status import not_found
from kube.security.authorization import Authorizer
from kube.security.request_info import Query, RequestInfo
from kube.values.durations import format_duration
from kube.web.event_stream import EventStream
from kube.web.requests import PageRequest
from kube.web.static_files import StaticFiles
from kube.web.templates import Templates

_RULES_RIGHT: Final = "/debug/rules"
_TRY_RIGHT: Final = "/debug/try"
_SAME_ORIGIN: Final = "same-origin"  # browsers before 2023 do not send the header
# The parameters of the list of objects, and of the page of one.
_LIST: Final = ("q", "show", "page")
_ONE: Final = ("kind", "namespace", "name", "rule")
# Between two updates of a page of figures, and of one for which Prometheus is queried.
_FIGURES_SECONDS: Final = 2.0
_QUERIES_SECONDS: Final = 10.0
_FINDINGS_SECONDS: Final = 1.0


class AdapterPages:
    """Responds to requests for the pages; see kube.web.requests.Pages.

    Args:
        sources: what the pages read.
        authorizer: reviews access; None: on a loopback address, where everyone may see everything.
        tick_seconds: the time between two updates of an open page; None: each page has its own.
        findings_seconds: how long the first view waits for the findings of `check`, which follow live.
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
        self._authorizer = authorizer
        self.static = StaticFiles(["kube.web", "adapter.ui"])
        self.templates = Templates(
            "adapter.ui",
            process="adapter",
            static=self.static.url,
            age_text=age_text,
            duration=format_duration,
            metric_target=metric_target,
            object_url=object_url,
            rule_url=rule_url,
            time_text=time_text,
        )
        reports = Reports(sources, clock=clock)
        figures, queries = (_FIGURES_SECONDS, _QUERIES_SECONDS) if tick_seconds is None else (tick_seconds,) * 2
        self._overview = Overview(
            sources, reports, self.templates, tick_seconds=figures, findings_seconds=findings_seconds
        )
        self._rule = RulePage(sources, reports, self.templates, tick_seconds=queries)
        self._objects = ObjectsPage(sources, self.templates, tick_seconds=queries)
        self._object = ObjectPage(sources, reports, self.templates, tick_seconds=queries)
        self._metric = MetricPage(reports, self.templates, tick_seconds=queries)
        self._trial = TrialPage(Trials(sources), self.templates)

    async def respond(self, request: PageRequest) -> web.StreamResponse:
        """Return the response. Raises StatusError."""
        query = request.query
        match request.segments:
            case () | ("events",):
                rule_filter = RuleFilter(query.get("q").strip(), query.get("show") == "problems")
                check = await self._checked(request, _RULES_RIGHT)
                if request.segments:
                    return EventStream(self._overview.events(rule_filter, check))
                return _html(await self._overview.page(rule_filter, events=_url("/events", query, "q", "show")))
            case ("rules", key) | ("rules", key, "events"):
                check = await self._checked(request, _RULES_RIGHT)
                text, number = query.get("q").strip(), _number(query, "page", 1)
                if len(request.segments) == 3:
                    events = self._rule.events(key, text=text, page=number, check_access=check)
                    return EventStream(events)
                url = _url(f"/rules/{quote(key)}/events", query, "q", "page")
                return _html(await self._rule.page(key, text=text, page=number, events=url))
            case ("objects",) | ("objects", "events"):
                check = await self._checked(request, _RULES_RIGHT)
                shown = ObjectFilter(query.get("q").strip(), query.get("show") == "problems", _number(query, "page", 1))
                if len(request.segments) == 2:
                    return EventStream(self._objects.events(shown, check_access=check))
                return _html(await self._objects.page(shown, events=_url("/objects/events", query, *_LIST)))
            case ("object",) | ("object", "events"):
                check = await self._checked(request, _RULES_RIGHT)
                name = ObjectName(query.get("kind"), query.get("namespace"), query.get("name"))
                number = _number(query, "rule", 0)
                if len(request.segments) == 2:
                    return EventStream(self._object.events(name, number=number, check_access=check))
                return _html(await self._object.page(name, number=number, events=_url("/object/events", query, *_ONE)))
            case ("metric",) | ("metric", "events"):
                form = MetricForm.parse(query)
                right = f"/debug/metrics/{form.target}" if form.target is not None else _RULES_RIGHT
                check = await self._checked(request, right)
                if len(request.segments) == 2:
                    return EventStream(self._metric.events(form, check_access=check))
                return _html(await self._metric.page(form, events=_url("/metric/events", query, *form.texts)))
            case ("try",):
                await self._checked(request, _TRY_RIGHT)
                # A link of another site, or of a mail, must not run queries with the rights of who follows it.
                is_own = request.raw.headers.get("Sec-Fetch-Site", _SAME_ORIGIN) == _SAME_ORIGIN
                return _html(await self._trial.page(query.get("rule"), query.get("section"), runs=is_own))
        raise not_found("there is no such page")

    async def _checked(self, request: PageRequest, path: str) -> CheckAccess:
        """Check that the user may `get` a path; return a function that checks it again.

        Raises:
            StatusError: 403 if not, 500 or 503 if the API server did not decide.
        """
        authorizer, user = self._authorizer, request.user

        async def check() -> None:
            """Check the right of the user now. Raises StatusError."""
            if authorizer is not None:
                assert user is not None, "requests on other addresses than loopback are authenticated"
                await authorizer.authorize(user, RequestInfo(verb="get", path=path))

        await check()
        return check


def _html(text: str) -> web.Response:
    return web.Response(text=text, content_type="text/html", charset="utf-8")


def _url(path: str, query: Query, *parameters: str) -> str:
    """Return the URL of a page's events, with some of the page's parameters."""
    given = [(name, query.get(name)) for name in parameters if query.get(name)]
    return f"{path}?{urlencode(given)}" if given else path


def _number(query: Query, parameter: str, default: int) -> int:
    text = query.get(parameter)
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 7 else default
