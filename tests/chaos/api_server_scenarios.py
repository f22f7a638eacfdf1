"""Faults between the autoscaler and the API server: HPAs keep their replicas, and no decision is written twice.

When a fault begins, the number of replicas that two of the HPAs need changes, and all connections are closed: so there
is something to decide and to write, and watches meet the fault, too.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from tests.chaos.environment import REPLICAS, Environment
from tests.chaos.exchange import Exchange, Request
from tests.chaos.faults import (
    CloseAfter,
    Drip,
    ExecutedReply,
    Fault,
    Late,
    RawBytes,
    Reply,
    Reset,
    Rewrite,
    Silence,
    Truncate,
    is_watch,
    is_write,
)
from tests.chaos.scenario import Run, Scenario
from tests.eventually import eventually

KEPT = "HPAs keep their replicas, and are scaled once afterwards"
SCALED = "HPAs are scaled, once for each decision"
_MET = 10
"""The number of requests that meet a fault before it ends, where it has no other end."""


def need_other_replicas(environment: Environment) -> None:
    """Change the number of replicas that two HPAs need."""
    environment.load.needs.append(REPLICAS + 2 if environment.load.needed == REPLICAS else REPLICAS)


async def wait_scaled(environment: Environment) -> None:
    """Wait until the Deployments have the replicas that they need."""

    async def scaled() -> bool:
        replicas, needed = await environment.replicas(), environment.load.needed
        return replicas["shop"] == replicas["worker"] == needed

    await eventually(scaled)


def is_scale_write(request: Request) -> bool:
    """Match writes of scales."""
    return is_write(request) and request.path.endswith("/scale")


def is_list(request: Request) -> bool:
    """Match lists that are read in pages."""
    return request.method == "GET" and "limit=" in request.target and not request.is_watch


def is_no_watch(request: Request) -> bool:
    """Match everything but watches."""
    return not request.is_watch


@dataclass(frozen=True, kw_only=True)
class PartialLists(Fault):
    """Watches are refused, so that clients list again, and the second page of each list is refused, too."""

    async def respond(self, exchange: Exchange) -> None:
        if exchange.request.is_watch:
            await status(410, "Expired").respond(exchange)
        else:
            await Rewrite(change=_with_second_page).respond(exchange)


def _with_second_page(_: Request, body: bytes) -> bytes:
    page = json.loads(body)
    if isinstance(page.get("items"), list):
        page["metadata"]["continue"] = "not-valid"
    return json.dumps(page).encode()


@dataclass(frozen=True, kw_only=True)
class EndAfterEvent(Fault):
    """Watches end regularly after the first event, or after what the client asked for."""

    async def respond(self, exchange: Exchange) -> None:
        async with exchange.forward() as response:
            await exchange.send_head(response.status, response.headers, length=None)
            await exchange.send(await response.content.readline())
            await exchange.finish()


def during(
    fault: Fault, *, met: int = _MET, then: Callable[[Environment], Awaitable[None]] | None = None
) -> Callable[[Run], Awaitable[None]]:
    """Return the coroutine that injects a fault until `met` requests have met it, and `then` is done."""

    async def inject(run: Run) -> None:
        environment, proxy = run.environment, run.environment.autoscaler_api
        before = proxy.faulty.total()

        async def is_met() -> bool:
            return proxy.faulty.total() >= before + met

        async def all_done() -> None:
            await eventually(is_met)
            if then is not None:
                await then(environment)

        need_other_replicas(environment)
        async with proxy.inject(fault):
            await proxy.close_connections()
            await run.hold_until(all_done())

    return inject


async def refused(run: Run) -> None:
    """Refuse all connections."""
    need_other_replicas(run.environment)
    async with run.environment.autoscaler_api.stopped():
        await run.hold_until(eventually(lambda: _not_ready(run.environment)))


async def restarted(run: Run) -> None:
    """Stop the API server itself, for all of its clients, and start it again with the same objects."""
    need_other_replicas(run.environment)
    await run.environment.cluster.server.hang_up()
    try:
        await run.hold_until(eventually(lambda: _not_ready(run.environment)))
    finally:
        await run.environment.cluster.server.listen()


async def _not_ready(environment: Environment) -> bool:
    return not any([await process.is_ready() for process in environment.autoscalers])


def status(code: int, reason: str, **headers: str) -> Reply:
    """Return the fault of a Status object with this code."""
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": code}
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply(status=code, body=json.dumps(body).encode(), headers={"Content-Type": "application/json"} | names)


def of_writes(fault: Reply) -> Reply:
    """Return the same fault, of writes only."""
    return Reply(status=fault.status, body=fault.body, headers=fault.headers, match=is_write)


_JSON = {"Content-Type": "application/json"}
_OTHER_JSON = b'{"metadata":{"resourceVersion":"1"},"items":5,"spec":7,"status":[],"data":null}'
_LOGIN = {"Location": "https://127.0.0.1:9/login"}
_FAULTS: tuple[tuple[str, str, Fault, bool], ...] = (
    ("api-late", "responses begin after 3 s", Late(seconds=3), False),
    ("api-drip", "responses arrive in drops", Drip(match=is_no_watch), False),
    ("api-not-http", "bytes that are not HTTP", RawBytes(data=b"\x16\x03\x01\x02\x00 garbage\r\n\r\n"), False),
    ("api-not-json", "200 with bytes that are not JSON", Reply(body=b"\xff\x00{" * 100, headers=_JSON), False),
    ("api-other-json", "200 with other JSON", Reply(body=_OTHER_JSON, headers=_JSON), True),
    ("api-empty-object", "200 with an empty JSON object", Reply(body=b"{}", headers=_JSON), False),
    (
        "api-html",
        "200 with a login page",
        Reply(body=b"<html>log in</html>", headers={"Content-Type": "text/html"}),
        False,
    ),
    ("api-truncated", "responses end in the middle, with FIN", Truncate(match=is_no_watch), False),
    ("api-truncated-reset", "responses end in the middle, with RST", Truncate(match=is_no_watch, reset=True), False),
    (
        "api-ten-times",
        "bodies ten times as long",
        Rewrite(match=is_no_watch, change=lambda _, body: body + b" " * 9 * len(body)),
        False,
    ),
    (
        "api-partial-list",
        "watches expire, and each list fails at its second page",
        PartialLists(match=lambda request: request.is_watch or is_list(request)),
        False,
    ),
    ("api-429", "429 with Retry-After of a second", status(429, "TooManyRequests", Retry_After="1"), False),
    ("api-429-hour", "429 with Retry-After of an hour", status(429, "TooManyRequests", Retry_After="3600"), False),
    ("api-500", "500", status(500, "InternalError"), False),
    ("api-503", "503", status(503, "ServiceUnavailable"), False),
    ("api-401", "401", status(401, "Unauthorized"), False),
    ("api-403", "403", status(403, "Forbidden"), False),
    ("api-redirect", "302 to another host", Reply(status=302, headers=_LOGIN), False),
    ("api-redirect-write", "307 to another host, for writes", Reply(status=307, headers=_LOGIN, match=is_write), False),
    ("api-conflict", "409 for each write", of_writes(status(409, "Conflict")), True),
    ("api-reset", "connections are reset", Reset(), False),
    ("api-silent", "no response and no FIN", Silence(), False),
)

SCENARIOS: tuple[Scenario, ...] = (
    Scenario(name="api-refused", fault="the API server refuses connections", promise=KEPT, inject=refused, short=True),
    Scenario(name="api-restarted", fault="the API server is stopped and started", promise=KEPT, inject=restarted),
    *(
        Scenario(name=name, fault=f"API server: {text}", promise=KEPT, inject=during(fault), short=short)
        for name, text, fault, short in _FAULTS
    ),
    Scenario(
        name="api-response-lost",
        fault="API server: writes of scales are executed, but their responses are lost",
        promise=SCALED,
        inject=during(Reset(match=is_scale_write, after_upstream=True), met=2, then=wait_scaled),
        short=True,
    ),
    Scenario(
        name="api-executed-503",
        fault="API server: writes of scales are executed, but get 503 with Retry-After",
        promise=SCALED,
        inject=during(
            ExecutedReply(match=is_scale_write, status=503, headers={"Retry-After": "1"}), met=4, then=wait_scaled
        ),
    ),
    Scenario(
        name="watches-cut",
        fault="API server: each watch is cut off after a second",
        promise=SCALED,
        inject=during(CloseAfter(match=is_watch, seconds=1), met=4, then=wait_scaled),
    ),
    Scenario(
        name="watches-end",
        fault="API server: each watch ends after its first event",
        promise=SCALED,
        inject=during(EndAfterEvent(match=is_watch), met=4, then=wait_scaled),
    ),
)
