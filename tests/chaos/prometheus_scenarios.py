"""Faults between the adapter and Prometheus: HPAs keep their replicas, and the adapter stays available."""

from __future__ import annotations

import json

from tests.chaos.environment import Environment
from tests.chaos.exchange import Request
from tests.chaos.faults import Drip, Fault, Late, RawBytes, Reply, Reset, Rewrite, Silence, Truncate
from tests.chaos.proxy import FaultProxy
from tests.chaos.scenario import Run, Scenario, during
from tests.eventually import eventually

KEPT = "HPAs keep their replicas; the adapter stays ready"
STOPPED = "HPAs keep their replicas, with ScalingActive False; the adapter stays ready, and discovery works"
DISCOVERY = "/apis/custom.metrics.k8s.io/v1beta2"


async def stopped(run: Run) -> None:
    """Refuse all connections."""
    environment = run.environment

    async def all_inactive() -> bool:
        return set((await environment.conditions("ScalingActive")).values()) == {"False"}

    async with environment.prometheus_proxy.stopped():
        await eventually(all_inactive)
        await run.hold()
        assert await environment.adapter.is_ready(), "the adapter is not ready"
        assert (await environment.client.get(DISCOVERY))["resources"], "discovery is empty"


async def process_stopped(run: Run) -> None:
    """Stop Prometheus itself, so that samples are missing afterwards, too."""
    await run.environment.prometheus.stop()
    try:
        await run.hold()
        assert await run.environment.adapter.is_ready(), "the adapter is not ready"
    finally:
        await run.environment.prometheus.start()


def proxy(environment: Environment) -> FaultProxy:
    """Return the proxy that has the faults."""
    return environment.prometheus_proxy


def ten_times(_: Request, body: bytes) -> bytes:
    """Return a vector with ten times as many series; other responses with ten times as much white space."""
    response = json.loads(body)
    result = response.get("data", {})
    if isinstance(result, dict) and result.get("resultType") == "vector":
        result["result"] = [
            {**sample, "metric": {**sample["metric"], "copy": str(copy)}}
            for sample in result["result"]
            for copy in range(10)
        ]
        return json.dumps(response).encode()
    return body + b" " * 9 * len(body)


_JSON = {"Content-Type": "application/json"}
_FAULTS: tuple[tuple[str, str, Fault, bool], ...] = (
    ("prometheus-late", "Prometheus responds after 3 s", Late(seconds=3), False),
    ("prometheus-drip", "Prometheus' responses arrive in drops", Drip(), False),
    ("prometheus-not-http", "bytes that are not HTTP", RawBytes(data=b"\x16\x03\x01\x02\x00 garbage\r\n\r\n"), False),
    ("prometheus-not-json", "200 with bytes that are not JSON", Reply(body=b"\xff\x00{" * 100, headers=_JSON), True),
    ("prometheus-other-json", "200 with other JSON", Reply(body=b'{"data":[1,{"result":null}]}', headers=_JSON), False),
    (
        "prometheus-html",
        "200 with an HTML page, as of a login proxy",
        Reply(body=b"<html>log in</html>", headers={"Content-Type": "text/html"}),
        True,
    ),
    ("prometheus-truncated", "responses end in the middle, with FIN", Truncate(), True),
    ("prometheus-truncated-reset", "responses end in the middle, with RST", Truncate(reset=False), True),
    ("prometheus-ten-times", "vectors with ten times as many series", Rewrite(change=ten_times), True),
    ("prometheus-429", "429 with Retry-After", Reply(status=429, headers={"Retry-After": "1"}), True),
    ("prometheus-500", "500", Reply(status=500, body=b"internal error"), True),
    ("prometheus-503", "503 with Retry-After of an hour", Reply(status=503, headers={"Retry-After": "3600"}), False),
    (
        "prometheus-redirect",
        "302 to another host",
        Reply(status=302, headers={"Location": "http://127.0.0.1:9/api/v1/query"}),
        True,
    ),
    ("prometheus-redirect-loop", "307 to itself", Reply(status=307, headers={"Location": "/api/v1/query"}), False),
    ("prometheus-reset", "connections are reset", Reset(), True),
    ("prometheus-silent", "no response and no FIN", Silence(), False),
)

SCENARIOS: tuple[Scenario, ...] = (
    Scenario(
        name="prometheus-refused",
        fault="Prometheus refuses connections",
        promise=STOPPED,
        inject=stopped,
        short=True,
    ),
    Scenario(name="prometheus-stopped", fault="Prometheus is stopped", promise=KEPT, inject=process_stopped),
    *(
        Scenario(name=name, fault=text, promise=KEPT, inject=during(proxy, fault), short=short)
        for name, text, fault, short in _FAULTS
    ),
)
