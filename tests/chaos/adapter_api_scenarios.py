"""Faults between the adapter and the API server: it cannot authorize requests, nor watch objects."""

from __future__ import annotations

from tests.chaos.environment import Environment
from tests.chaos.faults import Fault, RawBytes, Reply, Reset, Silence, Truncate
from tests.chaos.proxy import FaultProxy
from tests.chaos.scenario import Run, Scenario, during

_PROMISE = "the adapter stays ready; HPAs keep their replicas"
_JSON = {"Content-Type": "application/json"}


def proxy(environment: Environment) -> FaultProxy:
    """Return the proxy that has the faults."""
    return environment.adapter_api


async def refused(run: Run) -> None:
    """Refuse all connections, and cut off the watches."""
    async with run.environment.adapter_api.stopped():
        await run.hold(reconciliations=10)
        assert await run.environment.adapter.is_ready(), "the adapter is not ready"


_FAULTS: tuple[tuple[str, str, Fault], ...] = (
    ("adapter-api-500", "500 for the adapter", Reply(status=500, body=b"internal error")),
    ("adapter-api-429", "429 with Retry-After for the adapter", Reply(status=429, headers={"Retry-After": "1"})),
    ("adapter-api-403", "403 for the adapter", Reply(status=403, body=b"{}", headers=_JSON)),
    ("adapter-api-empty", "200 with an empty JSON object for the adapter", Reply(body=b"{}", headers=_JSON)),
    ("adapter-api-not-http", "bytes that are not HTTP for the adapter", RawBytes(data=b"\x00garbage\r\n\r\n")),
    ("adapter-api-truncated", "responses to the adapter end in the middle", Truncate(match=lambda it: not it.is_watch)),
    ("adapter-api-reset", "connections of the adapter are reset", Reset()),
    ("adapter-api-silent", "no response to the adapter and no FIN, on watches too", Silence()),
)

SCENARIOS: tuple[Scenario, ...] = (
    Scenario(
        name="adapter-api-refused",
        fault="the API server refuses the adapter's connections",
        promise=_PROMISE,
        inject=refused,
    ),
    *(
        Scenario(name=name, fault=text, promise=_PROMISE, inject=during(proxy, fault, requests=1))
        for name, text, fault in _FAULTS
    ),
)
