"""An API server with HPAs and a Prometheus with their history, on one port, for the tests of `advise`."""

from __future__ import annotations

import contextlib
import functools
import json
import math
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from replay.load import Load
from replay.simulation import Settings, simulate
from tests.adapter.upstream.aws_services import ReceivedRequest
from tests.replay.builders import hpa_document, make_hpa, pods_metric, series_of
from tests.replay.threaded_server import Response, threaded_server

END = 1_780_272_000  # 2026-06-01T00:00:00Z
DAY = 86_400
_NAMED = re.compile(r'(?:deployment|horizontalpodautoscaler)="([^"]*)"|pod=~"([a-z0-9-]*?)-\[')


@dataclass(kw_only=True)
class Workload:
    """A Deployment with an HPA of the metric `rps`, and its history; functions of seconds since the epoch."""

    load: Callable[[int], float]
    replicas: Callable[[int], float]
    minimum: int = 1
    maximum: int = 40
    metric: str = "rps"
    startup: float | None = 20.0
    namespace: str = "shop"
    hpa: Mapping[str, Any] = field(default_factory=dict)
    """Changes of the HPA's spec."""

    def document(self, name: str) -> dict[str, Any]:
        found = hpa_document(pods_metric(self.metric, "100"), min_replicas=self.minimum, max_replicas=self.maximum)
        found["metadata"].update(name=name, namespace=self.namespace)
        target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}
        found["spec"].update({"scaleTargetRef": target, **self.hpa})
        return found


def daily(low: float, high: float, *, bursts: float = 1.0) -> Callable[[int], float]:
    """Return a load that rises and falls each day, multiplied by `bursts` for four minutes of every two hours."""

    @functools.cache
    def load(at: int) -> float:
        return (low + (high - low) * (0.5 - 0.5 * math.cos(2 * math.pi * at / DAY))) * (
            bursts if at % 7200 < 240 else 1
        )

    return load


def scaled(load: Callable[[int], float], *, most: int = 40) -> Callable[[int], float]:
    """Return the replicas that a controller would have for a load, with the HPA of a `Workload`."""

    @functools.cache
    def found() -> list[tuple[int, int]]:  # when it is asked for: a second
        times = range(END - 8 * DAY, END, 240)
        series = series_of([load(at) for at in times], step_ms=240_000, start_ms=times.start * 1000)
        recording = Load(start_ms=times.start * 1000, end_ms=END * 1000, series={"rps": series})
        steps = simulate(make_hpa(max_replicas=most), recording, Settings(step_ms=60_000), merge=True)
        return [(step.end_ms, step.desired_replicas) for step in steps]

    return lambda at: float(found()[min(bisect_right(found(), (at * 1000, most)), len(found()) - 1)][1])


@contextlib.contextmanager
def running(
    workloads: Mapping[str, Workload], folder: Path, *, start: int = END - 8 * DAY
) -> Iterator[tuple[str, Path]]:
    """Serve both; yield the URL, and a kubeconfig. Before `start`, nothing was recorded."""

    def value(name: str, query: str, at: int) -> float | None:
        each = workloads[name]
        if at < start:
            return None
        if "_status_replicas" in query or "current_replicas" in query:
            return each.replicas(at)
        load = each.load(at)
        return None if math.isnan(load) else load * 1000

    def prometheus(path: str, parameters: Mapping[str, str]) -> object:
        query = parameters.get("query", "")
        name = next((first or second for first, second in _NAMED.findall(query)), "")
        if path.endswith("/series"):
            [metric] = re.findall(r'"([a-z_]+)"|^([a-z_]+)', parameters["match[]"])[:1]
            wanted = "".join(metric)
            return [
                {"__name__": wanted, "namespace": each.namespace, "pod": f"{name}-1"}
                for name, each in workloads.items()
                if each.metric == wanted and not math.isnan(each.load(END))
            ]
        if "__name__/values" in path:
            return ["rps"]
        if path.endswith("metadata"):
            return {}
        if query == "time()":
            return {"resultType": "scalar", "result": [END, str(END)]}
        if path.endswith("query_range"):
            start_, end, step = (float(parameters[key]) for key in ("start", "end", "step"))
            values = [
                [at, str(found)]
                for at in range(round(start_), round(end) + 1, round(step))
                if (found := value(name, query, at)) is not None
            ]
            labels = {"match_0": "1", "match_1": "1"} if "match_0" in query else {}
            return {"resultType": "matrix", "result": [{"metric": labels, "values": values}] if values else []}
        result = []
        if "kube_pod_status_ready_time" in query and workloads[name].startup is not None:
            result = [
                {"metric": {"figure": figure}, "value": [END, str(number)]}
                for figure, number in (("median", workloads[name].startup), ("count", 5))
            ]
        return {"resultType": "vector", "result": result}

    def kubernetes(path: str) -> object:
        if path == "/apis":
            return {"groups": []}
        if path == "/api/v1":
            kinds = (("pods", "Pod", True), ("namespaces", "Namespace", False))
            return {"resources": [{"name": name, "kind": kind, "namespaced": owned} for name, kind, owned in kinds]}
        if path.endswith("/horizontalpodautoscalers"):
            [namespace] = re.findall(r"/namespaces/([^/]*)/", path) or [""]
            items = [each.document(name) for name, each in workloads.items() if namespace in ("", each.namespace)]
            return (
                {"kind": "List", "metadata": {}, "items": items} if path.startswith("/apis/autoscaling/v2/") else None
            )
        return None

    def respond(request: ReceivedRequest) -> Response:
        parts = urlsplit(request.target)
        parameters = {key: found[0] for key, found in parse_qs(f"{parts.query}&{request.body.decode()}").items()}
        if parts.path.startswith("/api/v1/"):
            broken = "broken" in parameters.get("query", "")
            error: object = {"status": "error", "errorType": "bad_data", "error": "no such function \x1b[31m"}
            status, document = 400, error
            if not broken:
                status, document = 200, {"status": "success", "data": prometheus(parts.path, parameters)}
        else:
            found = kubernetes(parts.path)
            status = 404 if found is None else 200
            document = {"kind": "Status", "code": 404, "reason": "NotFound"} if found is None else found
        return status, {"Content-Type": "application/json"}, json.dumps(document).encode()

    with threaded_server(respond) as url:
        kubeconfig = folder / "kubeconfig"
        kubeconfig.write_text(
            json.dumps(
                {
                    "current-context": "test",
                    "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
                    "clusters": [{"name": "test", "cluster": {"server": url}}],
                    "users": [{"name": "test", "user": {}}],
                }
            )
        )
        yield url, kubeconfig
