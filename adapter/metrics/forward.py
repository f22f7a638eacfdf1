"""External metrics that no rule makes, forwarded to another adapter: KEDA, Datadog, or a prometheus-adapter.

A cluster has one APIService for external.metrics.k8s.io, and therefore one server. With `forwardExternal` this adapter
is that server: it serves the metrics of its rules and forwards all others. It authorizes each request itself; the other
adapter sees the identity of this adapter and must allow it to list external metrics.

Requests for the same values share one request to the other adapter, and its response is cached for all users. Values
keep their timestamps; those without one get the time of the response.

Its list of metrics is in memory for discovery, which never waits. Metrics that are not in the list are forwarded, too,
because some adapters list nothing.
"""

from __future__ import annotations

import asyncio
import datetime
import logging
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self, TypeVar
from urllib.parse import quote

import aiohttp
import msgspec
from yarl import URL

from adapter.catalog.values import ExternalMetricValue
from adapter.metrics.requests import ExternalMetricRequest
from adapter.planning.refresh_ahead import RefreshAheadCache
from adapter.rules import ForwardOptions
from adapter.upstream import CredentialsError, UpstreamClient, UpstreamConfigError, read_up_to
from kube.deadlines import Deadline
from kube.fairness import QueueFullError
from kube.quantity import Quantity, QuantityError
from kube.retries import Backoff
from kube.status import StatusError, service_unavailable, too_many_requests
from kube.status import timeout as timed_out

_log = logging.getLogger(__name__)
_T = TypeVar("_T")

_API = "/apis/external.metrics.k8s.io/v1beta1"
_MAX_RESPONSE = 16 * 1024 * 1024
# Limits: requests in flight to the other adapter, waiting requests per namespace, bytes of a response.
_REQUESTS, _MAX_WAITING = 8, 256
_FIRST_RETRY_SECONDS = 1.0
_LAST_RETRY_SECONDS = 30.0
_MAX_CACHE_BYTES = 25_000_000
_VALUE_BYTES = 500
_UNREACHABLE = "the adapter that external metrics are forwarded to cannot be reached"
_UNREADABLE = "the adapter that external metrics are forwarded to sent an unusable response"
_TOO_SLOW = "Timeout: the adapter that external metrics are forwarded to did not answer in time"
_REFUSED = "the adapter that external metrics are forwarded to does not accept this adapter's credentials"


class _Value(msgspec.Struct, rename="camel"):
    metric_name: str
    value: str
    timestamp: str | None = None
    metric_labels: dict[str, str] | None = None
    window_seconds: int | None = None


class _Values(msgspec.Struct):
    items: list[_Value] | None = None


class _Resource(msgspec.Struct):
    name: str


class _Resources(msgspec.Struct):
    resources: list[_Resource] | None = None


