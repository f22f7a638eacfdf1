"""The way of a request whose answer is in memory: no parser, no task, no routing.

Most requests of HPA controllers come from the API server's aggregation layer, over connections that stay open, and ask
for what was asked a moment ago. Such a request is read from its bytes here, its user recognized, and the remembered
answer (adapter.serving.memory) written at once. Whatever is not known to be harmless is left to the long way, which
fills the memory: other methods, bodies, anything unusual in the head, clients that are not the front proxy, answers
that have ended.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from adapter.security.authentication import Authenticator, RawHeaders, User
from adapter.serving.memory import AnswerMemory, Asked
from adapter.serving.telemetry import Telemetry

__all__ = ["PlainRequest", "ShortCut", "memory_key"]

_END = b"\r\n\r\n"
_METHOD = b"GET "
_PROTOCOL = b" HTTP/1.1"
_MAX_HEAD = 16 * 1024

# What changes what is answered; all of them are part of what an answer is remembered for.
_WISHES = (b"accept", b"accept-encoding", b"user-agent")
# Heads with these are for the long way.
_SPECIAL = frozenset(
    {
        *(b"connection", b"content-length", b"expect", b"http2-settings", b"if-none-match", b"keep-alive"),
        *(b"te", b"trailer", b"transfer-encoding", b"upgrade"),
    }
)


# So are those that want to be somebody else, who are refused there.
_IMPERSONATION = b"impersonate-"


@dataclass(frozen=True, slots=True)
class PlainRequest:
    """A GET without a body. The names of its headers are in lower case."""

    target: bytes
    headers: RawHeaders

    @classmethod
    def read(cls, data: bytes) -> PlainRequest | None:
        """Read a whole head; None for anything that is not just that."""
        if not data.startswith(_METHOD) or data.find(_END) != len(data) - 4 or len(data) > _MAX_HEAD:
            return None
        line, *lines = data[:-4].split(b"\r\n")
        if not line.endswith(_PROTOCOL):
            return None
        target = line[4:-9]
        if not target.startswith(b"/") or b" " in target or b"#" in target or not target.isascii():
            return None
        headers = []
        for one in lines:
            name, colon, value = one.partition(b":")
            # A name of other letters is an error, and a line that begins with a space goes on with the one before.
            if not colon or not name.replace(b"-", b"").isalnum() or b"\n" in value or b"\r" in value or b"\0" in value:
                return None
            name = name.lower()
            if name in _SPECIAL or name.startswith(_IMPERSONATION):
                return None
            headers.append((name, value.strip(b" \t")))
        return cls(target, tuple(headers))


def memory_key(user: User, target: bytes, headers: Iterable[tuple[bytes, bytes]]) -> Asked:
    """What an answer is remembered for; the names of the headers are in lower case."""
    return Asked(user, target, tuple(header for header in headers if header[0] in _WISHES))


class ShortCut:
    """Answers what it can at once."""

    def __init__(
        self,
        authenticator: Authenticator,
        memory: AnswerMemory,
        telemetry: Telemetry,
        handed_out: Callable[[str, float, int], None],
    ) -> None:
        """`handed_out` is told of values: their API group, their age in seconds, and how many have it."""
        self._authenticator = authenticator
        self._memory = memory
        self._telemetry = telemetry
        self._handed_out = handed_out

    def answer(self, request: PlainRequest, certificate: bytes) -> tuple[bytes, bytes, bytes] | None:
        """The parts of the answer, or None. `certificate` is the client's, as DER."""
        started = time.monotonic()
        user = self._authenticator.recognize(certificate, request.headers)
        if user is None:
            return None
        found = self._memory.get(memory_key(user, request.target, request.headers))
        if found is None:
            return None
        now = time.time()
        for sampled_at, count in found.sampled_at:
            self._handed_out(found.labels.group, now - sampled_at, count)
        self._telemetry.observe(found.labels, code=200, seconds=time.monotonic() - started)
        return found.before_date, self._memory.date(now), found.after_date
