"""Recorded load of servers with `auth`, query parameters and a proxy."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from adapter.prometheus import DEFAULT_DESTINATION, PrometheusOptions
from adapter.upstream import Auth, OAuth2Auth, SigV4Auth
from replay.prometheus.client import RangeClient
from tests.adapter.upstream.aws_services import Key, ReceivedRequest, RefusedError, SignatureVerifier

MATRIX = b'{"status": "success", "data": {"resultType": "matrix", "result": []}}'
QUERY = 'sum(rate(a{b=~"c d|e+f"}[5m]))'


class Server(ThreadingHTTPServer):
    """Prometheus, a token URL and a proxy for http in one: it accepts a signature, or the newest token."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.verifier = SignatureVerifier("eu-west-1", "aps", {"AKID": Key("secret")})
        self.lines: list[str] = []
        self.tokens = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.lines.append(f"{self.command} {self.path}")
        if self.path == "/token":
            self.server.tokens += 1
            self.respond(200, b'{"access_token": "token-%d"}' % self.server.tokens)
            return
        received = ReceivedRequest(self.command, self.path, list(self.headers.items()), body)
        try:
            if self.headers["Authorization"] != f"Bearer token-{self.server.tokens}":
                self.server.verifier.verify(received)
        except RefusedError as error:
            self.respond(403 if "AWS4" in self.headers["Authorization"] else 401, str(error).encode())
        else:
            self.respond(200, MATRIX)

    do_POST = do_GET  # noqa: N815

    def respond(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@contextmanager
def running() -> Iterator[Server]:
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


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