class Forwarder:
    """Forwards requests to another adapter, if any, for one version of the rules. Use as an async context manager.

    Args:
        options: the other adapter.
        relist_interval: of its list of metrics, in seconds.
        ttl: of cached values, in seconds; 0 caches nothing.
        session: an HTTP session to share; None: the forwarder opens its own.
        clock: returns seconds since the epoch.
    """

    def __init__(
        self,
        options: ForwardOptions | None,
        *,
        relist_interval: float,
        ttl: float = 0.0,
        session: aiohttp.ClientSession | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._cache: RefreshAheadCache[list[ExternalMetricValue]] = RefreshAheadCache(
            ttl=ttl, size=lambda values: _VALUE_BYTES * len(values), max_bytes=_MAX_CACHE_BYTES
        )
        self._peer = options
        self._upstream: UpstreamClient | None = None
        if options is not None:
            self._upstream = UpstreamClient(options, connections=_REQUESTS, max_waiting=_MAX_WAITING, session=session)
        self._relist_interval = relist_interval
        self._clock = clock
        self._names: tuple[str, ...] = ()
        self._tried = asyncio.Event()
        if options is None:
            self._tried.set()
        self._problem = ""

    async def __aenter__(self) -> Self:
        await self._cache.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._cache.__aexit__(None, None, None)
        if self._upstream is not None:
            await self._upstream.close()

    @property
    def active(self) -> bool:
        """True if another adapter is configured."""
        return self._peer is not None

    @property
    def names(self) -> tuple[str, ...]:
        """The metrics that the other adapter last listed, sorted."""
        return self._names

    def carry_over(self, previous: Forwarder) -> None:
        """Start with the names that another version's forwarder has listed of the same adapter."""
        if self._peer is not None and previous._peer is not None and self._peer == previous._peer:
            self._names = previous._names
            if previous._tried.is_set():
                self._tried.set()

    async def wait_tried(self) -> None:
        """Wait until the names have been listed, with success or not, by this version or the one before."""
        await self._tried.wait()

    async def run(self) -> None:
        """Keep the list of names up to date, until cancelled."""
        if self._peer is None:
            return
        backoff = Backoff(_FIRST_RETRY_SECONDS, _LAST_RETRY_SECONDS)
        while True:
            if await self._relist(self._peer):
                backoff.reset()
                pause = self._relist_interval
            else:
                pause = min(backoff.next(), self._relist_interval)
            self._tried.set()
            await asyncio.sleep(pause)

    async def values(self, request: ExternalMetricRequest) -> list[ExternalMetricValue]:
        """Return the other adapter's values of a metric; see adapter.metrics.external.ExternalMetrics.values.

        Raises:
            StatusError: the other adapter's own error; 503 when it cannot be reached, refuses this adapter's
                credentials, 504 when it is too slow.
        """
        peer = self._peer
        assert peer is not None, "there is no other adapter"
        path = f"/namespaces/{quote(request.namespace, safe='')}/{quote(request.metric, safe='')}"
        selector = str(request.selector)

        async def fetch(_: Deadline) -> list[ExternalMetricValue]:
            return await self._fetch(peer, path, selector)

        try:
            return await self._cache.get((path, selector), fetch, request.deadline)
        except TimeoutError as error:
            raise timed_out(_TOO_SLOW) from error

    async def _fetch(self, peer: ForwardOptions, path: str, selector: str) -> list[ExternalMetricValue]:
        """Fetch the values for all callers, within the options' timeout whatever the callers' deadlines."""
        query = {"timeout": f"{peer.timeout:.3f}s"}
        if selector:
            query["labelSelector"] = selector
        found = await self._get(peer, path, query, _Values)
        try:
            return [self._value(item) for item in found.items or ()]
        except (QuantityError, ValueError, OverflowError) as error:
            raise self._unusable(_UNREADABLE, error) from error

    def _value(self, item: _Value) -> ExternalMetricValue:
        at = datetime.datetime.fromisoformat(item.timestamp).timestamp() if item.timestamp else self._clock()
        return ExternalMetricValue(
            metric=item.metric_name,
            labels=item.metric_labels,
            timestamp=at,
            window_seconds=item.window_seconds,
            milli=Quantity.parse(item.value).milli_value(),
        )

    async def _relist(self, peer: ForwardOptions) -> bool:
        try:
            found = await self._get(peer, "", {}, _Resources)
        except StatusError as error:
            if str(error) != self._problem:
                self._problem = str(error)
                _log.warning("the other adapter's metrics cannot be listed, and the last list stays: %s", error)
            return False
        names = tuple(sorted({resource.name for resource in found.resources or ()}))
        self._names = names if names != self._names else self._names  # discovery compares the tuple by identity
        if self._problem:
            self._problem = ""
            _log.info("the other adapter's metrics are listed again")
        return True

    async def _get(self, peer: ForwardOptions, path: str, query: dict[str, str], kind: type[_T]) -> _T:
        assert self._upstream is not None
        url = URL(f"{peer.base}{_API}{path}", encoded=True).with_query(query)
        try:
            async with (
                asyncio.timeout(peer.timeout),
                self._upstream.slot(),
                self._upstream.send(url, headers=(("Accept", "application/json"),)) as response,
            ):
                code, body = response.status, await read_up_to(response, _MAX_RESPONSE)
        except QueueFullError as error:
            raise too_many_requests("Too many requests, please try again later.", retry_after=1) from error
        except aiohttp.ServerTimeoutError as error:
            raise self._unusable(_UNREACHABLE, error) from error
        except TimeoutError as error:
            raise timed_out(_TOO_SLOW) from error
        except (aiohttp.ClientError, OSError, CredentialsError, UpstreamConfigError) as error:
            raise self._unusable(_UNREACHABLE, error) from error
        if len(body) > _MAX_RESPONSE:
            raise self._unusable(_UNREADABLE, ValueError(f"longer than {_MAX_RESPONSE} bytes"))
        if code in (401, 403):
            # Its 401 and 403 concern this adapter's credentials, not the client's.
            raise self._unusable(_REFUSED, StatusError.from_body(code, body))
        if code >= 400:
            raise StatusError.from_body(code, body)
        try:
            return msgspec.json.decode(body, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise self._unusable(_UNREADABLE, error) from error

    def _unusable(self, message: str, error: Exception) -> StatusError:
        """Return a 503. The reason, which may have an address in it, is for the log."""
        _log.debug("%s: %s: %s", message, type(error).__name__, error)
        return service_unavailable(message)
