"""The page of one metric: what `explain` says about it."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from adapter.diagnosis.explain import Target, TargetError
from adapter.diagnosis.probe import Selection
from adapter.serving.rule_sets import RuleSet
from adapter.ui.forecast_picture import picture_of
from adapter.ui.formatting import metric_target
from adapter.ui.reports import Reports
from adapter.ui.sources import Sources
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
    """The form.

    Attributes:
        texts: what was entered in each field, by parameter.
        target: the metric; None if there is none, or a field is wrong.
        selection: the objects.
        errors: what is wrong, by parameter.
    """

    texts: Mapping[str, str]
    target: Target | None
    selection: Selection
    errors: Mapping[str, str]

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
    found = sources.forecasts.of_rule(rule, form.selection.namespace)
    now = sources.clock()
    pictures = [await asyncio.to_thread(picture_of, one, now) for one in found[:_PICTURES]]
    forecasts = {"forecasts": pictures, "more_forecasts": len(found) - len(pictures)}
    return View(values={**values, **forecasts, "metrics": _some_metrics(sources.active())})


def _some_metrics(active: RuleSet) -> list[str]:
    """Return metrics to choose from, as `explain` takes them."""
    names = (metric_target(str(source)) for part in active.catalog.snapshot.parts for source in part)
    return sorted(dict.fromkeys(itertools.islice(names, _OFFERED)))
