"""External metrics that no rule makes, forwarded to other adapters: KEDA, Datadog, or a prometheus-adapter.

A cluster has one APIService for external.metrics.k8s.io, and therefore one server. With `forwardExternal` this adapter
is that server: it serves the metrics of its rules and forwards others. It authorizes each request itself; the other
adapter sees the identity of this adapter and must allow it to list external metrics.

The name of a metric decides which adapter has it. Each adapter has its own deadline, connections, cache and list, so
one that is slow or unreachable affects only its own metrics.

Requests for the same values share one request to the other adapter, and its response is cached for all users. Values
keep their timestamps; those without one get the time of the response. Its list of metrics is in memory for discovery,
which never waits. Metrics that are not in the list are requested, too, because some adapters list nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import functools
import itertools
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Self, TypeVar
from urllib.parse import quote

import aiohttp
import msgspec
from yarl import URL

from adapter.caches import RefreshAheadCache
from adapter.catalog.listings import retries_of_lists, seconds_to_relist
from adapter.content.values import ExternalMetricValue
from adapter.gil import releasing_gil
from adapter.metrics.requests import ExternalMetricRequest
from adapter.rules import ForwardOptions
from adapter.rules.naming import is_metric_name
from adapter.settings import DEFAULTS, ForwardSettings
from adapter.upstream import CredentialsError, UpstreamClient, UpstreamConfigError, without_credentials
from kube.aio.fairness import QueueFullError
from kube.aio.http import read_up_to
from kube.api.status import StatusError, service_unavailable, too_many_requests
from kube.api.status import timeout as timed_out
from kube.values.quantity import Quantity, QuantityError

_log = logging.getLogger(__name__)
_T = TypeVar("_T")
_API = "/apis/external.metrics.k8s.io/v1beta1"
_VALUE_BYTES = 500  # memory of a cached value
_FEW_NAMES = 500  # are selected without a thread
_UNREACHABLE = "cannot be reached"
_UNREADABLE = "sent an unusable response"
_REFUSED = "does not accept this adapter's credentials"


class Forwarder:
    """The other adapters, if any, of one version of the rules. Use as an async context manager.

    Args:
        options: the other adapters; a metric belongs to the first one that takes its name.
        relist_interval: of their lists of metrics, in seconds.
        ttl: of cached values, in seconds; 0 caches nothing.
        session: an HTTP session to share; None: each adapter opens its own.
        settings: see ForwardSettings.
        clock: returns seconds since the epoch.
    """

    def __init__(
        self,
        options: tuple[ForwardOptions, ...],
        *,
        relist_interval: float,
        ttl: float = 0.0,
        session: aiohttp.ClientSession | None = None,
        settings: ForwardSettings = DEFAULTS.forward,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.adapters = tuple(
            OtherAdapter(
                one,
                before=options[:index],
                relist_interval=relist_interval,
                ttl=ttl,
                max_cache_bytes=settings.cache_bytes // len(options),
                session=session,
                settings=settings,
                clock=clock,
            )
            for index, one in enumerate(options)
        )
        self._open = contextlib.AsyncExitStack()

    async def __aenter__(self) -> Self:
        for adapter in self.adapters:
            self._open.push_async_callback(adapter.upstream.close)
            await self._open.enter_async_context(adapter.cache)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._open.aclose()

    @property
    def names(self) -> tuple[tuple[str, ...], ...]:
        """The metrics that each of the other adapters last listed, sorted; the same tuples until they change.

        A metric that an adapter lists is left out if requests for it go to another one.
        """
        return tuple(adapter.names for adapter in self.adapters)

    def adapter_for(self, metric: str) -> OtherAdapter | None:
        """Return the adapter that requests for a metric are forwarded to, whether it lists it or not."""
        return next((one for one in self.adapters if one.options.takes(metric)), None)

    def states(self) -> list[tuple[str, bool]]:
        """Return the name of each adapter, and whether its last list succeeded."""
        return [(one.options.name, not one.problem) for one in self.adapters if one.tried.is_set()]

    async def carry_over(self, previous: Forwarder) -> None:
        """Start with the names that another version's forwarder has listed of the same adapters."""
        for adapter, other in itertools.product(self.adapters, previous.adapters):
            await adapter.carry_over(other)

    async def wait_tried(self) -> None:
        """Wait until each adapter has been listed, with success or not, by this version or the one before."""
        for adapter in self.adapters:
            await adapter.tried.wait()

    async def run(self) -> None:
        """Keep the lists of names up to date, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for adapter in self.adapters:
                tasks.create_task(adapter.run(), name=f"list {adapter.options}")


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


class OtherAdapter:
    """Requests metrics of one other adapter, for one version of the rules.

    `before` are the adapters that come first: it does not serve the metrics whose names they take. `max_cache_bytes` is
    the estimated size of cached values. The other arguments are those of Forwarder.
    """

    def __init__(
        self,
        options: ForwardOptions,
        *,
        before: Sequence[ForwardOptions],
        relist_interval: float,
        ttl: float,
        max_cache_bytes: int,
        session: aiohttp.ClientSession | None,
        settings: ForwardSettings,
        clock: Callable[[], float],
    ) -> None:
        self.cache: RefreshAheadCache[list[ExternalMetricValue]] = RefreshAheadCache(
            ttl=ttl, size=lambda values: _VALUE_BYTES * len(values), max_bytes=max_cache_bytes
        )
        self.upstream = UpstreamClient(
            options, connections=settings.requests, max_waiting=settings.waiting, session=session
        )
        self._settings = settings
        self._relist_interval = relist_interval
        self._clock = clock
        self._before = before
        self._listed: tuple[str, ...] = ()
        self.options = options
        self.names: tuple[str, ...] = ()
        """The metrics that it last listed and that are requested from it, sorted; the same tuple until they change."""
        self.problem = ""
        """Why its metrics could not be listed the last time; "" if they were."""
        self.tried = asyncio.Event()
        """Set once its metrics have been listed, with success or not, by this version or the one before."""

    async def carry_over(self, previous: OtherAdapter) -> None:
        """Start with the names that were listed for another version of the rules, if that is of the same server."""
        old, new = (replace(one.options, name="", metrics=()) for one in (previous, self))
        if old == new:
            await self._set_names(previous._listed)
            self.problem = previous.problem
            if previous.tried.is_set():
                self.tried.set()

    async def run(self) -> None:
        """Keep the list of names up to date, until cancelled."""
        retries = retries_of_lists(self._relist_interval)
        while True:
            if await self._relist():
                retries.reset()
                delay = seconds_to_relist(self._relist_interval)
            else:
                delay = retries.next()
            self.tried.set()
            await asyncio.sleep(delay)

    async def values(self, request: ExternalMetricRequest) -> list[ExternalMetricValue]:
        """Return its values of a metric; see adapter.metrics.external.ExternalMetrics.values.

        Raises:
            StatusError: the other adapter's own error; 503 when it cannot be reached, refuses this adapter's
                credentials, 504 when it is too slow.
        """
        path = f"/namespaces/{quote(request.namespace, safe='')}/{quote(request.metric, safe='')}"
        selector = str(request.selector)

        async def fetch(_: float) -> list[ExternalMetricValue]:
            return await self._fetch(path, selector)

        try:
            return await self.cache.get((path, selector), fetch, request.deadline)
        except TimeoutError as error:
            raise self._too_slow() from error

    async def _fetch(self, path: str, selector: str) -> list[ExternalMetricValue]:
        """Fetch the values for all callers, within the options' timeout whatever the callers' deadlines."""
        query = {"timeout": f"{self.options.timeout:.3f}s"}
        if selector:
            query["labelSelector"] = selector
        found = await self._get(path, query, _Values)
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

    async def _relist(self) -> bool:
        try:
            found = await self._get("", {}, _Resources)
            if len(found.resources or ()) > self._settings.names:
                raise self._unusable(f"lists more than {self._settings.names} metrics", ValueError("too many"))
        except StatusError as error:
            if str(error) != self.problem:
                self.problem = str(error)
                _log.warning("the metrics of %s cannot be listed, and the last list stays: %s", self.options, error)
            return False
        await self._set_names(tuple(resource.name for resource in found.resources or ()))
        if self.problem:
            self.problem = ""
            _log.info("the metrics of %s are listed again", self.options)
        return True

    async def _set_names(self, listed: tuple[str, ...]) -> None:
        self._listed = listed
        selected = functools.partial(self._selected, listed)
        names = await asyncio.to_thread(selected) if len(listed) > _FEW_NAMES else selected()
        self.names = names if names != self.names else self.names  # discovery compares it by identity

    def _selected(self, listed: tuple[str, ...]) -> tuple[str, ...]:
        names = set(listed)
        return tuple(sorted(filter(self._serves, releasing_gil(names) if len(listed) > _FEW_NAMES else names)))

    def _serves(self, name: str) -> bool:
        is_usable = is_metric_name(name) and name.isprintable()
        return is_usable and self.options.takes(name) and not any(one.takes(name) for one in self._before)

    async def _get(self, path: str, query: dict[str, str], kind: type[_T]) -> _T:
        url = URL(f"{self.options.base}{_API}{path}", encoded=True).with_query(query)
        try:
            async with (
                asyncio.timeout(self.options.timeout),
                self.upstream.slot(),
                self.upstream.send(url, headers=(("Accept", "application/json"),)) as response,
            ):
                code, body = response.status, await read_up_to(response, self._settings.response_bytes)
                sent = response.request_info.headers
        except QueueFullError as error:
            raise too_many_requests("Too many requests, please try again later.") from error
        except aiohttp.ServerTimeoutError as error:
            raise self._unusable(_UNREACHABLE, error) from error
        except TimeoutError as error:
            raise self._too_slow() from error
        except (aiohttp.ClientError, OSError, CredentialsError, UpstreamConfigError) as error:
            raise self._unusable(_UNREACHABLE, error) from error
        if len(body) > self._settings.response_bytes:
            raise self._unusable(_UNREADABLE, ValueError(f"longer than {self._settings.response_bytes} bytes"))
        if code >= 400:
            body = without_credentials(body, sent)
        if code in (401, 403):
            # Its 401 and 403 concern this adapter's credentials, not the client's.
            raise self._unusable(_REFUSED, StatusError.from_body(code, body))
        if code >= 400:
            raise StatusError.from_body(code, body)
        if code != 200:
            raise self._unusable(_UNREADABLE, ValueError(f"status {code}"))
        try:
            return msgspec.json.decode(body, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise self._unusable(_UNREADABLE, error) from error

    def _too_slow(self) -> StatusError:
        return timed_out(f"Timeout: {self.options} did not answer in time")

    def _unusable(self, message: str, error: Exception) -> StatusError:
        """Return a 503. The reason, which may have an address in it, is for the log."""
        _log.debug("%s %s: %s: %s", self.options, message, type(error).__name__, error)
        return service_unavailable(f"{self.options} {message}")
