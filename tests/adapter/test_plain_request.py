"""Which requests may be answered from memory by their bytes alone: only those that no server could read otherwise."""

from __future__ import annotations

import pytest

from adapter.serving.memory import AnswerMemory
from adapter.serving.short_cut import PlainRequest

HEAD = b"GET /apis HTTP/1.1\r\nHost: a\r\nX-Remote-User: bob\r\n"


def test_these_can_be_read() -> None:
    assert PlainRequest.read(HEAD + b"\r\n") is not None
    assert PlainRequest.read(HEAD + b"Accept: a\tb\r\nX-Empty:\r\n\r\n") is not None


@pytest.mark.parametrize(
    "name",
    [
        *("Connection", "Content-Length", "Expect", "HTTP2-Settings", "If-None-Match", "Keep-Alive"),
        *("TE", "Trailer", "Transfer-Encoding", "Upgrade", "Impersonate-User", "Impersonate-Extra-Scopes"),
    ],
)
def test_what_changes_the_connection_the_body_or_the_answer_is_for_the_long_way(name: str) -> None:
    for spelled in (name, name.lower(), name.upper()):
        assert PlainRequest.read(HEAD + spelled.encode() + b": x\r\n\r\n") is None


@pytest.mark.parametrize("line", [b"X-A: b\0c", b"X-A: b\rc", b"X-A: b\nc", b"X_A: b", b": b", b"X-A\0: b", b"X A: b"])
def test_a_header_that_servers_read_differently_is_for_the_long_way(line: bytes) -> None:
    assert PlainRequest.read(HEAD + line + b"\r\n\r\n") is None


@pytest.mark.parametrize("target", [b"/apis#x", b"/a b", b"*", b"apis", b"", b"/\xc3\xa9"])
def test_a_target_that_servers_read_differently_is_for_the_long_way(target: bytes) -> None:
    assert PlainRequest.read(b"GET " + target + b" HTTP/1.1\r\nHost: a\r\n\r\n") is None


def test_a_long_head_is_for_the_long_way_which_has_its_limit() -> None:
    def of_length(length: int) -> bytes:
        return HEAD + b"X-A: " + b"a" * (length - len(HEAD) - 9) + b"\r\n\r\n"

    assert PlainRequest.read(of_length(16 * 1024)) is not None
    assert PlainRequest.read(of_length(16 * 1024 + 1)) is None


def test_an_answer_from_memory_has_the_date_of_now() -> None:
    memory = AnswerMemory(max_bytes=0)
    assert memory.date(1_700_000_000.2) == b"Tue, 14 Nov 2023 22:13:20 GMT"
    assert memory.date(1_700_000_000.9) == b"Tue, 14 Nov 2023 22:13:20 GMT"
    assert memory.date(1_700_000_001.0) == b"Tue, 14 Nov 2023 22:13:21 GMT"
