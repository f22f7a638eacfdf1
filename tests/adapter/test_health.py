"""Health: the three endpoints, and what they say about what is wrong."""

from pathlib import Path

import pytest

from adapter.security.request_info import Target
from adapter.serving.health import Health, HealthResponse
from kube.status import StatusError
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


@pytest.mark.parametrize("accept", ["", "*/*", "text/plain", "text/plain;q=0.9, application/json"])
def test_statusz_is_text(accept: str) -> None:
    content = health().statusz(accept=accept, version="1.2.3")
    assert content.content_type == "text/plain; charset=utf-8"
    lines = content.body.decode().splitlines()
    assert lines[1] == "milliscale-adapter statusz"
    assert "Binary version: 1.2.3" in lines
    assert lines[-1].startswith("Paths: /healthz /healthz/ping /livez")


@pytest.mark.parametrize("accept", ["application/json", "application/yaml", "application/json;as=Table;v=v1"])
def test_statusz_in_any_other_form_is_refused(accept: str) -> None:
    with pytest.raises(StatusError) as refused:
        health().statusz(accept=accept, version="1.2.3")
    assert (refused.value.code, refused.value.reason) == (406, "NotAcceptable")
    assert str(refused.value) == (
        "only the following media types are accepted: application/json, application/yaml, text/plain"
    )
