"""The aggregated API server of a run: each case's responses, for both namespaces the same."""

import re
from collections import Counter
from typing import Any

from aiohttp import web

from tests.e2e.fuzz.responses import CUSTOM, EXTERNAL, RESOURCE, Response

_APPS = re.compile(r"\bapp(?:==?([a-z0-9]+)| in \(([a-z0-9,]+)\))")
_LISTS = {CUSTOM: "MetricValueList", EXTERNAL: "ExternalMetricValueList", RESOURCE: "PodMetricsList"}


class FuzzedMetrics:
    """Responses by case and metric, and the number of requests for each in each namespace."""

    def __init__(self) -> None:
        self.scripts: dict[str, dict[str, Response]] = {}
        self.requests: Counter[tuple[str, str, str]] = Counter()
        """By namespace, case and metric."""
        self.coalesced = 0
        """The number of requests for several cases."""

    def requests_of(self, namespace: str, case: str) -> int:
        """Return how often the metrics of a case were requested: the highest count."""
        counts = [self.requests[namespace, case, metric] for metric in self.scripts.get(case, ())]
        return max(counts, default=0)

    async def discover(self, request: web.Request) -> web.Response:
        """Return the resources of a group version; only those of metrics.k8s.io need names."""
        group, version = request.match_info["group"], request.match_info["version"]
        pods = {"name": "pods", "singularName": "", "namespaced": True, "kind": "PodMetrics", "verbs": ["get", "list"]}
        body = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": f"{group}/{version}"}
        return web.json_response({**body, "resources": [pods] if group == RESOURCE else []})

    async def respond(self, request: web.Request) -> web.Response:
        """The values of a metric."""
        group, version = request.match_info["group"], request.match_info["version"]
        namespace, rest = request.match_info["namespace"], request.match_info["rest"].split("/")
        selector = request.query.get("labelSelector", "")
        if group == RESOURCE:
            metric, cases = "resource", _cases(selector)
        elif group == CUSTOM and rest[:2] == ["pods", "*"]:
            metric, cases = rest[2], _cases(selector)
        else:
            metric = rest[-1]
            cases = [metric.rpartition("-")[0]]
        for case in cases:
            self.requests[namespace, case, metric] += 1
        self.coalesced += len(cases) > 1
        found = [self.scripts.get(case, {}).get(metric) for case in cases]
        responses = [each for each in found if each is not None]
        lists = [each.items for each in responses if each.items is not None]
        if len(responses) == 1 and not lists:
            return _as_is(responses[0])
        if len(lists) < len(found):
            # Of several cases one has a fault.
            return web.Response(status=500, text="one of several cases fails")
        items = [item for each in lists for item in each]
        body = {"kind": _LISTS[group], "apiVersion": f"{group}/{version}", "metadata": {}, "items": items}
        return web.json_response(_filled_in(body, namespace))


def _cases(selector: str) -> list[str]:
    found = _APPS.search(selector)
    return (found[1] or found[2]).split(",") if found else []


def _as_is(response: Response) -> web.Response:
    headers = {**response.headers, "Content-Type": response.content_type}
    return web.Response(status=response.code, body=response.body.encode(), headers=headers)


def _filled_in(value: Any, namespace: str) -> Any:
    match value:
        case dict():
            return {key: _filled_in(each, namespace) for key, each in value.items()}
        case list():
            return [_filled_in(each, namespace) for each in value]
        case _:
            return namespace if value == "NAMESPACE" else value
