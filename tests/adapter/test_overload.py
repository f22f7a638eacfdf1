"""A real adapter process with more requests than it may have in flight: the excess gets 429 at once."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from tests.adapter.test_process import EXTERNAL, FIRST, SEVEN, running_adapter
from tests.eventually import eventually
from tests.kube.access_api import Authorities
from tests.kube.scripted import Held, respond, scripted_server

pytestmark = pytest.mark.e2e

IN_FLIGHT = 8
REQUESTS = 5 * IN_FLIGHT


async def test_requests_over_the_limit_get_429_and_the_others_are_served(tmp_path: Path) -> None:
    async with scripted_server() as prometheus:
        held = Held(respond(SEVEN))
        prometheus.handlers["/api/v1/query"] = held
        async with running_adapter(
            tmp_path / "a",
            FIRST,
            authorities=Authorities(),
            prometheus=prometheus.url,
            # On a busy machine the held query is a slow one.
            more=(f"--max-requests-inflight={IN_FLIGHT}", "--namespace-slow-query-seconds=0"),
        ) as adapter:

            async def is_ready() -> bool:
                try:
                    return (await adapter.client.request("/readyz")).status == 200
                except OSError as error:
                    raise AssertionError("it does not listen yet") from error

            assert await eventually(is_ready)
            path = f"{EXTERNAL}/namespaces/shop/first"
            requests = [asyncio.create_task(adapter.client.request_as_master(path)) for _ in range(REQUESTS)]
            await asyncio.wait_for(held.arrived.wait(), 60)
            served = IN_FLIGHT + IN_FLIGHT // 4  # a quarter as many wait

            async def rejected() -> bool:
                return sum(request.done() for request in requests) == REQUESTS - served

            assert await eventually(rejected)
            for probe in ("/livez", "/readyz"):
                assert (await adapter.client.request(probe)).status == 200
            held.open.set()
            replies = await asyncio.gather(*requests)
    statuses = Counter((reply.status, reply.headers.get("Retry-After")) for reply in replies)
    assert statuses == {(200, None): served, (429, "1"): REQUESTS - served}
