"""Specs of MetricRules, each with what the API server says against it."""

from __future__ import annotations

from typing import Any, Final

Spec = dict[str, Any]

SHORT: Final[Spec] = {"type": "External", "metric": "queue_length", "query": "sum(queue_messages)"}
PODS: Final[Spec] = {"type": "Pods", "metric": "requests", "query": "sum(rate(requests_total[2m])) by (pod)"}
OBJECT: Final[Spec] = {
    "type": "Object",
    "metric": "requests",
    "query": "sum(rate(requests_total[2m])) by (ingress)",
    "labels": {"ingress": "ingress.networking.k8s.io"},
}
LONG: Final[Spec] = {
    "type": "Pods",
    "seriesQuery": 'requests_total{namespace!="",pod!=""}',
    "resources": {"template": "<<.Resource>>"},
    "metricsQuery": "sum(rate(<<.Series>>{<<.LabelMatchers>>}[2m])) by (<<.GroupBy>>)",
}
WINDOW: Final[Spec] = {"start": "0 8 * * 1-5", "end": "0 18 * * 1-5", "value": 12}
SCHEDULE: Final[Spec] = {
    "type": "External",
    "metric": "office_hours",
    "schedule": {"timezone": "Europe/Berlin", "windows": [WINDOW]},
}


CALENDAR: Final = """BEGIN:VCALENDAR
BEGIN:VEVENT
UID:christmas
DTSTART;VALUE=DATE:20261225
END:VEVENT
END:VCALENDAR
"""


def without(spec: Spec, *keys: str) -> Spec:
    """Return a spec without some of its keys."""
    return {key: value for key, value in spec.items() if key not in keys}


def _schedule(**keys: Any) -> Spec:
    return {**SCHEDULE, "schedule": {**SCHEDULE["schedule"], **keys}}


VALID: Final[dict[str, Spec]] = {
    "short": SHORT,
    "short with a namespace label": {**SHORT, "labels": {"ns": "namespace"}},
    "short with policies": {**SHORT, "prometheus": "default", "nan": "missing", "inf": "error", "empty": "zero"},
    "short of pods": PODS,
    "short of pods, with labels": {**PODS, "labels": {"k8s.pod.name": "pod", "namespace": "namespace"}},
    "short of objects": OBJECT,
    "short of cluster-scoped objects": {**OBJECT, "labels": {"node": "node"}},
    "short of objects, with a namespace label": {**OBJECT, "labels": {**OBJECT["labels"], "ns": "namespaces"}},
    "long": LONG,
    "long with everything": {
        **LONG,
        "seriesFilters": [{"is": "^requests"}, {"isNot": "_created$"}],
        "name": {"matches": "^(.*)_total$", "as": "${1}_per_second"},
        "resources": {"overrides": {"pod": {"resource": "pod"}, "deploy": {"group": "apps", "resource": "deployment"}}},
        "maxAge": "1h30m",
    },
    "long of an external metric": {**LONG, "type": "External", "resources": {"namespaced": False}},
    "schedule": SCHEDULE,
    "schedule with everything": _schedule(
        default="1.5",
        windows=[{**WINDOW, "value": "500m", "ramp": "10m"}],
        dates=[{"from": "2026-12-24T08:00", "until": "2026-12-24T18:00", "value": 20, "ramp": "1h"}],
        holidays={"calendar": CALENDAR, "value": 1},
    ),
    "activation": {**SHORT, "activation": {"threshold": 5}},
    "activation with a duration": {**SHORT, "activation": {"threshold": "0.5", "for": "2m"}},
    "forecast": {**SHORT, "forecast": {"horizon": "5m"}},
    "forecast of pods": {
        **PODS,
        "forecast": {
            "horizon": "10m",
            "history": "3w",
            "timezone": "Europe/Berlin",
            "ceiling": 1.2,
            "as": "expected",
        },
    },
    "forecast of series": {**LONG, "forecast": {"horizon": "90s", "ceiling": 2, "gate": "2.5%", "as": "${0}_expected"}},
}

