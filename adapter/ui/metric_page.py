"""The page of one metric: what `explain` says about it, and pictures of its forecasts, as paths of SVG."""

from __future__ import annotations

import asyncio
import itertools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from adapter.diagnosis.explain import Target, TargetError
from adapter.diagnosis.probe import Selection
from adapter.forecasts.options import number_text
from adapter.forecasts.registry import Forecast
from adapter.serving.rule_sets import RuleSet
from adapter.ui.formatting import metric_target
from adapter.ui.reports import Reports, Sources
from kube.api.status import StatusError
from kube.security.request_info import Query
from kube.values.selectors import LabelSelector, SelectorError
from kube.web.explanation import Explanation
from kube.web.live import View

_OFFERED: Final = 1000
"""The maximum of metrics in the list of the form's field."""
_PICTURES: Final = 5
_FIELDS: Final = ("metric", "namespace", "name", "labelSelector", "metricLabelSelector")


@dataclass(frozen=True, slots=True)
class MetricForm:
    """The form."""

    texts: Mapping[str, str]
    """What was entered in each field, by parameter."""
    target: Target | None
    """The metric; None if there is none, or a field is wrong."""
    selection: Selection
    """The objects."""
    errors: Mapping[str, str]
    """What is wrong, by parameter."""

    @classmethod
    def parse(cls, query: Query) -> MetricForm:
        """Read the parameters of a request."""
        texts = {field: query.get(field).strip() for field in _FIELDS}
        errors: dict[str, str] = {}
        target = None
        if texts["metric"]:
            try:
                target = Target.parse(texts["metric"])
            except TargetError as error:
                errors["metric"] = str(error)
        selectors = {}
        for field in ("labelSelector", "metricLabelSelector"):
            try:
                selectors[field] = LabelSelector.parse(texts[field])
            except SelectorError as error:
                errors[field] = str(error)
        if texts["name"] and texts["labelSelector"]:
            errors.setdefault("labelSelector", "give a name or a label selector, not both")
        if errors:
            return cls(texts, None, Selection(), errors)
        selection = Selection(
            namespace=texts["namespace"],
            name=texts["name"],
            selector=selectors["labelSelector"] if texts["labelSelector"] else None,
            metric_selector=selectors["metricLabelSelector"],
        )
        return cls(texts, target, selection, errors)


async def metric_view(sources: Sources, reports: Reports, form: MetricForm) -> View:
    """Return what `explain` says, and the forecasts of its rule; without a metric only the form."""
    explanation: Explanation | None = None
    problem = ""
    if form.target is not None:
        try:
            explanation = await reports.explanation(form.target, form.selection)
        except StatusError as error:
            problem = error.message
    values = {"form": form, "explanation": explanation, "problem": problem, "in_namespace": form.texts["namespace"]}
    rule = explanation.rule if explanation is not None else ""
    found = sources.shared.forecasts.of_rule(rule, form.selection.namespace)
    now = sources.clock()
    pictures = [await asyncio.to_thread(picture_of, one, now) for one in found[:_PICTURES]]
    forecasts = {"forecasts": pictures, "more_forecasts": len(found) - len(pictures)}
    return View(values={**values, **forecasts, "metrics": _some_metrics(sources.active)})


def _some_metrics(active: RuleSet) -> list[str]:
    """Return metrics to choose from, as `explain` takes them."""
    names = (metric_target(str(source)) for part in active.catalog.snapshot.parts for source in part)
    return sorted(dict.fromkeys(itertools.islice(names, _OFFERED)))


_WIDTH: Final = 720
_HEIGHT: Final = 160
_STEP_MINUTES: Final = 5
_DAY_SECONDS: Final = 86_400
_TICK_HOURS: Final = 6
_FULL: Final = 0.95
"""The share of the height that the highest value takes."""


def picture_of(forecast: Forecast, now: float) -> Mapping[str, object]:
    """Return what a page shows of a forecast. Takes some hundredths of a second: call it in a worker thread.

    `value` and `expected` are lines of the last day, "" if its history has not been read; `usual` and `next` are lines
    of the next day: the median of the last 7 days, and the forecast if the load is like that. `highest` is the value at
    the upper edge, `ticks` are (position, time) every 6 hours on the clocks of the rule's time zone, and `hours` the
    next 24 hours.
    """
    live = forecast.live
    shown = {"title": str(forecast.key), "sentence": forecast.sentence, "judgement": forecast.judgement}
    if live is None:
        return shown
    day, hours = live.day(now), live.next_day(now)
    steps = [day[start : start + _STEP_MINUTES] for start in range(0, len(day), _STEP_MINUTES)]
    lines: dict[str, list[tuple[float, float | None]]] = {
        "value": [(step[0][0], _highest(value for _, value, _ in step)) for step in steps],
        "expected": [(step[0][0], _highest(expected for *_, expected in step)) for step in steps],
        "usual": [(hour.start.timestamp(), hour.usual) for hour in hours],
        "next": [(hour.start.timestamp(), hour.expected) for hour in hours],
    }
    top = _highest(value for line in lines.values() for _, value in line) or 1.0
    begin = datetime.fromtimestamp(now - _DAY_SECONDS, live.options.zone).replace(minute=0, second=0, microsecond=0)
    times = (datetime.fromtimestamp(begin.timestamp() + 3600 * hour, begin.tzinfo) for hour in range(1, 49))
    ticks = [time for time in times if not time.hour % _TICK_HOURS]
    return {
        **shown,
        **{name: _path(line, now, top) for name, line in lines.items()},
        "width": _WIDTH,
        "height": _HEIGHT,
        "highest": number_text(top / _FULL),
        "ticks": [(round(_x(tick.timestamp(), now), 1), f"{tick:%H:%M}") for tick in ticks],
        "hours": hours,
    }


def _x(at: float, now: float) -> float:
    """Return the position of a time; that of now is the middle."""
    return _WIDTH / 2 * (1 + (at - now) / _DAY_SECONDS)


def _path(line: Iterable[tuple[float, float | None]], now: float, top: float) -> str:
    """Return the commands of a line of (time, value); None is a gap."""
    commands, is_gap = [], True
    for at, value in line:
        if value is not None:
            y = _HEIGHT * (1 - _FULL * value / top)
            commands.append(f"{'M' if is_gap else 'L'}{round(_x(at, now), 1)} {round(y, 1)}")
        is_gap = value is None
    return "".join(commands)


def _highest(values: Iterable[float | None]) -> float | None:
    return max((each for each in values if each is not None and math.isfinite(each)), default=None)
