"""The client of Prometheus: what a server or a proxy may respond, retries, and the form of requests."""

from __future__ import annotations

import contextlib
import json
import re
import socketserver
import ssl
import threading
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from adapter.prometheus import DEFAULT_DESTINATION, Destination, PrometheusOptions
from playground.certs import CertificateAuthority
from replay.load import ReplayError
from replay.prometheus.client import MAX_BYTES, RangeClient, TooLargeError
from tests.replay.prometheus_environment import stub_server

JSON = "application/json"
MATRIX = json.dumps({"status": "success", "data": {"resultType": "matrix", "result": []}}).encode()
Response = tuple[int, str, bytes]


def error(kind: str, text: str) -> bytes:
    return json.dumps({"status": "error", "errorType": kind, "error": text}).encode()


class Clock:
    """A clock that sleeping advances."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def request(
    url: str, *, query: str = "up", clock: Clock | None = None, max_bytes: int = MAX_BYTES, **options: object
) -> None:
    clock = clock or Clock()
    server = PrometheusOptions(url=url, **options)  # type: ignore[arg-type]
    with RangeClient(server, DEFAULT_DESTINATION, max_bytes=max_bytes, clock=clock, sleep=clock.sleep) as client:
        client.range(query, start_ms=1_000_500, end_ms=1_060_500, step_ms=15_000)


RESPONSES: list[tuple[str, Response, type[Exception], str]] = [
    (
        "401",
        (401, "text/plain", b"Unauthorized"),
        ReplayError,
        "refuses the credentials .status 401.; give --prometheus-",
    ),
    ("403", (403, "text/html", b"<html>"), ReplayError, "refuses the credentials .status 403."),
    (
        "404",
        (404, "text/html", b"<html>"),
        ReplayError,
        "is no Prometheus: it has no /api/v1/query_range .status 404.; ch",
    ),
    (
        "login",
        (302, "text/html", b""),
        ReplayError,
        "is no Prometheus: it redirects to https://login.example/; check --p",
    ),
    (
        "page",
        (200, "text/html", b"<html>"),
        ReplayError,
        "is no Prometheus: its response is not that of Prometheus' API",
    ),
    ("another API", (200, JSON, b'{"data": []}'), ReplayError, "its response is not that of Prometheus' API; check"),
    (
        "binary",
        (200, JSON, b"\xff\xfe\0"),
        ReplayError,
        "its response is not that of Prometheus' API; check --prometheus",
    ),
    (
        "wrong query",
        (400, JSON, error("bad_data", "1:1: parse error: unexpected end")),
        ReplayError,
        "Prometheus refuses the query up: 1:1: parse error: unexpected end; change it in --config",
    ),
    (
        "points",
        (400, JSON, error("bad_data", "exceeded maximum resolution of 11,000 points per timeseries")),
        TooLargeError,
        "exceeded maximum resolution",
    ),
    ("samples", (422, JSON, error("execution", "query processing would load too many samples")), TooLargeError, "too"),
    ("timeout", (503, JSON, error("timeout", "query timed out in expression evaluation")), TooLargeError, "timed out"),
    ("body", (413, "text/html", b""), TooLargeError, "status 413"),
    ("down", (503, "text/html", b"<html>"), ReplayError, "fails with status 503; try again later"),
]


@pytest.mark.parametrize(("response", "kind", "expected"), [r[1:] for r in RESPONSES], ids=[r[0] for r in RESPONSES])
def test_error_says_what_to_change(response: Response, kind: type[Exception], expected: str) -> None:
    with stub_server(lambda _: response) as url, pytest.raises(kind, match=expected) as raised:
        request(url)
    assert type(raised.value).__name__ != "ReplayError" or "\n" not in str(raised.value)


def test_unreachable_server() -> None:
    with pytest.raises(ReplayError, match=re.escape("127.0.0.1:1 cannot be reached (Connection refused); check")):
        request("http://127.0.0.1:1")


def test_error_has_no_password() -> None:
    with pytest.raises(ReplayError) as raised:
        request("http://admin:secret@127.0.0.1:1")
    assert "secret" not in str(raised.value)


def test_server_of_the_rules_file_is_named() -> None:
    with pytest.raises(ReplayError, match="check the url of team-a in prometheusServers"):
        request("http://127.0.0.1:1", name="team-a")


def test_outage_is_retried_until_the_deadline() -> None:
    responses: list[Response] = [(503, "text/html", b""), (429, "text/html", b""), (200, JSON, MATRIX)]
    clock = Clock()
    with stub_server(lambda _: responses.pop(0)) as url:
        request(url, clock=clock)
    assert responses == []
    assert 1.5 <= clock.now <= 2.25  # 0.5 and 1 s, with jitter

    with stub_server(lambda _: (503, "text/html", b"")) as url, pytest.raises(ReplayError, match="status 503"):
        request(url, clock=clock)
    assert 100 < clock.now - 2.25 < 120


def test_first_request_is_not_retried() -> None:
    server = PrometheusOptions(url="http://127.0.0.1:1")
    clock = Clock()
    with (
        RangeClient(server, DEFAULT_DESTINATION, clock=clock, sleep=clock.sleep) as client,
        pytest.raises(ReplayError, match="cannot be reached"),
    ):
        client.server_time()
    assert clock.now == 0


@pytest.mark.parametrize("head", [b"HTTP/1.1 200 OK\r\nX-Slow: ", b"HTTP/1.1 200 OK\r\nContent-Length: 999999\r\n\r\n"])
def test_response_in_drops_ends_at_the_deadline(head: bytes) -> None:
    """Each byte of a head or body would extend the timeout of a socket."""
    ended = threading.Event()

    class Drip(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with contextlib.suppress(OSError):
                self.request.sendall(head)
                while not ended.wait(0.01):
                    self.request.sendall(b"a")

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Drip) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
        options = PrometheusOptions(url=f"http://127.0.0.1:{server.server_address[1]}")
        try:
            with RangeClient(options, DEFAULT_DESTINATION, seconds=0.2) as client:
                with pytest.raises(ReplayError, match="sent no response in time"):
                    client.range("up", start_ms=0, end_ms=0, step_ms=1)
                with pytest.raises(ReplayError, match="sent no response in time"):
                    client.server_time()
        finally:
            ended.set()
            server.shutdown()


DEEP = b'{"status": "success", "data": %s}' % (b"[" * 100_000 + b"]" * 100_000)


def matrix(*series: object) -> bytes:
    return json.dumps({"status": "success", "data": {"resultType": "matrix", "result": series}}).encode()


@pytest.mark.parametrize(
    "body",
    [
        DEEP,
        b"null",
        b'{"data": null}',
        b'{"status": "success", "warnings": "all"}',
        b'{"data": {"result": [{"metric": {}, "values": [[1e999, "1"]]}]}}',
        matrix(5),
        matrix({"values": []}),
        matrix({"metric": [], "values": []}),
        matrix({"metric": {"a": 5}, "values": []}),
        matrix({"metric": {}, "values": [[1]]}),
        matrix({"metric": {}, "values": [["1", "1"]]}),
        matrix({"metric": {}, "values": [[-1, "1"]]}),
        matrix({"metric": {}, "values": [[1, 1]]}),
        matrix({"metric": {}, "values": {}}),
    ],
)
def test_malformed_response_is_an_error_in_a_sentence(body: bytes) -> None:
    with (
        stub_server(lambda _: (200, JSON, body)) as url,
        RangeClient(PrometheusOptions(url=url), DEFAULT_DESTINATION) as client,
    ):
        expected = pytest.raises(ReplayError, match="its response is not that of Prometheus' API")
        with expected:
            client.range("up", start_ms=0, end_ms=0, step_ms=1)
        with expected:
            client.instant("up", time_ms=0)
        with expected:
            client.server_time()
        with expected:
            client.metric_names()


@pytest.mark.parametrize(
    "body",
    [
        b'{"data": {"resultType": "scalar", "result": [1763876000.5, "1763876000.5"]}}',
        b'{"data": {"resultType": "vector", "result": [{"metric": {}, "value": [1763876000.5, "1763875970.5"]}]}}',
    ],
)
def test_time_of_the_server_is_a_scalar_or_as_of_victoriametrics_a_vector(body: bytes) -> None:
    with (
        stub_server(lambda _: (200, JSON, body)) as url,
        RangeClient(PrometheusOptions(url=url), DEFAULT_DESTINATION) as client,
    ):
        assert client.server_time() == 1763876000.5


@pytest.mark.parametrize("more", [{"warnings": ["a store is down \x1b]0;owned\x07"]}, {"isPartial": True}])
def test_partial_response_is_retried_and_then_an_error(more: dict[str, object]) -> None:
    body = json.dumps({"status": "success", **more, "data": {"resultType": "matrix", "result": []}}).encode()
    clock = Clock()
    with stub_server(lambda _: (200, JSON, body)) as url:
        with pytest.raises(ReplayError, match=r"only a part of the series .* --prometheus-partial-resp") as raised:
            request(url, clock=clock)
        assert str(raised.value).isprintable()
        assert clock.now > 100
        request(url, partial_responses="allow")
        with pytest.raises(ReplayError, match="with partialResponses: allow"):
            request(url, name="thanos")


@pytest.mark.parametrize("name", ["histograms", "histogram"])
def test_native_histograms_are_an_error_that_says_what_to_query(name: str) -> None:
    body = matrix({"metric": {}, name: [[1, {"count": "5"}]]})
    with stub_server(lambda _: (200, JSON, body)) as url, pytest.raises(ReplayError, match=r"histogram_quantile\("):
        request(url)


def test_message_of_a_server_is_printable_and_has_its_end() -> None:
    text = f'error when executing query="{"x" * 5_000}"\x1b[2J: the reason'
    with stub_server(lambda _: (503, JSON, error("", text))) as url, pytest.raises(ReplayError) as raised:
        request(url)
    assert str(raised.value).endswith('x"\N{REPLACEMENT CHARACTER}[2J: the reason; try again later')


def test_response_that_is_too_long_suggests_a_shorter_range() -> None:
    with (
        stub_server(lambda _: (200, JSON, MATRIX + b" " * 2**20)) as url,
        pytest.raises(TooLargeError, match="is longer than 1 MiB"),
    ):
        request(url, max_bytes=2**20)


def test_times_are_exact_and_parameters_of_the_server_are_sent() -> None:
    received: list[dict[str, list[str]]] = []

    def respond(path: str) -> Response:
        received.append(parse_qs(urlsplit(path).query))
        return 200, JSON, MATRIX

    with stub_server(respond) as url:
        request(url, query_parameters=(("dedup", "a b"), ("s[]", "c"), ("s[]", "d")))
    [parameters] = received
    assert parameters == {
        "dedup": ["a b"],
        "s[]": ["c", "d"],
        "query": ["up"],
        "start": ["1000.500"],
        "end": ["1060.500"],
        "step": ["15.000"],
        "timeout": ["108s"],
    }


@pytest.mark.parametrize(
    ("query", "verb", "method"), [("up", "GET", "GET"), ("up", "POST", "POST"), ("u" * 9_000, "GET", "POST")]
)
def test_long_queries_are_in_the_body(query: str, verb: str, method: str) -> None:
    received: list[str] = []

    def respond(path: str) -> Response:
        received.append(path)
        return 200, JSON, MATRIX

    with stub_server(respond) as url:
        request(url, query=query, verb=verb)
    [path] = received
    assert path.startswith(f"{method} ")
    assert ("?" in path) == (method == "GET")


def test_credentials_and_headers_are_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "token").write_text("abc")
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login someone password else")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    received: list[dict[str, str]] = []
    destination = Destination(headers=(("X-Scope-OrgID", "rule"),))
    with stub_server(lambda _: (200, JSON, MATRIX), headers=received.append) as url:
        options = PrometheusOptions(url=url, token_file=tmp_path / "token", headers=(("x-scope-orgid", "team"),))
        with RangeClient(options, destination) as client:
            client.range("up", start_ms=0, end_ms=0, step_ms=1)
    assert received[0]["Authorization"] == "Bearer abc"
    assert [value for name, value in received[0].items() if name.lower() == "x-scope-orgid"] == ["rule"]


# --- TLS -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def authority() -> CertificateAuthority:
    return CertificateAuthority.create("test CA")


@pytest.fixture(scope="module")
def tls(authority: CertificateAuthority, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the CA, and certificates of a server and of a client."""
    folder = tmp_path_factory.mktemp("tls")
    (folder / "ca.crt").write_bytes(authority.cert_pem)
    for name, hosts in (("server", ["127.0.0.1"]), ("client", [])):
        issued = authority.issue(name, hosts=hosts)
        (folder / f"{name}.crt").write_bytes(issued.cert_pem)
        (folder / f"{name}.key").write_bytes(issued.key_pem)
    return folder


def server_context(tls: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=tls / "ca.crt")
    context.load_cert_chain(tls / "server.crt", tls / "server.key")
    return context


def test_ca_file_verifies_the_server(tls: Path) -> None:
    with stub_server(lambda _: (200, JSON, MATRIX), tls=server_context(tls)) as url:
        request(url, ca_file=tls / "ca.crt")
        request(url, insecure_skip_tls_verify=True)
        with pytest.raises(ReplayError, match=r"certificate that cannot be verified .*; give --prometheus-ca-file"):
            request(url)
        with pytest.raises(ReplayError, match="cannot be verified"):
            request(url.replace("127.0.0.1", "localhost"), ca_file=tls / "ca.crt")


def test_server_without_tls() -> None:
    with (
        stub_server(lambda _: (200, JSON, MATRIX)) as url,
        pytest.raises(ReplayError, match=r"TLS with https://127.0.0.1:\d+ fails .*; check --prometheus-url"),
    ):
        request(url.replace("http:", "https:"))


def test_unusable_file_of_tls(tmp_path: Path) -> None:
    with pytest.raises(ReplayError, match="CA file for Prometheus"):
        request("https://127.0.0.1:1", ca_file=tmp_path / "none")
