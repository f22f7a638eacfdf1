"""Request heads that a kube-apiserver 1.36.2 sent to an aggregated API server: all headers in their order and case.

They are in `tests/data/wire.jsonl`. A benchmark sends the head of an HPA's metric for its own targets: X-Forwarded-Uri
is the target's path, and each request has its own Audit-Id.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Final

import msgspec

AUDIT_ID: Final = "00000000-0000-4000-8000-000000000000"
"""Placeholder for the Audit-Id of a request, with its length."""

_FILE: Final = Path(__file__).resolve().parents[1] / "tests" / "data" / "wire.jsonl"


class RecordedRequest(msgspec.Struct, frozen=True):
    """A recorded request; `client` is the component that sent it."""

    client: str
    method: str
    target: str
    version: str
    headers: tuple[tuple[str, str], ...]

    def head(self, target: str | None = None) -> bytes:
        """Return the head as bytes, for `target` if given."""
        wanted = self.target if target is None else target
        lines = [f"{name}: {value}" for name, value in _for_target(self.headers, wanted)]
        return "\r\n".join([f"{self.method} {wanted} HTTP/{self.version}", *lines, "", ""]).encode()


@functools.cache
def recorded_requests() -> tuple[RecordedRequest, ...]:
    """Return all requests in the order of the recording."""
    return tuple(msgspec.json.decode(line, type=RecordedRequest) for line in _FILE.read_bytes().splitlines())


class Head(msgspec.Struct, frozen=True):
    """The headers of a request of kube-controller-manager's HPA controller."""

    headers: tuple[tuple[str, str], ...]

    def of(self, target: str) -> tuple[bytes, bytes]:
        """Return the head for a target: the parts before and after the Audit-Id's value."""
        lines = [f"{name}: {value}" for name, value in _for_target(self.headers, target)]
        before, _, after = "\r\n".join([f"GET {target} HTTP/1.1", *lines, "", ""]).encode().partition(AUDIT_ID.encode())
        return before, after


def hpa_head() -> Head:
    """Return the head for a Pods metric; those of other metrics differ only in the target."""
    recorded = next(request for request in recorded_requests() if request.client == "kcm")
    return Head(tuple((name, AUDIT_ID if name == "Audit-Id" else value) for name, value in recorded.headers))


def _for_target(headers: tuple[tuple[str, str], ...], target: str) -> list[tuple[str, str]]:
    path = target.partition("?")[0]
    return [(name, path if name == "X-Forwarded-Uri" else value) for name, value in headers]
