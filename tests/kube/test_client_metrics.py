"""Retry counters of API clients."""

from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest

from kube.api.client_metrics import ClientMetrics
from tests.kube.scripted import connected, scripted_server


async def test_retries_are_counted_by_code_verb_and_host(tmp_path: Path) -> None:
    async with scripted_server() as server, connected(server, tmp_path) as one, connected(server, tmp_path) as two:
        one.retries.counts.update({("GET", "429"): 2, ("PUT", "<error>"): 1})
        two.retries.counts.update({("GET", "429"): 3})
        registry = CollectorRegistry()
        registry.register(ClientMetrics([one, two]))
        host = server.url.removeprefix("http://")
    series = [line for line in generate_latest(registry).decode().splitlines() if not line.startswith("#")]
    assert series == [
        f'rest_client_request_retries_total{{code="429",host="{host}",verb="GET"}} 5.0',
        f'rest_client_request_retries_total{{code="<error>",host="{host}",verb="PUT"}} 1.0',
    ]
