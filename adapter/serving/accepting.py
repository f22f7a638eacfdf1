"""The door: connections are accepted here, and have a place before their TLS handshake begins.

asyncio's own server tells nobody of a connection before its handshake is finished, so it can neither count those in
their handshake nor end them. Therefore they are accepted here. Only some are accepted at a time, so that handshakes go
on in between, whatever is waiting at the door.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import resource
import socket
import ssl
from collections.abc import Callable
from typing import Final

from aiohttp import web

from adapter.serving.open_connections import OpenConnections, Place

_log = logging.getLogger(__name__)

_BACKLOG: Final = 512
_ACCEPTED_AT_ONCE: Final = 16
# Requests are short. The loop's buffer of a connection grows to what is read at once, a quarter of a MiB, and stays.
_RECEIVE_BUFFER: Final = 16 * 1024
_RETRY_SECONDS: Final = 1.0
# Of one connection, which accept(2) tells and takes from the queue; EPERM is a firewall's.
_OF_ONE_CONNECTION: Final = frozenset(
    {
        *(errno.ECONNABORTED, errno.EPERM, errno.EPROTO, errno.ENOPROTOOPT, errno.EOPNOTSUPP, errno.ETIMEDOUT),
        *(errno.ENETDOWN, errno.ENETUNREACH, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ENONET),
    }
)
# For connections to Prometheus and to API servers, and for files.
_OTHER_FILES: Final = 256


def within_open_files(connections: int) -> int:
    """As many connections as that, or as the limit of open files leaves room for."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY or connections + _OTHER_FILES <= limit:
        return connections
    most = max(limit - _OTHER_FILES, limit // 2)
    _log.warning("at most %d connections, not %d: this process may have %d open files", most, connections, limit)
    return most


class LimitedSite(web.SockSite):
    """A bound socket that is listened on.

    Args:
        runner: owns the connections.
        listening: the socket, which is this site's from now on.
        context: TLS.
        handshake: seconds that a TLS handshake may take, and the one that ends TLS.
        connections: has places for them.
        protocol: makes the protocol of a connection that has a place.
    """

    def __init__(
        self,
        runner: web.ServerRunner,
        listening: socket.socket,
        *,
        context: ssl.SSLContext,
        handshake: float,
        connections: OpenConnections,
        protocol: Callable[[Place], asyncio.Protocol],
    ) -> None:
        super().__init__(runner, listening, ssl_context=context, backlog=_BACKLOG)
        self._loop = asyncio.get_running_loop()
        self._handshake = handshake
        self._connections = connections
        self._protocol = protocol
        self._handshakes: set[asyncio.Task[None]] = set()
        self._retry: asyncio.TimerHandle | None = None

    async def start(self) -> None:
        """Begin to accept connections."""
        await web.BaseSite.start(self)
        self._sock.setblocking(False)
        # Connections inherit it; what is sent to clients has another one.
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER)
        self._sock.listen(self._backlog)
        self._loop.add_reader(self._sock, self._accept)

    async def stop(self) -> None:
        """Accept nothing more, and end handshakes that are pending."""
        await super().stop()
        if self._retry is not None:
            self._retry.cancel()
        self._loop.remove_reader(self._sock)
        self._sock.close()
        self._connections.end_handshakes()
        if self._handshakes:
            await asyncio.wait(self._handshakes)

    def _accept(self) -> None:
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                accepted, _ = self._sock.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno in _OF_ONE_CONNECTION:
                    _log.debug("a connection ended before it was accepted: %s", error.strerror)
                    continue
                # It would be tried again at once, and again, for the connection still waits.
                _log.warning("cannot accept connections: %s", error.strerror)
                self._loop.remove_reader(self._sock)
                self._retry = self._loop.call_later(_RETRY_SECONDS, self._loop.add_reader, self._sock, self._accept)
                return
            self._receive(accepted)

    def _receive(self, accepted: socket.socket) -> None:
        accepted.setblocking(False)

        def hang_up() -> None:
            # The loop sees the end of the connection, and frees the rest.
            with contextlib.suppress(OSError):
                accepted.shutdown(socket.SHUT_RDWR)

        place = self._connections.take(hang_up)
        if place is None:
            accepted.close()
            return
        task = self._loop.create_task(self._shake_hands(accepted, place))
        self._handshakes.add(task)
        task.add_done_callback(self._handshakes.discard)

    async def _shake_hands(self, accepted: socket.socket, place: Place) -> None:
        """Go through the handshake; from its end on the connection belongs to its protocol."""
        try:
            await self._loop.connect_accepted_socket(
                lambda: self._protocol(place),
                accepted,
                ssl=self._ssl_context,
                ssl_handshake_timeout=self._handshake,
                ssl_shutdown_timeout=self._handshake,
            )
        except (OSError, ssl.CertificateError) as error:
            _log.debug("a TLS handshake failed: %s", error)
        finally:
            if not place.is_open:
                place.left()
