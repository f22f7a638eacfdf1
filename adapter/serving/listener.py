"""The listening socket: accepts connections, limits their number, and closes idle ones for new ones.

Every connection costs memory, also an idle one, and everybody who reaches the port can open them. So each has a slot
from the moment it is accepted; connections in their TLS handshake get a quarter of the slots. (asyncio's own server
reports a connection only after its handshake, so it can neither count nor close those.)

When all slots are taken, an idle connection is closed for a new one. Were new connections refused instead, the first
clients to come could lock out the API server and the kubelet. Connections whose client certificate some CA verified,
such as the API server's, are closed last. A connection whose request is being handled is never closed; one whose
response is only being sent may be, or clients that do not read would lock out all others.

The incomplete heads of all connections have a limit together; beyond it the connection with the longest one is closed.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import resource
import socket
import ssl
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge

from adapter.serving.connection import Connection, HttpServer
from adapter.serving.server import RequestServer, ServerLimits, error_response

_log = logging.getLogger(__name__)

# A handshake takes milliseconds, so that many at a time are enough for a whole cluster that restarts.
_HANDSHAKES_PART: Final = 4
_MAX_BUFFERED: Final = 32 * 1024 * 1024
_WARN_EVERY_SECONDS: Final = 60.0
_BACKLOG: Final = 512
# Requests are short. The loop's buffer of a connection grows to what is read at once, a quarter of a MiB, and stays.
_RECEIVE_BUFFER: Final = 16 * 1024
_RETRY_SECONDS: Final = 1.0
_ACCEPTED_AT_ONCE: Final = 16  # handshakes go on in between, however many clients are waiting
# Errors of one connection, which accept(2) reports and removes from the queue; EPERM is a firewall's.
_CONNECTION_ERRORS: Final = frozenset(
    {
        *(errno.ECONNABORTED, errno.EPERM, errno.EPROTO, errno.ENOPROTOOPT, errno.EOPNOTSUPP, errno.ETIMEDOUT),
        *(errno.ENETDOWN, errno.ENETUNREACH, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ENONET),
    }
)
# For connections to Prometheus and to API servers, and for files.
_OTHER_FILES: Final = 256

_Group = OrderedDict[Connection, None]


class Slots:
    """The connections, in groups; in each the one that was active least recently comes first.

    Args:
        limit: how many connections there may be.
        registry: where they are counted.
        clock: seconds, to repeat a warning at most once a minute.
    """

    def __init__(self, *, limit: int, registry: CollectorRegistry, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = limit
        self._max_handshakes = max(1, limit // _HANDSHAKES_PART)
        self._clock = clock
        self._next_warning = 0.0
        self._buffered = 0
        self.handshakes: _Group = OrderedDict()
        self.unverified: _Group = OrderedDict()
        self.verified: _Group = OrderedDict()
        gauge = Gauge(
            "milliscale_adapter_connections",
            "Connections to the adapter, by state: in their TLS handshake, or open.",
            ("state",),
            registry=registry,
        )
        gauge.labels("handshake").set_function(lambda: len(self.handshakes))
        gauge.labels("open").set_function(lambda: len(self.unverified) + len(self.verified))
        self._dropped = Counter(
            "milliscale_adapter_connections_dropped_total",
            "Connections that were closed for others because there were too many, by reason: the handshake was not "
            "finished, the connection was idle, a request's head was long and incomplete, or a new connection was "
            "refused because all others were busy.",
            ("reason",),
            registry=registry,
        )
        for reason in ("handshake", "idle", "head", "refused"):
            self._dropped.labels(reason)

    def __len__(self) -> int:
        return len(self.handshakes) + len(self.unverified) + len(self.verified)

    def add(self, connection: Connection) -> bool:
        """Take a slot for a connection that was just accepted; return False if all others are busy."""
        if not self._make_room():
            self._dropped.labels("refused").inc()
            return False
        self._move(connection, self.handshakes)
        return True

    def opened(self, connection: Connection) -> None:
        """Note that a connection's handshake is finished."""
        if connection.group is not None:
            self._move(connection, self.unverified if connection.certificate is None else self.verified)

    def remove(self, connection: Connection) -> None:
        """Release the slot of a connection that is closed."""
        self._move(connection, None)
        self._buffered -= connection.buffered
        connection.buffered = 0

    def buffer(self, connection: Connection, count: int) -> None:
        """Add to the bytes of a connection's incomplete head."""
        connection.buffered += count
        self._buffered += count
        if self._buffered > _MAX_BUFFERED:
            self._drop(max((*self.unverified, *self.verified), key=lambda one: one.buffered), "head")

    def _move(self, connection: Connection, group: _Group | None) -> None:
        if connection.group is not None:
            del connection.group[connection]
        connection.group = group
        if group is not None:
            group[connection] = None

    def _make_room(self) -> bool:
        """Close an idle connection if there is no free slot; return whether there is one now."""
        if len(self.handshakes) >= self._max_handshakes:
            groups: tuple[_Group, ...] = (self.handshakes,)
        elif len(self) < self._limit:
            return True
        else:
            groups = (self.unverified, self.handshakes, self.verified)
        self._warn()
        for group in groups:
            for connection in group:
                if not connection.busy:
                    self._drop(connection, "handshake" if group is self.handshakes else "idle")
                    return True
        return False

    def _drop(self, connection: Connection, reason: str) -> None:
        self._dropped.labels(reason).inc()
        connection.close("there are too many")

    def _warn(self) -> None:
        now = self._clock()
        if now >= self._next_warning:
            self._next_warning = now + _WARN_EVERY_SECONDS
            _log.warning(
                "too many connections (%d, of which %d in their TLS handshake; --max-connections=%d): idle ones are "
                "closed for new ones",
                *(len(self), len(self.handshakes), self._limit),
            )


