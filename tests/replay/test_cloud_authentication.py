"""Recorded load of servers with `auth`, query parameters and a proxy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from adapter.prometheus import DEFAULT_DESTINATION, PrometheusOptions
from adapter.upstream import Auth, OAuth2Auth, SigV4Auth
from replay.prometheus.client import RangeClient
from tests.adapter.upstream.aws_services import Key, ReceivedRequest, RefusedError, SignatureVerifier
from tests.replay.threaded_server import Response, threaded_server

MATRIX = b'{"status": "success", "data": {"resultType": "matrix", "result": []}}'
QUERY = 'sum(rate(a{b=~"c d|e+f"}[5m]))'


class Server:
    """Prometheus, a token URL and a proxy for http in one: it accepts a signature, or the newest token."""

    url = ""

    def __init__(self) -> None:
        self.verifier = SignatureVerifier("eu-west-1", "aps", {"AKID": Key("secret")})
        self.lines: list[str] = []
        self.tokens = 0

    def respond(self, request: ReceivedRequest) -> Response:
        self.lines.append(f"{request.method} {request.target}")
        if request.target == "/token":
            self.tokens += 1
            return 200, {}, b'{"access_token": "token-%d"}' % self.tokens
        authorization = dict(request.headers)["Authorization"]
        try:
            if authorization != f"Bearer token-{self.tokens}":
                self.verifier.verify(request)
        except RefusedError as error:
            return 403 if "AWS4" in authorization else 401, {}, str(error).encode()
        return 200, {}, MATRIX


@contextmanager
def running() -> Iterator[Server]:
    server = Server()
    with threaded_server(server.respond) as server.url:
        yield server


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKID")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    for name in ("AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("verb", ["GET", "POST"])
def test_range_queries_are_signed(verb: str) -> None:
    auth = Auth(sigv4=SigV4Auth(region="eu-west-1"))
    more = (("dedup", "a b"), ("s[]", "c"), ("s[]", "d"))
    with running() as server:
        options = PrometheusOptions(url=server.url, verb=verb, auth=auth, query_parameters=more)
        with RangeClient(options, DEFAULT_DESTINATION) as client:
            assert client.range(QUERY, start_ms=0, end_ms=60_000, step_ms=30_000) == []
    ((method, _, target),) = [line.partition(" ") for line in server.lines]
    assert method == verb
    assert "dedup=a%20b&s%5B%5D=c&s%5B%5D=d" in target


def test_token_is_kept_and_replaced_after_a_refusal(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    with running() as server:
        form = OAuth2Auth(token_url=f"{server.url}/token", client_id="a", client_secret_file=tmp_path / "secret")
        with RangeClient(PrometheusOptions(url=server.url, auth=Auth(oauth2=form)), DEFAULT_DESTINATION) as client:
            for _ in range(3):
                client.range(QUERY, start_ms=0, end_ms=0, step_ms=1)
            assert server.tokens == 1
            server.tokens = 5  # another token is the valid one
            client.range(QUERY, start_ms=0, end_ms=0, step_ms=1)
            assert server.tokens == 6
