"""/debug on the running server: the reports of `check` and `explain` about the catalog in use.

    /debug/rules                          every rule; `examples=N` queries values of N metrics of each rule; and every
                                          object with rules, those that serve a namespace with `namespace`
    /debug/metrics/RESOURCE/METRIC        one metric; `namespace`, `name`, `labelSelector`, `metricLabelSelector`
    /debug/metrics/external/METRIC
    /debug/config                         the flags, and the rules file, without secrets

Reading them requires the right to `get` the nonResourceURL. They show series, queries and values of all namespaces, so
grant it to the operators of the cluster only. /debug/config is also for clients inside the pod, see --debug-endpoints.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

import msgspec

from adapter.catalog.catalog import Catalog
from adapter.catalog.inventory import Source
from adapter.catalog.rule_states import Reason
from adapter.diagnosis.check import check, paused_findings
from adapter.diagnosis.explain import Target, explain
from adapter.diagnosis.lint import in_order
from adapter.diagnosis.probe import Probe, Selection
from adapter.diagnosis.report import ObjectReport, Report
from adapter.forecasts.registry import Forecasts
from adapter.planning.coalescer import Pause
from adapter.rule_objects.controller import RuleObjects
from adapter.rule_objects.state import ObjectState
from kube.aio.tasks import in_slices
from kube.api.client import KubeError
from kube.api.mapping import ResourceLookup
from kube.api.status import bad_request, not_found, service_unavailable
from kube.process.config_page import ConfigPage
from kube.security.request_info import Query
from kube.values.selectors import LabelSelector, SelectorError
from kube.web.explanation import Explanation

_MAX_EXAMPLES = 100
_SHOWN_PROBLEMS = 10
_NO_API_SERVER = "the API server, which knows the resources, does not respond"


@dataclass(frozen=True, slots=True)
class DebugPages:
    """Responds to requests under /debug.

    `objects` are those with rules; `forecasts` are the running ones; `paused` returns the groups of requests whose
    coalescing is paused; `config` returns /debug/config.
    """

    catalog: Catalog
    lookup: ResourceLookup
    probe: Probe
    objects: RuleObjects
    forecasts: Forecasts
    paused: Callable[[], Iterable[tuple[str, Pause]]] = tuple
    config: Callable[[], Awaitable[ConfigPage]] | None = None

    async def respond(self, segments: tuple[str, ...], query: Query) -> Report | Explanation | ConfigPage:
        """Return the page for the path's `segments` after "debug".

        Raises:
            StatusError: 404 for an unknown page, 400 for an invalid parameter, 503 while the API server is unavailable.
        """
        match segments:
            case ("config",) if self.config is not None:
                return await self.config()
            case ("rules",):
                report = await self.check(examples=_examples(query))
                findings = (*report.findings, *paused_findings(self.paused()))
                return msgspec.structs.replace(
                    report,
                    findings=in_order(findings, self.catalog.rules),
                    objects=await object_reports(self.objects, namespace=query.get("namespace")),
                )
            case ("metrics", resource, metric):
                selection = Selection(
                    namespace=query.get("namespace"),
                    name=query.get("name"),
                    selector=_selector(query, "labelSelector") if "labelSelector" in query else None,
                    metric_selector=_selector(query, "metricLabelSelector"),
                )
                return await self.explain(Target.parse(f"{resource}/{metric}"), selection)
        raise not_found("the server could not find the requested resource")

    async def check(self, *, examples: int) -> Report:
        """Check the rules, and query the values of some metrics of each. Raises StatusError (503)."""
        try:
            return await check(self.catalog, self.lookup, self.probe, knows_cluster=True, examples=examples)
        except KubeError as error:
            raise service_unavailable(_NO_API_SERVER) from error

    async def explain(self, target: Target, selection: Selection) -> Explanation:
        """Explain a metric. Raises StatusError (503)."""
        try:
            return await explain(
                target,
                selection,
                catalog=self.catalog,
                lookup=self.lookup,
                probe=self.probe,
                problems=partial(object_problems, self.objects),
                forecasts=self._forecasts_of,
            )
        except KubeError as error:
            raise service_unavailable(_NO_API_SERVER) from error

    async def _forecasts_of(self, source: Source, selection: Selection) -> tuple[str, ...]:
        return self.forecasts.sentences(source.rule.key, selection.namespace)


def _examples(query: Query) -> int:
    text = query.get("examples", "1")
    if not text.isascii() or not text.isdecimal() or int(text[:9]) > _MAX_EXAMPLES:
        raise bad_request(f"examples must be a number from 0 to {_MAX_EXAMPLES}, not {text!r}")
    return int(text)


def _selector(query: Query, parameter: str) -> LabelSelector:
    try:
        return LabelSelector.parse(query.get(parameter))
    except SelectorError as error:
        raise bad_request(str(error)) from error


async def object_reports(objects: RuleObjects, *, namespace: str = "") -> tuple[ObjectReport, ...]:
    """Return the reports of all objects that serve a namespace, or of all, by kind, namespace and name."""
    names = sorted(one.name for one in objects.objects() if not namespace or one.name.namespace in ("", namespace))
    reports = []
    async for name in in_slices(names):
        state = objects.state(name)
        if state is not None:
            reports.append(object_report(state))
    return tuple(reports)


def object_report(state: ObjectState) -> ObjectReport:
    """Return the report of an object."""
    name = state.object.name
    return ObjectReport(
        kind=name.kind,
        namespace=name.namespace,
        name=name.name,
        reason=state.reason.value,
        message=state.message,
        metrics=state.metrics,
    )


def object_problems(objects: RuleObjects, namespace: str) -> Iterator[str]:
    """Yield why objects that could serve a namespace, or any, serve nothing; for `explain`."""
    found = (objects.state(one.name) for one in objects.objects() if one.name.namespace in ("", namespace))
    failed = [state for state in found if state is not None and state.reason is not Reason.READY]
    for state in failed[:_SHOWN_PROBLEMS]:
        yield f"{state.object.name} is not served ({state.reason}): {state.message}"
    if len(failed) > _SHOWN_PROBLEMS:
        yield f"{len(failed) - _SHOWN_PROBLEMS} more objects are not served"
