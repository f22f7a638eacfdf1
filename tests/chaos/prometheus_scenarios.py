"""Faults between the adapter and Prometheus: HPAs keep their replicas, and the adapter stays available."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from tests.chaos.environment import HPA_NAMES, Environment
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
        # Not through the API server, which calls the adapter unavailable if a check of it takes 5 s on a busy machine.
        status, text = await environment.adapter.get(DISCOVERY)
        assert status == 200, f"discovery: {status} {text}"
        assert json.loads(text)["resources"], "discovery is empty"


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


def vectors(change: Callable[[list[Any]], list[Any]]) -> Callable[[Request, bytes], bytes]:
    """Return what changes the samples of the vectors in responses; other responses stay as they are."""

    def changed(_: Request, body: bytes) -> bytes:
        response = json.loads(body)
        data = response.get("data", {})
        if not isinstance(data, dict) or data.get("resultType") != "vector":
            return body
        return json.dumps({**response, "data": {**data, "result": change(data["result"])}}).encode()

    return changed


def ten_times(samples: list[Any]) -> list[Any]:
    """Return the same series, each ten times as long."""
    return [{**sample, "metric": {**sample["metric"], "long": "x" * 9 * len(str(sample))}} for sample in samples]


def partial(_: Request, body: bytes) -> bytes:
    """Return the response of a Thanos with one of two stores down: sums are half as high, lists half as long."""
    response = json.loads(body)
    if isinstance(response["data"], list):
        response["data"] = response["data"][::2]
    elif response["data"]["resultType"] == "vector":
        for sample in response["data"]["result"]:
            sample["value"][1] = str(float(sample["value"][1]) / 2)
    return json.dumps({**response, "warnings": ["receive series from Addr: 10.1.2.3:10901: Unavailable"]}).encode()


# Two for each HPA: the second one is sent when the HPA needs a value again.
_QUERIES = 2 * len(HPA_NAMES)
_JSON = {"Content-Type": "application/json"}
_FAULTS: tuple[tuple[str, str, Fault, bool], ...] = (
    ("prometheus-late", "Prometheus responds after 3 s", Late(seconds=3), False),
    ("prometheus-drip", "Prometheus' responses arrive in drops", Drip(), False),
    ("prometheus-not-http", "bytes that are not HTTP", RawBytes(data=b"\x16\x03\x01\x02\x00 garbage\r\n\r\n"), False),
    ("prometheus-not-json", "200 with bytes that are not JSON", Reply(body=b"\xff\x00{" * 100, headers=_JSON), False),
    ("prometheus-other-json", "200 with other JSON", Reply(body=b'{"data":[1,{"result":null}]}', headers=_JSON), False),
    (
        "prometheus-html",
        "200 with an HTML page, as of a login proxy",
        Reply(body=b"<html>log in</html>", headers={"Content-Type": "text/html"}),
        False,
    ),
    ("prometheus-truncated", "responses end in the middle, with FIN", Truncate(), True),
    ("prometheus-truncated-reset", "responses end in the middle, with RST", Truncate(reset=True), False),
    ("prometheus-ten-times", "vectors of ten times the size", Rewrite(change=vectors(ten_times)), True),
    ("prometheus-empty", "vectors without samples", Rewrite(change=vectors(lambda _: [])), True),
    (
        "prometheus-partial",
        "200 with half of the values and a warning, as of a Thanos with a store down",
        Rewrite(change=partial),
        True,
    ),
    ("prometheus-429", "429 with Retry-After", Reply(status=429, headers={"Retry-After": "1"}), False),
    ("prometheus-500", "500", Reply(status=500, body=b"internal error"), False),
    ("prometheus-503", "503 with Retry-After of an hour", Reply(status=503, headers={"Retry-After": "3600"}), False),
    (
        "prometheus-redirect",
        "302 to another host",
        Reply(status=302, headers={"Location": "http://127.0.0.1:9/api/v1/query"}),
        False,
    ),
    ("prometheus-redirect-loop", "307 to itself", Reply(status=307, headers={"Location": "/api/v1/query"}), False),
    ("prometheus-reset", "connections are reset", Reset(), False),
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
        Scenario(
            name=name,
            fault=text,
            promise=KEPT,
            inject=during(proxy, fault, requests=_QUERIES, path="/query"),
            short=short,
        )
        for name, text, fault, short in _FAULTS
    ),
)
