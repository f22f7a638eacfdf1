"""The texts of --ui-address, and of URLs that pages link to."""

from __future__ import annotations

import pytest

from kube.web.options import UIAddress, external_url


@pytest.mark.parametrize(
    ("text", "host", "port", "is_loopback"),
    [
        ("127.0.0.1:8081", "127.0.0.1", 8081, True),
        ("localhost:0", "127.0.0.1", 0, True),
        ("[::1]:8081", "::1", 8081, True),
        ("127.0.0.2:8081", "127.0.0.2", 8081, True),
        (":8443", "::", 8443, False),
        ("0.0.0.0:8443", "0.0.0.0", 8443, False),
        ("[::]:8443", "::", 8443, False),
        ("10.1.2.3:8443", "10.1.2.3", 8443, False),
    ],
)
def test_address(text: str, host: str, port: int, is_loopback: bool) -> None:
    address = UIAddress.parse(text)
    assert address == UIAddress(host, port)
    assert address.is_loopback is is_loopback


@pytest.mark.parametrize("text", ["", "8081", "127.0.0.1", "127.0.0.1:", "127.0.0.1:http", "127.0.0.1:65536", "a.b:1"])
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must be"):
        UIAddress.parse(text)


@pytest.mark.parametrize("text", ["https://metrics.example.com", "http://127.0.0.1:9090/", "https://a.example/path/"])
def test_url_has_no_slash_at_its_end(text: str) -> None:
    assert external_url(text) == text.rstrip("/")


@pytest.mark.parametrize(
    "text", ["", "metrics.example.com", "javascript:alert(1)", "http://", "http://[::1", "http://a?b"]
)
def test_text_that_is_no_url_to_link_to_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must be a URL such as"):
        external_url(text)
