"""The adapter's pages over canned series and values."""

from __future__ import annotations

import html
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import cast

from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from adapter.diagnosis.checker import RuleChecker
from adapter.diagnosis.probe import Probe
from adapter.forecasts.registry import Forecasts
from adapter.metrics.forward import Forwarder
from adapter.metrics.objects import ListedObjects
from adapter.planning.coalescer import MetricsQueryCoalescer
from adapter.planning.vectors import VectorCache
from adapter.prometheus import PrometheusOptions
from adapter.rule_objects.controller import RuleObjects
from adapter.rules import parse_rules
from adapter.serving.debug_pages import DebugPages
from adapter.serving.reload import RulesReloader
from adapter.serving.routes import Router
from adapter.serving.rule_sets import RuleSet, RuleSets
from adapter.ui.pages import AdapterPages
from adapter.ui.reports import Sources
from kube.security.authentication import User
from kube.security.authorization import Authorizer
from kube.security.request_info import Target
from kube.web.event_stream import EventStream, ServerEvent
from kube.web.pages import PageRequest
from tests.adapter.metrics_env import NOW, CannedPrometheus, MetricsEnv, metrics_env


@dataclass
class PagesEnv:
    """The pages, and what they read; a test may change each part."""

    metrics: MetricsEnv
    prometheus: CannedPrometheus
    sources: Sources
    pages: AdapterPages
    now: float = NOW
    monotonic: float = 0.0

    @property
    def active(self) -> RuleSet:
        """The active rules."""
        return self.sources.active

    def use_authorizer(self, authorizer: Authorizer) -> None:
        """Replace the pages by ones that review access."""
        self.pages = AdapterPages(self.sources, authorizer, tick_seconds=0.0)

    async def get(self, path: str, *, user: User | None = None, site: str = "same-origin") -> str:
        """Return the HTML of a page; `site` is where the link to it is."""
        response = await self.pages.respond(request(path, user=user, site=site))
        assert isinstance(response, web.Response)
        assert response.text is not None
        return response.text

    async def text(self, path: str) -> str:
        """Return the text of a page."""
        return text_of(await self.get(path))

    async def events(self, path: str, *, user: User | None = None) -> AsyncIterator[ServerEvent]:
        """Return the events of a page."""
        response = await self.pages.respond(request(path, user=user))
        assert isinstance(response, EventStream)
        return response.events


def request(path: str, *, user: User | None = None, site: str = "same-origin") -> PageRequest:
    target = Target.parse(path)
    raw = make_mocked_request("GET", target.path, headers={"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "navigate"})
    return PageRequest(segments=target.segments, query=target.query, user=user, raw=raw)


def text_of(markup: str) -> str:
    """Return the text of some HTML, on one line."""
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", markup)).split())


def element(markup: str, identifier: str) -> str:
    """Return the HTML from the element of an id on."""
    assert f'id="{identifier}"' in markup
    return markup[markup.index(f'id="{identifier}"') :]


@asynccontextmanager
async def pages_env(
    folder: Path,
    rules: str,
    prometheus: CannedPrometheus,
    *,
    rule_objects: RuleObjects | None = None,
    forecasts: Forecasts | None = None,
) -> AsyncIterator[PagesEnv]:
    """The pages for some rules, which have been listed once, and for rules in objects."""
    parsed, forecasts = parse_rules(rules, source="rules.yaml"), forecasts or Forecasts()
    async with metrics_env(folder, parsed, prometheus) as metrics, VectorCache(prometheus, ttl=60.0) as cache:
        await metrics.catalog.relist()
        objects = ListedObjects(metrics.client)
        active = RuleSet(
            rules=parsed,
            catalog=metrics.catalog,
            cache=cache,
            forwarder=Forwarder(parsed.forward, relist_interval=60.0),
            coalescer=MetricsQueryCoalescer(cache, telemetry=metrics.telemetry),
            router=cast("Router", None),  # the pages read the others
            debug=DebugPages(
                metrics.catalog,
                metrics.mapper,
                Probe(metrics.catalog, prometheus, objects, metrics.mapper),
                rule_objects or metrics.rule_objects,
                forecasts,
            ),
        )
        shared = SimpleNamespace(
            telemetry=SimpleNamespace(rules=metrics.telemetry),
            rule_objects=rule_objects or metrics.rule_objects,
            forecasts=forecasts,
            relist_interval=60.0,
            freshness=60.0,
        )
        rule_sets = SimpleNamespace(current=active, shared=shared, applied_at=NOW - 100, gone={})
        sources = Sources(
            rule_sets=cast("RuleSets", rule_sets),
            rules_file=cast("RulesReloader", SimpleNamespace(path="/etc/adapter/rules.yaml", problem=None)),
            default_server=PrometheusOptions(url="http://user:secret@prometheus:9090"),
            rule_checker=RuleChecker(prometheus, metrics.mapper, objects, max_age=120.0),
            clock=lambda: env.now,
        )
        pages = AdapterPages(sources, None, tick_seconds=0.0, findings_seconds=60.0, clock=lambda: env.monotonic)
        env = PagesEnv(metrics, prometheus, sources, pages)
        yield env
