"""The page of one HPA: status, charts of its kept decisions or by Prometheus, the decisions explained, its settings."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlencode
from weakref import WeakValueDictionary

import msgspec
from markupsafe import Markup
from msgspec.structs import replace

from autoscaler.core.config import Config, Pause, PodSelection
from autoscaler.core.model import HPA, HPAKey, ScalingRules
from autoscaler.core.replica_calculator import Tolerances
from autoscaler.records.build import metric_record
from autoscaler.records.decision_log import DecisionLog
from autoscaler.records.explanation import METRIC_HEADINGS, details, heading, metric_cells
from autoscaler.records.metric_lookup import metric_url
from autoscaler.records.record import DecisionRecord
from autoscaler.records.sentence import with_sentence
from autoscaler.ui.figures import Point, figure, scales
from autoscaler.ui.history import RANGES, HistoryError
from autoscaler.ui.page_context import HPAsPage, PageContext
from autoscaler.ui.rows import hpa_url
from kube.aio.fairness import Throttle
from kube.aio.tasks import in_slices
from kube.security.request_info import Query
from kube.values.durations import format_duration
from kube.web.event_stream import ServerEvent
from kube.web.live import View
from kube.web.pages import PageRequest

PAGE_SIZE: Final = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionQuery:
    """Which decisions the list shows: the newest ones that fulfil the conditions."""

    scaling_only: bool = False
    """Only decisions that change the replicas."""
    decision: str = ""
    """The time of one, which is shown open, with those before it; empty: none."""
    before: str = ""
    """Only decisions before this time; empty: all."""

    @classmethod
    def parse(cls, query: Query) -> DecisionQuery:
        """Return the selection of a request."""
        return cls(
            scaling_only=query.get("show") == "scaling", decision=query.get("decision"), before=query.get("before")
        )

    @property
    def is_newest(self) -> bool:
        """True if the list begins with the newest decision."""
        return not self.decision and not self.before

    def includes(self, record: DecisionRecord) -> bool:
        """Return True if the record may be shown. All times have the same format, so they compare as texts."""
        if self.scaling_only and record.time != self.decision and not scales(record):
            return False
        return not (self.decision and record.time > self.decision) and not (self.before and record.time >= self.before)


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Charts:
    """The charts of an HPA."""

    points: Mapping[int, Point]
    """{number in the log: point}, oldest first."""
    figure: str
    """JSON for plotly.js; empty if there are no decisions."""


class DecisionCharts:
    """The charts of the kept decisions. Open pages of the same HPA share them, since they may take megabytes."""

    def __init__(self, log: DecisionLog) -> None:
        self._log = log
        self._charts: WeakValueDictionary[HPAKey, Charts] = WeakValueDictionary()

    async def of(self, key: HPAKey, numbers: Sequence[int]) -> Charts:
        """Return the charts of an HPA, whose kept decisions have these numbers."""
        charts = self._charts.get(key, Charts({}, ""))
        points = dict(charts.points)
        async for number in in_slices(each for each in numbers if each not in points):
            if (record := self._log.get(number)) is not None:  # it may be dropped meanwhile
                points[number] = Point.of(record)
        kept = {number: points[number] for number in numbers if number in points}
        if kept.keys() != charts.points.keys():
            charts = Charts(kept, await asyncio.to_thread(_figure_json, list(kept.values())) if kept else "")
            self._charts[key] = charts
        return charts


def _figure_json(points: Sequence[Point]) -> str:
    return msgspec.json.encode(figure(points)).decode()


class HPAPage(HPAsPage):
    """The page of one HPA. Its events replace its parts, and add new decisions to the list unless `list=no`."""

    template = "hpa.html"
    parts = ("hpa_live.html",)

    def __init__(self, context: PageContext, request: PageRequest, key: HPAKey, charts: DecisionCharts) -> None:
        super().__init__(context, request)
        self._charts = charts
        self._key = key
        self._selection = DecisionQuery.parse(request.query)
        self._show = "scaling" if self._selection.scaling_only else ""
        self._with_list = request.query.get("list") != "no"
        self._range = request.query.get("range") if request.query.get("range") in RANGES else ""
        options = {"show": self._show} if self._selection.is_newest else {"list": "no"}
        options["range"] = self._range
        self.events_url = hpa_url(key, "events", **options)
        self._last = 0
        """The number of the newest decision that the page has."""

    async def check(self) -> None:
        """Raises StatusError: 403 if the user may not see the namespace, 404 if there is no such HPA."""
        await self.context.visible_hpa(self.user, self._key)

    def state(self) -> tuple[HPA | None, int]:
        """See HPAsPage."""
        return self.sources.hpa(self._key), self.sources.decisions.newest(self._key)

    async def load(self, throttle: Throttle) -> View:
        """Return the present state, and the decisions that are new. Raises StatusError as `check`."""
        self.shown = self.state()
        hpa = await self.context.visible_hpa(self.user, self._key)
        numbers = self.sources.decisions.numbers(self._key)
        async with throttle.slot(self.user_name):
            charts = await self._charts.of(self._key, numbers)
            listed = await self._listed(number for number in reversed(numbers) if number > self._last)
            items = await self._rendered(listed[:PAGE_SIZE]) if self._with_list else []
        self._last = max(numbers, default=self._last)
        new = [ServerEvent("decisions", "".join(items))] if items else []
        last = self.context.decision(max(numbers, default=0))
        metrics = () if hpa.problem else hpa.spec.metrics
        pods = "" if last is None else last.pod_selector
        urls = [metric_url(metric_record(metric), hpa.namespace, pods) for metric in metrics]
        shown = {"last": last, "suggestions": await self._suggestions(last), "metric_urls": urls}
        shown |= await self._history(charts)
        return View(values={**self._values(hpa, charts, listed), "decisions": items, **shown}, events=new)

    async def _listed(self, numbers: Iterable[int]) -> list[DecisionRecord]:
        """Return the decisions of a page of the list, newest first, and one more if there are older ones."""
        listed: list[DecisionRecord] = []
        async for number in in_slices(numbers):
            record = self.sources.decisions.get(number)
            if record is not None and self._selection.includes(record):
                listed.append(record)
                if len(listed) > PAGE_SIZE:
                    break
        return listed

    async def _suggestions(self, last: DecisionRecord | None) -> dict[str, dict[str, str]]:
        """Return the metrics of the last decision that do not exist, with {similar name: URL of its page}."""
        if last is None or self.sources.metric_names is None:
            return {}
        namespace, pods = last.namespace, last.pod_selector
        return {
            metric.name: {name: metric_url(replace(metric, name=name), namespace, pods) for name in names}
            for metric, names in await self.sources.metric_names.suggestions(last)
        }

    async def _history(self, charts: Charts) -> dict[str, Any]:
        """Return the charts by Prometheus, if a range was chosen or there are no decisions, and the ranges."""
        history, problem = self.sources.history, ""
        chosen = self._range or ("" if charts.points else next(iter(RANGES)))
        figure = charts.figure
        if history is None:
            chosen = ""
        elif chosen:
            try:
                figure = await history.charts(self._key, chosen)
            except HistoryError as error:
                figure, problem = "", str(error)
        links = {name: (label, hpa_url(self._key, range=name)) for name, (label, _) in RANGES.items()}
        return {
            # No `<` may end the script element.
            "figure": Markup(figure.replace("<", "\\u003c")),  # noqa: S704
            "range": chosen,
            "ranges": links if history is not None else {},
            "history_problem": problem,
        }

    def _values(self, hpa: HPA, charts: Charts, listed: Sequence[DecisionRecord]) -> dict[str, Any]:
        sources, key, selection = self.sources, self._key, self._selection
        older = listed[PAGE_SIZE - 1].time if len(listed) > PAGE_SIZE else ""
        return {
            "hpa": hpa,
            "row": self.context.row(hpa),
            "problem": sources.problem(),
            "is_leader": sources.is_leader(),
            "number": len(charts.points),
            "no_decisions": "" if charts.points else self._why_none(hpa),
            "selection": selection,
            "page_size": PAGE_SIZE,
            "found": not selection.decision or any(each.time == selection.decision for each in listed),
            "settings": [] if hpa.problem else list(settings(hpa, sources.config, sources.sync_period)),
            "links": {
                "namespace": "/?" + urlencode({"namespace": key.namespace}),
                "all": hpa_url(key),
                "scaling": hpa_url(key, show="scaling"),
                "older": older and hpa_url(key, show=self._show, before=older),
                "newest": hpa_url(key, show=self._show),
                "what_if": hpa_url(key, "what-if"),
            },
        }

    def _why_none(self, hpa: HPA) -> str:
        """Return why there is no decision on an HPA."""
        sources = self.sources
        if not sources.owns(hpa.key):
            return "another shard of the autoscaler reconciles this HPA: open the pages of that shard's leader"
        if not sources.is_leader():
            return "this process is not the leader, so it makes no decisions: open the pages of the leader"
        if hpa.problem:
            return "the HPA is not reconciled, because its spec is invalid"
        if not sources.decisions.keeps:
            return "this process keeps no decisions: start it with --kept-decisions=20"
        return "the HPA was not reconciled yet, or memory for its decisions was needed for newer ones of other HPAs"

    async def _rendered(self, records: Iterable[DecisionRecord]) -> list[Markup]:
        """Return the items of the list."""
        items = []
        async for record in in_slices(records):
            html = self.context.templates.render(
                "decision.html",
                record=with_sentence(record),
                direction=_direction(record),
                heading=heading(record),
                metric_headings=METRIC_HEADINGS,
                metric_cells=metric_cells,
                details=details(record),
                link=hpa_url(self._key, decision=record.time),
                is_open=record.time == self._selection.decision,
            )
            items.append(Markup(html))  # noqa: S704  # rendered, and so escaped
        return items


def _direction(record: DecisionRecord) -> str:
    if record.desired_replicas is None:
        return "failed"
    if not scales(record):
        return "none"
    return "up" if record.desired_replicas > (record.current_replicas or 0) else "down"


_ANNOTATION: Final = "annotation"
_FLAG: Final = "flag"
_SELECT: Final = {"Max": "the larger", "Min": "the smaller"}


def settings(hpa: HPA, config: Config, sync_period: float) -> Iterator[tuple[str, str]]:
    """Yield (name, text) of the settings in effect, with where each is from unless that is obvious.

    Args:
        hpa: an HPA whose spec is valid.
        config: the controller's flags.
        sync_period: the controller's, in seconds.
    """
    spec, overrides, effective = hpa.spec, hpa.overrides, hpa.overrides.apply_to(config)
    yield "bounds", f"{spec.min_replicas} to {spec.max_replicas}"
    behavior = spec.behavior
    tolerances, default = Tolerances.of(behavior, effective.tolerance), _source(overrides.tolerance)
    down = default if behavior is None or behavior.scale_down.tolerance is None else "behavior"
    up = default if behavior is None or behavior.scale_up.tolerance is None else "behavior"
    yield "tolerance", f"{tolerances.scale_down:g} down ({down}), {tolerances.scale_up:g} up ({up})"
    window = format_duration(effective.downscale_stabilization_ms / 1000)
    window = f"{window} ({_source(overrides.downscale_stabilization_ms)})"
    if behavior is None:
        yield "scale up", "without behavior, a sync at most doubles the replicas, or goes to 4"
        yield "scale down", f"stabilization window {window}"
    else:
        yield "scale up", _rules(behavior.scale_up, window="0s")
        yield "scale down", _rules(behavior.scale_down, window=window)
    period = overrides.sync_period or sync_period
    yield "sync period", f"{format_duration(period)} ({_source(overrides.sync_period)})"
    if effective.paused is not Pause.NONE:
        yield "paused", f"{effective.paused} ({_ANNOTATION})"
    if effective.fallback is not None:
        fallback = effective.fallback
        failures = f"after {fallback.failure_threshold} syncs with a failed metric"
        yield "fallback", f"at least {fallback.replicas} replicas {failures} ({_ANNOTATION})"
    if effective.pod_selection is not PodSelection.SELECTOR:
        yield "pods", f"selected by {effective.pod_selection} ({_ANNOTATION})"


def _source(override: object) -> str:
    return _FLAG if override is None else _ANNOTATION


def _rules(rules: ScalingRules, *, window: str) -> str:
    """`window`: the one that counts unless the rules have one."""
    if rules.select_policy == "Disabled":
        return "disabled"
    if rules.stabilization_window_seconds is not None:
        window = format_duration(float(rules.stabilization_window_seconds))
    policies = [
        f"{each.value}{'%' if each.type == 'Percent' else ' pods' if each.value != 1 else ' pod'} "
        f"per {format_duration(float(each.period_seconds))}"
        for each in rules.policies
    ]
    most = " or ".join(policies)
    if len(policies) > 1:
        most += f", {_SELECT.get(rules.select_policy, rules.select_policy)}"
    return f"at most {most}; stabilization window {window}"
