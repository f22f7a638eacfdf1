"""How many connections there may be at a time, and which one ends for another.

Every connection costs memory, also one on which nothing is ever said, and whoever reaches the port could take all of
it. So each has a place, from the moment that it is accepted, before TLS, until it has ended, and there are only so many
places; those that have not finished their handshake get a part of them.

When there are no places left, a newcomer takes that of a connection which does no work. Were newcomers turned away
instead, then those who came first, and only hold their places, would lock out the API server and the kubelet. Those
who showed a certificate that one of our authorities vouches for, as the API server does, are the last to go; they can
connect anew when they need to. A connection whose request is being worked on never goes. One whose answer is only being
sent may go: otherwise those who ask and do not read would lock out all others.

The heads of requests that have not come to their end are kept in memory, and have a limit together, too. Beyond it the
connection with the longest one ends; heads that come whole are never it for long.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge

_log = logging.getLogger(__name__)

# A handshake takes milliseconds, so that many at a time are enough for a whole cluster that starts anew.
_HANDSHAKES_PART: Final = 4
# Bytes of unfinished heads, of all connections together; in memory they take two to three times as much.
_MOST_HELD: Final = 32 * 1024 * 1024
_WARN_EVERY_SECONDS: Final = 60.0


class OpenConnections:
    """The places.

    Args:
        most: how many places there are; a quarter of them for connections without a finished handshake.
        registry: where they are counted.
        clock: seconds, for not repeating a warning all the time.

    Attributes:
        handshakes: the places of connections without a finished handshake, each of these from the one that has been
            quiet for the longest time to the one that was active last.
        strangers: those of clients without a certificate.
        known: those of the others.
    """

    def __init__(self, *, most: int, registry: CollectorRegistry, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = most
        self._held = 0
        self._most_handshakes = max(1, most // _HANDSHAKES_PART)
        self._clock = clock
        self._quiet_until = 0.0
        self.handshakes: _Places = OrderedDict()
        self.strangers: _Places = OrderedDict()
        self.known: _Places = OrderedDict()
        gauge = Gauge(
            "milliscale_adapter_connections",
            "Connections to the adapter, by state: in their TLS handshake, or open.",
            ("state",),
            registry=registry,
        )
        gauge.labels("handshake").set_function(lambda: len(self.handshakes))
        gauge.labels("open").set_function(lambda: len(self.strangers) + len(self.known))
        self._dropped = Counter(
            "milliscale_adapter_connections_dropped_total",
            "Connections that ended for others because there were too many, by reason: the handshake was not finished, "
            "no request was being worked on, a request's head was long and not finished, or, of newcomers, all others "
            "were at work.",
            ("reason",),
            registry=registry,
        )
        for reason in ("handshake", "idle", "head", "refused"):
            self._dropped.labels(reason)

    def __len__(self) -> int:
        """How many there are."""
        return len(self.handshakes) + len(self.strangers) + len(self.known)

    def take(self, hang_up: Callable[[], None]) -> Place | None:
        """A place for a connection that was just accepted, which `hang_up` ends; None where all others are at work."""
        if not self._make_room():
            self._dropped.labels("refused").inc()
            return None
        return Place(self, hang_up)

    def end_handshakes(self) -> None:
        """End every connection whose handshake is not finished."""
        for place in list(self.handshakes):
            place.end()

    def holds(self, count: int) -> None:
        """As many more bytes of unfinished heads are there, or fewer; the longest head's connection may end for it."""
        self._held += count
        if self._held > _MOST_HELD:
            longest = max((*self.strangers, *self.known), key=lambda place: place.held)
            self._dropped.labels("head").inc()
            longest.end()

    def _make_room(self) -> bool:
        if len(self.handshakes) >= self._most_handshakes:
            self._warn()
            return self._end_one(self.handshakes, "handshake")
        if len(self) < self._most:
            return True
        self._warn()
        return (
            self._end_one(self.strangers, "idle")
            or self._end_one(self.handshakes, "handshake")
            or self._end_one(self.known, "idle")
        )

    def _end_one(self, places: _Places, reason: str) -> bool:
        place = next((place for place in places if not place.busy), None)
        if place is None:
            return False
        self._dropped.labels(reason).inc()
        place.end()
        return True

    def _warn(self) -> None:
        now = self._clock()
        if now >= self._quiet_until:
            self._quiet_until = now + _WARN_EVERY_SECONDS
            _log.warning(
                "too many connections (%d, of which %d in their TLS handshake; --max-connections=%d): those that do no "
                "work end for new ones",
                *(len(self), len(self.handshakes), self._most),
            )


class Place:
    """What one connection has until it ends.

    Attributes:
        busy: whether its request is being worked on; not while the answer is being sent.
        is_open: whether its handshake is finished.
        held: bytes of an unfinished head.
    """

    __slots__ = ("_end", "_places", "_room", "busy", "held", "is_open")

    def __init__(self, room: OpenConnections, end: Callable[[], None]) -> None:
        self._room = room
        self._end = end
        self._places: _Places | None = room.handshakes
        self.busy = False
        self.is_open = False
        self.held = 0
        room.handshakes[self] = None

    def opened(self, end: Callable[[], None], *, known: bool) -> None:
        """The handshake is finished; `end` ends the connection from now on. `known`: it has a client certificate."""
        self.is_open = True
        self._end = end
        if self._places is not None:
            del self._places[self]
            self._places = self._room.known if known else self._room.strangers
            self._places[self] = None

    def hold(self, count: int) -> None:
        """As many more bytes of a head have come, which is not known to be finished."""
        if self._places is not None:
            self.held += count
            self._room.holds(count)

    def active(self) -> None:
        """A head is finished: something was asked."""
        if self._places is not None:
            self._places.move_to_end(self)
            self._release()

    def end(self) -> None:
        """End the connection, and give the place free."""
        self.left()
        self._end()

    def left(self) -> None:
        """The connection has ended; once is enough."""
        if self._places is not None:
            del self._places[self]
            self._places = None
            self._release()

    def _release(self) -> None:
        if self.held:
            self._room.holds(-self.held)
            self.held = 0


_Places = OrderedDict[Place, None]