class Listener:
    """Accepts connections.

    Args:
        server: handles their requests.
        context: TLS for new connections.
        limits: see ServerLimits.
        registry: where connections are counted.
    """

    def __init__(
        self, server: RequestServer, context: ssl.SSLContext, limits: ServerLimits, *, registry: CollectorRegistry
    ) -> None:
        self._request_server = server
        self._context = context
        self._limits = limits
        self._slots = Slots(limit=within_open_files(limits.connections), registry=registry)
        self._handshakes: set[asyncio.Task[None]] = set()
        self._listening: tuple[socket.socket, HttpServer] | None = None
        self._retry: asyncio.TimerHandle | None = None

    async def start(self, listening: socket.socket) -> None:
        """Begin to accept connections on a bound socket, which is this listener's from now on."""
        listening.setblocking(False)
        # Accepted connections inherit it; the buffer for sending is another one.
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER)
        listening.listen(_BACKLOG)
        server = HttpServer(self._request_server.handle, error_response=error_response, limits=self._limits.connection)
        self._listening = listening, server
        asyncio.get_running_loop().add_reader(listening, self._accept, listening, server)

    async def stop(self) -> None:
        """Accept nothing more, let requests in flight end, then close every connection."""
        if self._listening is None:
            return
        (listening, server), self._listening = self._listening, None
        if self._retry is not None:
            self._retry.cancel()
        asyncio.get_running_loop().remove_reader(listening)
        listening.close()
        for connection in list(self._slots.handshakes):
            connection.close("the adapter is stopping")
        if self._handshakes:
            await asyncio.wait(self._handshakes)
        server.pre_shutdown()
        await server.shutdown(self._limits.shutdown_seconds)

    def _accept(self, listening: socket.socket, server: HttpServer) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                client, _ = listening.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno in _CONNECTION_ERRORS:
                    _log.debug("a connection ended before it was accepted: %s", error.strerror)
                    continue
                _log.warning("cannot accept connections: %s", error.strerror)
                # The client still waits, so that the loop would call at once again.
                loop.remove_reader(listening)
                self._retry = loop.call_later(
                    _RETRY_SECONDS, loop.add_reader, listening, self._accept, listening, server
                )
                return
            client.setblocking(False)
            connection = Connection(server, client, self._slots)
            if not self._slots.add(connection):
                client.close()
                continue
            task = loop.create_task(self._handshake(client, connection))
            self._handshakes.add(task)
            task.add_done_callback(self._handshakes.discard)

    async def _handshake(self, client: socket.socket, connection: Connection) -> None:
        """Complete the TLS handshake; then the connection belongs to the event loop."""
        seconds = self._limits.connection.handshake
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: connection,
                client,
                ssl=self._context,
                ssl_handshake_timeout=seconds,
                ssl_shutdown_timeout=seconds,
            )
        except (OSError, ssl.CertificateError) as error:
            _log.debug("a TLS handshake failed: %s", error)
        finally:
            if connection.group is self._slots.handshakes:
                self._slots.remove(connection)


def within_open_files(connections: int) -> int:
    """Return this number of connections, or the number that the limit of open files allows."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY or connections + _OTHER_FILES <= limit:
        return connections
    most = max(limit - _OTHER_FILES, limit // 2)
    _log.warning("at most %d connections, not %d: this process may have %d open files", most, connections, limit)
    return most
