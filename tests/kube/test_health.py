"""Health: the three endpoints and their reasons."""

import pytest

from kube.security.request_info import Target
from kube.serving.health import Health


def health(*, catalog: str | None = None) -> Health:
    return Health(live={}, ready={"catalog": lambda: catalog, "shutdown": lambda: None})


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
    assert health(catalog="not read yet").respond(Target.parse(path)) == (status, text)


@pytest.mark.parametrize("path", ["/", "/health", "/livez/catalog", "/readyz/nosuch", "/readyz/ping/x", "/x/readyz"])
def test_no_endpoint(path: str) -> None:
    assert health().respond(Target.parse(path)) is None


def test_results_are_counted_for_monitoring() -> None:
    some = health(catalog="not read yet")
    for path in ("/readyz", "/readyz", "/readyz/catalog", "/livez"):
        some.respond(Target.parse(path))
    lines = some.render().decode().splitlines()
    assert 'kubernetes_healthcheck{name="ping",type="livez"} 1.0' in lines
    assert 'kubernetes_healthcheck{name="catalog",type="readyz"} 0.0' in lines
    assert 'kubernetes_healthchecks_total{name="catalog",status="error",type="readyz"} 3.0' in lines
    assert 'kubernetes_healthchecks_total{name="ping",status="success",type="readyz"} 2.0' in lines
