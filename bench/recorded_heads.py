"""Heads of requests as a kube-apiserver 1.36.2 sent them to an aggregated API server: every header, its order and case.

`tests/data/wire.jsonl` has them. A benchmark sends that of an HPA's metric for targets of its own: X-Forwarded-Uri is
the target's path, and each request has an Audit-Id that no other has, as the API server's have.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Final

import msgspec

AUDIT_ID: Final = "00000000-0000-4000-8000-000000000000"
"""Stands where each request has an Audit-Id of its own; as long as one."""

_FILE: Final = Path(__file__).resolve().parents[1] / "tests" / "data" / "wire.jsonl"


class RecordedRequest(msgspec.Struct, frozen=True):
    """A request; `client` is who made it, and `headers` are as they came over the wire."""

    client: str
    method: str
    target: str
    version: str
    headers: tuple[tuple[str, str], ...]

    def head(self, target: str | None = None) -> bytes:
        """The head as bytes, for another target where one is given."""
        wanted = self.target if target is None else target
        lines = [f"{name}: {value}" for name, value in _for_target(self.headers, wanted)]
        return "\r\n".join([f"{self.method} {wanted} HTTP/{self.version}", *lines, "", ""]).encode()


@functools.cache
def recorded_requests() -> tuple[RecordedRequest, ...]:
    """All of them, in the order of the recording."""
    return tuple(msgspec.json.decode(line, type=RecordedRequest) for line in _FILE.read_bytes().splitlines())


class Head(msgspec.Struct, frozen=True):
    """The headers of a request of kube-controller-manager's HPA controller."""

    headers: tuple[tuple[str, str], ...]

    def of(self, target: str) -> tuple[bytes, bytes]:
        """The head for a target: what is before the Audit-Id's value, and what is after it."""
        lines = [f"{name}: {value}" for name, value in _for_target(self.headers, target)]
        before, _, after = "\r\n".join([f"GET {target} HTTP/1.1", *lines, "", ""]).encode().partition(AUDIT_ID.encode())
        return before, after


def hpa_head() -> Head:
    """That of a Pods metric's request; those of other metrics differ in the target alone."""
    recorded = next(request for request in recorded_requests() if request.client == "kcm")
    return Head(tuple((name, AUDIT_ID if name == "Audit-Id" else value) for name, value in recorded.headers))


def _for_target(headers: tuple[tuple[str, str], ...], target: str) -> list[tuple[str, str]]:
    path = target.partition("?")[0]
    return [(name, path if name == "X-Forwarded-Uri" else value) for name, value in headers]
