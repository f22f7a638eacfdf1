"""The expected response to a case: the recorded one, except for intended differences.

Each exception is one function, `_name(expected, case)`, which recognizes its cases by their content, not by their
number, so that it also applies to new cases. Its docstring describes what prometheus-adapter does ("there") and the
expected response. Exceptions are applied in the order of `_EXCEPTIONS`.
"""

from __future__ import annotations

import copy
import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from kube.values.selectors import Operator
from tests.golden.bodies import recorded_document
from tests.golden.cases import RECORDED, Case, read_cases
from tests.golden.measured import METRICS, SUMMED, UNAGGREGATED, MetricRequest, metric_items, quantity, selected

NOT_KEPT: Final = object()
"""The document of a response whose body was too long to be recorded."""

OWN: Final = "(our own)"
"""A placeholder for any text."""

_GARBAGE: Final = "-9223372036854775808m"
_STATUS: Final = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
_TOLERANCE: Final = 0.01
# Kubernetes' resources that the adapter has no right to list, as in paths: with or without the group.
_NOT_LISTABLE: Final = {"deployments", "replicasets", "statefulsets", "daemonsets", "jobs", "configmaps", "secrets"}
_LABEL_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SLOW: Final = {"503json", "504", "slow"}
_PARTIAL: Final = {"warn"}
_QUERY_IS_WRONG: Final = {"422json", "400json", "scalar", "string", "matrix"}
_VERSION_KEYS: Final = ("major", "minor", "gitVersion", "gitCommit", "buildDate", "goVersion", "compiler", "platform")
_PEERS_OWN_PATHS: Final = re.compile(r"/(statusz|(health|live|ready)z/(log|informer-sync|poststarthook/.*))$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """The expected response."""

    statuses: tuple[int, ...]
    """Any of these."""
    content_type: str
    """Exactly; up to the version for Prometheus' text format."""
    document: Any
    """The decoded body, see bodies; NOT_KEPT if only its size and form can be checked."""
    part: bool = False
    """The response may have more than the document: keys of objects, and entries of lists with names."""
    says: tuple[str, ...] = ()
    """Texts that a Status' message must contain; if there are any, the rest of the message is not compared."""
    queries: tuple[str, ...] | None
    """The PromQL that Prometheus must get, each once; None if they are not compared."""
    tolerance: float = 0.0
    """The relative difference that values may have."""

    def error(self, code: int, reason: str, message: str = "", *, says: tuple[str, ...] = ()) -> Expected:
        """The same with a Status in place of the document; with `says` in place of the message."""
        document = {**_STATUS, "message": message, "reason": reason, "code": code}
        return replace(self, statuses=(code,), document=document, says=says)

    def items(self, items: list[Any]) -> Expected:
        """The same with other items in its list."""
        return replace(self, document={**self.document, "items": items})


def expected_responses(case: Case, *, is_real: bool) -> tuple[Expected, ...]:
    """Return the possible responses to a case, through a real kube-apiserver or the playground's.

    There are several only if the API server and the adapter both enforce the deadline of a forwarded request.
    """
    document = recorded_document(case)
    result = Expected(
        statuses=(case.status,),
        content_type=case.content_type,
        document=NOT_KEPT if document is None else copy.deepcopy(document),
        part="(shown: only" in case.title,
        queries=None if case.fault == "down" else case.queries,
        tolerance=_TOLERANCE if any("rate(" in query for query in case.queries) else 0.0,
    )
    for exception in _EXCEPTIONS:
        result = exception(result, case)
    own = _complete_timeout(result, case)
    if is_real and _has_forwarded_deadline(case):
        return replace(result, queries=None), own
    return (own,)


def needs_kube_apiserver(case: Case) -> bool:
    """Return True if the API server itself responds, in a way that the playground's does not support.

    That is the aggregated discovery of all groups, versions that an APIService does not register, and methods that no
    HTTP parser but Go's takes.
    """
    if case.via != "aggregator":
        return False
    if case.segments == ("apis",):
        return "APIGroupDiscoveryList" in (case.header("Accept") or "")
    if case.segments[:1] == ("openapi",):
        return True
    unregistered = len(case.segments) == 3 and case.status == 404 and case.content_type.startswith("text/plain")
    return unregistered or case.method == "FOO"


def _core_group(result: Expected, _: Case) -> Expected:
    """The apiVersion of core objects is "/v1" there. Expected: "v1"."""
    for item in _items(result):
        described = item.get("describedObject", {})
        if described.get("apiVersion") == "/v1":
            described["apiVersion"] = "v1"
    return result


def _name_of_series(result: Expected, _: Case) -> Expected:
    """External metrics without aggregation have `__name__` among their labels there. Expected: without."""
    for item in _items(result):
        (item.get("metricLabels") or {}).pop("__name__", None)
    return result


def _no_garbage(result: Expected, case: Case) -> Expected:
    """Infinite and huge values become the least integer there. Expected: left out; 404 for a single object."""
    items = _items(result)
    kept = [item for item in items if item.get("value") != _GARBAGE]
    if len(kept) == len(items):
        return result
    if kept or case.is_external or MetricRequest.by(case).name == "*":
        return result.items(kept)
    return result.error(404, "NotFound", MetricRequest.by(case).not_found)


def _first_of_several(result: Expected, case: Case) -> Expected:
    """Of several samples of one object the last wins there. Expected: the first in the order of labels."""
    if case.is_external or not _items(result) or MetricRequest.by(case).metric not in UNAGGREGATED:
        return result
    items = []
    for item in result.document["items"]:
        described = item["describedObject"]
        first = next(one for one in selected(case) if one.labels.get(described["kind"].lower()) == described["name"])
        items.append({**item, "value": quantity(first.value)})
    return result.items(items)


def _malformed_metric_selector(result: Expected, case: Case) -> Expected:
    """A metricLabelSelector that cannot be parsed is 500 without a reason there. Expected: 400 as for labelSelector."""
    if case.status == 500 and case.series_selector is None:
        return replace(result.error(400, "BadRequest", result.document["message"]), queries=None)
    return result


def _not_equals(result: Expected, case: Case) -> Expected:
    """`a!=b` in a metric selector is 500 there if there are values. Expected: it works."""
    message = result.document.get("message", "") if isinstance(result.document, dict) else ""
    if case.status != 500 or message != '"!=" is not a valid label selector operator' or case.series_selector is None:
        return result
    requested, items = MetricRequest.by(case), metric_items(case)
    if requested.name != "*" and not items:
        return result.error(404, "NotFound", requested.not_found)
    return replace(result, statuses=(200,), document=_metric_list(case, items))


def _unsupported_selector(result: Expected, case: Case) -> Expected:
    """`>` and `<`, and keys that are no label names, are 404 or 500 there. Expected: 400 that says what is wrong."""
    if case.status not in (404, 500) or case.series_selector is None or case.fault is not None:
        return result
    if MetricRequest.by(case).metric not in METRICS:
        return result
    for requirement in case.series_selector.requirements:
        if not _LABEL_NAME.fullmatch(requirement.key):
            return replace(result.error(400, "BadRequest", says=(requirement.key,)), queries=None)
        if requirement.operator in (Operator.GREATER_THAN, Operator.LESS_THAN):
            says = ("Prometheus selectors have no such operator",)
            return replace(result.error(400, "BadRequest", says=says), queries=None)
    return result


def _objects_not_listed(result: Expected, case: Case) -> Expected:
    """`*` on an unknown resource, and on one that must not be listed, is 500 there.

    Expected: 404 for the former, and for the latter 403 or 500 that names the missing right.
    """
    if case.status != 500 or "unable to list matching resources" not in str(result.document):
        return result
    requested = MetricRequest.by(case)
    resource = requested.resource.partition(".")[0]
    if resource not in _NOT_LISTABLE:
        message = f"the server could not find the metric {requested.metric} for {requested.resource}"
        return replace(result.error(404, "NotFound", message), queries=None)
    status = {key: value for key, value in _STATUS.items() if key != "metadata"}
    return replace(result, statuses=(403, 500), document={**status, "message": ""}, part=True, says=("list", resource))


def _prometheus_fails(result: Expected, case: Case) -> Expected:
    """Every failure of Prometheus is 500 there. Expected: 503 if it is unavailable or broken, 504 if it is slow.

    The message names the rule. Invalid queries are still 500, with the rule. A response with the warning of a store is
    used there.
    """
    fails = "unable to fetch metrics" in str(result.document) or case.fault in _PARTIAL
    if case.fault is None or not fails:
        return result
    says = ("externalRules[" if case.is_external else "rules[",)
    if case.fault in _QUERY_IS_WRONG:
        return replace(result.error(500, "InternalError", says=says), part=True)  # the details repeat the message
    code, reason = (504, "Timeout") if case.fault in _SLOW else (503, "ServiceUnavailable")
    return result.error(code, reason, says=says)


def _complete_timeout(result: Expected, case: Case) -> Expected:
    """A request's own deadline gives an incomplete Status as text there. Expected: a complete one.

    Its message may also name the step that took too long.
    """
    if case.status != 504:
        return result
    complete = result.error(504, "Timeout", says=("Timeout: ",))
    return replace(complete, content_type="application/json", part=True, queries=None)


def _has_forwarded_deadline(case: Case) -> bool:
    """Return True if a kube-apiserver enforces the deadline itself, too, with its own message."""
    return case.via == "aggregator" and "timeout" in case.query


def _aggregated_discovery(result: Expected, case: Case) -> Expected:
    """Aggregated discovery is empty there if requested directly. Expected: complete, like ordinary discovery."""
    if case.via != "direct" or "as=APIGroupDiscoveryList" not in case.content_type:
        return result
    custom, external = _discovered("custom.metrics.k8s.io"), _discovered("external.metrics.k8s.io")
    metrics: dict[str, list[str]] = {}
    for resource, _, metric in (name.partition("/") for name in custom):
        metrics.setdefault(resource, []).append(metric)
    of_objects: list[dict[str, Any]] = [
        {"resource": resource, "subresources": [{"subresource": metric} for metric in found]}
        for resource, found in metrics.items()
    ]
    versions: dict[str, dict[str, list[dict[str, Any]]]] = {
        "custom.metrics.k8s.io": {"v1beta2": of_objects, "v1beta1": of_objects},
        "external.metrics.k8s.io": {"v1beta1": [{"resource": metric} for metric in external]},
    }
    items = [
        {
            "metadata": {"name": group},
            "versions": [
                {"version": version, "freshness": "Current", "resources": resources}
                for version, resources in served.items()
            ],
        }
        for group, served in versions.items()
    ]
    return replace(result.items(items), part=True)


@functools.cache
def _discovered(group: str) -> list[str]:
    """Return the sorted names of a group's metrics, from the recorded discovery."""
    documents = (case.document for case in read_cases(RECORDED) if case.segments[:2] == ("apis", group))
    found = next(one for one in documents if isinstance(one, dict) and one.get("kind") == "APIResourceList")
    return sorted(resource["name"] for resource in found["resources"])


def _own_paths(result: Expected, case: Case) -> Expected:
    """Paths of Go internals exist only there, and some others only here. Expected: the common paths."""
    if not isinstance(result.document, dict) or not isinstance(result.document.get("paths"), list):
        return result
    paths = [path for path in result.document["paths"] if not _PEERS_OWN_PATHS.match(path)]
    return replace(result, document={"paths": paths}, part=True)


def _own_checks(result: Expected, case: Case) -> Expected:
    """Verbose health names the checks, of which each server has its own. Expected: the same form, and the ping."""
    if not isinstance(result.document, str) or "check passed" not in result.document:
        return result
    lines = result.document.splitlines()
    return replace(result, document="\n".join([line for line in lines if line in ("[+]ping ok", lines[-1])]), part=True)


def _no_statusz(result: Expected, case: Case) -> Expected:
    """/statusz describes the process there. Expected: there is no such path."""
    if case.via != "direct" or case.segments != ("statusz",):
        return result
    return replace(result, statuses=(404,), document={"paths": ["/apis"]}, part=True)


def _openapi_is_json(result: Expected, case: Case) -> Expected:
    """OpenAPI 2 is also protobuf there. Expected: JSON alone, which is what API servers request."""
    if case.segments != ("openapi", "v2") or not case.content_type.endswith("protobuf"):
        return result
    refused = result.error(406, "NotAcceptable", "only the following media types are accepted: application/json")
    return replace(refused, content_type="application/json")


def _own_version(result: Expected, case: Case) -> Expected:
    """/version is each server's own. Expected: the same form."""
    if case.segments != ("version",) or case.status != 200:
        return result
    return replace(result, document=dict.fromkeys(_VERSION_KEYS, OWN), part=True)


def _large_list(result: Expected, case: Case) -> Expected:
    """Recompute lists that were too long to be recorded, from the application's series."""
    if result.document is not NOT_KEPT or not case.segments[-1:] or case.segments[-1] not in SUMMED:
        return result
    document = _metric_list(case, metric_items(case))
    if case.content_type.endswith("protobuf"):  # which has no null, and nothing that is empty
        del document["metadata"]
        for item in document["items"]:
            item["metric"] = {"name": item["metric"]["name"]}
    return replace(result, document=document)


_EXCEPTIONS: Final[tuple[Callable[[Expected, Case], Expected], ...]] = (
    _core_group,
    _name_of_series,
    _no_garbage,
    _first_of_several,
    _malformed_metric_selector,
    _not_equals,
    _unsupported_selector,
    _objects_not_listed,
    _prometheus_fails,
    _aggregated_discovery,
    _own_paths,
    _own_checks,
    _no_statusz,
    _openapi_is_json,
    _own_version,
    _large_list,
)


def _items(result: Expected) -> list[dict[str, Any]]:
    """The items of a list of metrics; none in any other document."""
    if not isinstance(result.document, Mapping) or not str(result.document.get("kind")).endswith("MetricValueList"):
        return []
    items: list[dict[str, Any]] = result.document.get("items", [])
    return items


def _metric_list(case: Case, items: list[dict[str, Any]]) -> dict[str, Any]:
    api_version = "/".join(case.segments[1:3])
    return {"kind": "MetricValueList", "apiVersion": api_version, "metadata": {}, "items": items}
