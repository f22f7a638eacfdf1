"""The pages of a controller that is simulated."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from html.parser import HTMLParser
from unittest.mock import AsyncMock
from urllib.parse import urlencode

from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from autoscaler.core.config import Config, Mode
from autoscaler.core.model import HPA, HPAKey
from autoscaler.records.build import build_record
from autoscaler.records.decision_log import DecisionLog
from autoscaler.records.metric_lookup import MetricNames
from autoscaler.records.record import DecisionRecord
from autoscaler.records.sentence import with_sentence
from autoscaler.ui.access import NamespaceAccess
from autoscaler.ui.history import PrometheusHistory
from autoscaler.ui.pages import UIPages
from autoscaler.ui.sources import Sources, WhatIf, WhatIfError
from kube.security.authentication import User
from kube.security.request_info import Query
from kube.web.event_stream import EventStream
from kube.web.explanation import Explanation
from kube.web.pages import PageRequest
from tests.autoscaler.simulated_cluster import SimulatedCluster


async def no_what_if(*_: object, **__: object) -> None:
    raise WhatIfError("no what-if here")


@dataclass
class Controller:
    """What the pages read. Each HPA in `hpas` has the key of its place."""

    hpas: dict[HPAKey, HPA] = field(default_factory=dict)
    kept: int = 100
    leader: bool = True
    config: Config = field(default_factory=Config)
    own: bool = True
    problem: str | None = None
    metric_names: MetricNames | None = None
    adapter_ui_url: str = ""
    history: PrometheusHistory | None = None
    explain_metric: Callable[[Mapping[str, str]], Awaitable[Explanation]] = field(default_factory=AsyncMock)
    what_if: Callable[..., object] = no_what_if
    access: NamespaceAccess = field(default_factory=lambda: NamespaceAccess(None))

    def __post_init__(self) -> None:
        self.changes = 0
        self.log = DecisionLog(self.kept)
        self.pages = UIPages(self.sources, self.access)

    @property
    def sources(self) -> Sources:
        what_if: WhatIf = self.what_if  # type: ignore[assignment]
        return Sources(
            hpas=lambda: list(self.hpas.values()),
            hpa=self.hpas.get,
            mode_of=lambda hpa: hpa.overrides.mode or Mode.ACT,
            is_foreign=lambda _: False,
            owns=lambda _: self.own,
            is_leader=lambda: self.leader,
            decisions=self.log,
            version=lambda: self.changes + self.log.added,
            config=self.config,
            sync_period=15.0,
            what_if=what_if,
            problem=lambda: self.problem,
            metric_names=self.metric_names,
            adapter_ui_url=self.adapter_ui_url,
            history=self.history,
            explain_metric=self.explain_metric,
        )

    def add(self, hpa: HPA) -> HPA:
        """Add or replace an HPA."""
        self.hpas[hpa.key] = hpa
        self.changes += 1
        return hpa

    def remove(self, key: HPAKey) -> None:
        """Remove an HPA."""
        del self.hpas[key]
        self.changes += 1

    def reconcile(self, simulated: SimulatedCluster, *values: int | str, seconds: int = 15) -> DecisionRecord:
        """Reconcile, store the HPA and its decision, and return the record with its sentence."""
        outcome = simulated.reconcile(*values, seconds=seconds)
        assert simulated.decision is not None
        self.add(simulated.hpa)
        record = build_record(outcome)
        self.log.add(record)
        return with_sentence(record)

    async def get(self, *segments: str, user: User | None = None, **query: str) -> web.StreamResponse:
        """Return the response to a request. Raises StatusError."""
        raw = make_mocked_request("GET", "/" + "/".join(segments))
        request = PageRequest(segments=segments, query=Query.parse(urlencode(query)), user=user, raw=raw)
        return await self.pages.respond(request)

    async def html(self, *segments: str, user: User | None = None, **query: str) -> Document:
        """Return a page."""
        response = await self.get(*segments, user=user, **query)
        assert isinstance(response, web.Response)
        assert response.text is not None
        return Document(response.text)

    async def stream(self, *segments: str, user: User | None = None, **query: str) -> EventStream:
        """Return a stream of events."""
        response = await self.get(*segments, user=user, **query)
        assert isinstance(response, EventStream)
        return response


@dataclass
class Element:
    """An element with the elements and texts in it."""

    tag: str
    attributes: Mapping[str, str | None]
    children: list[Element | str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """The text of the element, with single spaces."""
        return " ".join(" ".join(self._texts()).split())

    def find_all(self, tag: str = "", **attributes: str) -> list[Element]:
        """Return the elements below this one of a tag that have these attributes, `class_` among their classes."""
        found: list[Element] = []
        for child in self.children:
            if isinstance(child, Element):
                if child.tag == (tag or child.tag) and child.has(**attributes):
                    found.append(child)
                found += child.find_all(tag, **attributes)
        return found

    def find(self, tag: str = "", **attributes: str) -> Element:
        """Return the only such element."""
        (found,) = self.find_all(tag, **attributes)
        return found

    def has(self, **attributes: str) -> bool:
        """Return True if the element has these attributes."""
        classes = (self.attributes.get("class") or "").split()
        return all(
            value in classes if name == "class_" else self.attributes.get(name) == value
            for name, value in attributes.items()
        )

    def _texts(self) -> list[str]:
        return [text for each in self.children for text in ([each] if isinstance(each, str) else each._texts())]


class Document(Element):
    """A page, or a part of one."""

    def __init__(self, html: str) -> None:
        super().__init__("", {})
        self.html = html
        _Builder(self).feed(html)


class _Builder(HTMLParser):
    _VOID = ("meta", "link", "input", "br", "hr", "img", "wbr")

    def __init__(self, root: Element) -> None:
        super().__init__()
        self._open = [root]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, dict(attrs))
        self._open[-1].children.append(element)
        if tag not in self._VOID:
            self._open.append(element)

    def handle_endtag(self, tag: str) -> None:
        assert self._open[-1].tag == tag, f"</{tag}> closes <{self._open[-1].tag}>"
        self._open.pop()

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._open[-1].children.append(Element(tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self._open[-1].children.append(data)