CLUSTER_ONLY: Final[dict[str, tuple[Spec, str]]] = {
    "headers": ({**SHORT, "headers": {"X-Scope-OrgID": "team-a"}}, "headers is only for ClusterMetricRules"),
    "merge": ({**LONG, "merge": "never"}, "merge is only for ClusterMetricRules"),
}
"""Specs that only ClusterMetricRules may have, and what is said against them in a MetricRule."""

NAMESPACED_ONLY: Final[dict[str, tuple[Spec, str]]] = {
    "pods without a namespace": ({**PODS, "labels": {"pod": "pod"}}, "which label names the namespace, such as"),
}
"""Specs that only MetricRules may have, and what is said against them in a ClusterMetricRule."""

_ONE_FORM: Final = "give exactly one of query, seriesQuery with metricsQuery, and schedule"
_DURATION: Final = "must be a duration of more than 0, such as 90s, 5m or 1h30m"
_UP_TO_A_DAY: Final = "to 24h, such as 90s, 5m or 1h30m"
_UP_TO_TWO_HOURS: Final = "must be a duration from 1m to 2h"
_LONG_ONLY: Final = "seriesFilters, name, resources, maxAge and merge are only for seriesQuery"

INVALID: Final[dict[str, tuple[Spec, str]]] = {
    "no type": (without(SHORT, "type"), "spec.type: Required value"),
    "another type": ({**SHORT, "type": "Resource"}, 'supported values: "External", "Pods", "Object"'),
    "no form": (without(SHORT, "query"), _ONE_FORM),
    "two forms": ({**SHORT, "schedule": SCHEDULE["schedule"]}, _ONE_FORM),
    "query with metricsQuery": ({**SHORT, "metricsQuery": "up"}, _ONE_FORM),
    "three forms": ({**LONG, **SHORT, "schedule": SCHEDULE["schedule"]}, _ONE_FORM),
    "no metricsQuery": (without(LONG, "metricsQuery"), "seriesQuery and metricsQuery belong together; give both"),
    "no seriesQuery": (without(LONG, "seriesQuery"), "seriesQuery and metricsQuery belong together; give both"),
    "no metric": (without(SHORT, "metric"), "metric is required with query and with schedule"),
    "schedule without metric": (without(SCHEDULE, "metric"), "metric is required with query and with schedule"),
    "metric in the long form": ({**LONG, "metric": "requests"}, "with seriesQuery, name.as names the metrics"),
    "empty metric": ({**SHORT, "metric": ""}, "spec.metric in body should be at least 1 chars long"),
    "metric with a slash": ({**SHORT, "metric": "a/b"}, "spec.metric in body should match"),
    "metric of two dots": ({**SHORT, "metric": ".."}, "cannot be . or .."),
    "empty query": ({**SHORT, "query": ""}, "spec.query in body should be at least 1 chars long"),
    "long query": ({**SHORT, "query": "a" * 16385}, "spec.query: Too long: may not be more than 16384 bytes"),
    "name in the short form": ({**SHORT, "name": {"as": "a"}}, _LONG_ONLY),
    "resources in the short form": ({**PODS, "resources": {"template": "<<.Resource>>"}}, _LONG_ONLY),
    "maxAge in the short form": ({**SHORT, "maxAge": "5m"}, _LONG_ONLY),
    "maxAge in a schedule": ({**SCHEDULE, "maxAge": "5m"}, _LONG_ONLY),
    "a filter with both": ({**LONG, "seriesFilters": [{"is": "a", "isNot": "b"}]}, "exactly one of is and isNot"),
    "a filter with neither": ({**LONG, "seriesFilters": [{}]}, "give exactly one of is and isNot"),
    "an override without resource": (
        {**LONG, "resources": {"overrides": {"pod": {"group": ""}}}},
        "spec.resources.overrides.pod.resource: Required value",
    ),
    "maxAge of nothing": ({**LONG, "maxAge": "0s"}, _DURATION),
    "maxAge in days": ({**LONG, "maxAge": "1d"}, _DURATION),
    "labels in the long form": ({**LONG, "labels": {"pod": "pod"}}, "with seriesQuery, write resources.overrides"),
    "labels in a schedule": ({**SCHEDULE, "labels": {"ns": "namespace"}}, "labels is only for query"),
    "a label of two words": ({**OBJECT, "labels": {"a": "Ingress A"}}, "spec.labels.a in body should match"),
    "labels of two resources": (
        {**OBJECT, "labels": {"a": "service", "b": "ingress.networking.k8s.io"}},
        "labels can name one resource and the namespace; write one rule per resource",
    ),
    "labels of two namespaces": (
        {**OBJECT, "labels": {**OBJECT["labels"], "a": "namespace", "b": "namespaces"}},
        "only one of the labels can name the namespace",
    ),
    "External with an object": ({**SHORT, "labels": {"pod": "pod"}}, "labels can name only the namespace"),
    "Pods without a pod": ({**PODS, "labels": {"ns": "namespace"}}, "which label names the pod, such as {pod: pod}"),
    "Object without labels": (without(OBJECT, "labels"), "which label names the object, such as {ingress:"),
    "Object with empty labels": ({**OBJECT, "labels": {}}, "which label names the object, such as {ingress:"),
    "a schedule of pods": ({**SCHEDULE, "type": "Pods"}, "schedule is only for type External"),
    "a schedule with a server": ({**SCHEDULE, "prometheus": "a"}, "remove prometheus, headers, nan, inf and empty"),
    "a schedule with a policy": ({**SCHEDULE, "empty": "zero"}, "remove prometheus, headers, nan, inf and empty"),
    "a schedule's window without end": (_schedule(windows=[without(WINDOW, "end")]), "windows[0].end: Required value"),
    "a schedule's word": (_schedule(default="many"), "spec.schedule.default in body should match"),
    "a schedule's negative integer": (_schedule(windows=[{**WINDOW, "value": -1}]), "greater than or equal to 0"),
    "a schedule's negative text": (_schedule(windows=[{**WINDOW, "value": "-1"}]), "value in body should match"),
    "a schedule's ramp": (_schedule(windows=[{**WINDOW, "ramp": "10"}]), _UP_TO_A_DAY),
    "a schedule's ramp of a second": (_schedule(windows=[{**WINDOW, "ramp": "1s"}]), f"from 5s {_UP_TO_A_DAY}"),
    "a schedule's ramp of two days": (_schedule(windows=[{**WINDOW, "ramp": "48h"}]), _UP_TO_A_DAY),
    "activation of a schedule": ({**SCHEDULE, "activation": {"threshold": 1}}, "activation is only for type External"),
    "activation of pods": ({**PODS, "activation": {"threshold": 1}}, "activation is only for type External"),
    "activation without a threshold": ({**SHORT, "activation": {"for": "1m"}}, "activation.threshold: Required value"),
    "activation of a wrong duration": ({**SHORT, "activation": {"threshold": 1, "for": "soon"}}, _UP_TO_A_DAY),
    "forecast of a schedule": ({**SCHEDULE, "forecast": {"horizon": "5m"}}, "forecast is not for schedule"),
    "forecast without a horizon": ({**SHORT, "forecast": {"gate": "3%"}}, "forecast.horizon: Required value"),
    "forecast of a wrong horizon": ({**SHORT, "forecast": {"horizon": "soon"}}, _UP_TO_TWO_HOURS),
    "forecast of a long horizon": ({**SHORT, "forecast": {"horizon": "3h"}}, _UP_TO_TWO_HOURS),
    "forecast without a ceiling": (
        {**SHORT, "forecast": {"horizon": "5m", "ceiling": 0.9}},
        "greater than or equal to 1",
    ),
    "another policy": ({**SHORT, "nan": "one"}, 'supported values: "zero", "missing", "error"'),
    "merge in the short form": ({**SHORT, "merge": "never"}, _LONG_ONLY),
}
"""Specs that neither kind may have, and what the API server says against them."""

SCHEMA_ONLY: Final = ("long query", "a label of two words")
"""Those that only the API server refuses: the adapter has no limit of its own for them."""
