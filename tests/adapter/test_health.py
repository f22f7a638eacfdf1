"""Health: the three endpoints and their reasons."""

from pathlib import Path

import pytest

from adapter.serving.health import Health, HealthResponse
from kube.security.request_info import Target
from tests.adapter.serving import served_adapter


def health(*, catalog: str | None = None) -> Health:
    return Health(alive={"ping": lambda: None}, ready={"catalog": lambda: catalog, "shutdown": lambda: None})


@pytest.mark.parametrize(
    ("path", "status", "text"),
    [
        ("/healthz", 200, "ok"),
        ("/livez", 200, "ok"),
        ("/livez?verbose", 200, "[+]ping ok\nlivez check passed\n"),
        ("/livez/ping", 200, "ok"),
        ("/readyz", 500, "[+]ping ok\n[-]catalog failed: not read yet\n[+]shutdown ok\nreadyz check failed\n"),
        ("/readyz/catalog", 500, "internal server error: not read yet\n"),
        ("/readyz/shutdown", 200, "ok"),
        ("/readyz?exclude=catalog", 200, "ok"),
        (
            "/readyz?verbose&exclude=catalog&exclude=nosuch",
            200,
            (
                "[+]catalog excluded: ok\n[+]ping ok\n[+]shutdown ok\n"
                'warn: some health checks cannot be excluded: no matches for "nosuch"\nreadyz check passed\n'
            ),
        ),
    ],
)
def test_status_and_body_of_each_path(path: str, status: int, text: str) -> None:
    assert health(catalog="not read yet").respond(Target.parse(path)) == HealthResponse(status, text)


@pytest.mark.parametrize("path", ["/", "/health", "/livez/catalog", "/readyz/nosuch", "/readyz/ping/x", "/x/readyz"])
def test_no_endpoint(path: str) -> None:
    assert health().respond(Target.parse(path)) is None


def test_results_are_counted_for_monitoring() -> None:
    some = health(catalog="not read yet")
    for path in ("/readyz", "/readyz", "/readyz/catalog", "/livez"):
        some.respond(Target.parse(path))
    lines = some.exposition().body.decode().splitlines()
    assert 'kubernetes_healthcheck{name="ping",type="livez"} 1.0' in lines
    assert 'kubernetes_healthcheck{name="catalog",type="readyz"} 0.0' in lines
    assert 'kubernetes_healthchecks_total{name="catalog",status="error",type="readyz"} 3.0' in lines
    assert 'kubernetes_healthchecks_total{name="ping",status="success",type="readyz"} 2.0' in lines


async def test_they_are_served_beside_the_metrics(tmp_path: Path) -> None:
    async with served_adapter(tmp_path) as adapter:
        await adapter.request("/livez")
        reply = await adapter.request_as_master("/metrics/slis")
        assert (reply.status, reply.content_type.partition(";")[0]) == (200, "text/plain")
        assert b'kubernetes_healthcheck{name="ping",type="livez"} 1.0' in reply.body
        assert (await adapter.request("/metrics/slis")).status == 403


async def test_nobody_needs_to_be_known(tmp_path: Path) -> None:
    async with served_adapter(tmp_path) as adapter:
        adapter.api.refuse_with = 500
        adapter.names.problem = "Prometheus has not answered yet"
        assert (await adapter.request("/livez", headers={"Authorization": "Bearer nonsense"})).body == b"ok"
        reply = await adapter.request("/readyz")
        assert (reply.status, reply.content_type) == (500, "text/plain; charset=utf-8")
        assert b"[-]catalog failed: Prometheus has not answered yet\n" in reply.body
        assert (await adapter.request("/livez", method="HEAD")).status == 200
        assert adapter.api.reviews == []
