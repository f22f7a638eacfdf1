"""The process: event loop, garbage collector, open files, clock, signals, log and version."""

from __future__ import annotations

import asyncio
import gc
import logging
import resource
import signal
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

T = TypeVar("T")

_log = logging.getLogger(__name__)

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
# Python's default is 700, 10, 10. Reference counting frees nearly all garbage without the collector.
_GC_THRESHOLDS = (5_000, 20, 100)
_SWITCH_SECONDS = 0.001
_LAG_INTERVAL_SECONDS = 0.02
LOOP_LAG_BUCKETS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)
"""The buckets of a histogram of the event loop's lag, in seconds."""
_BOOT_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
# klog's levels are numbers: up to 3 for operation, from 4 on for debugging.
_DEBUG_FROM = 4
# The last two ranges change the direction of the text.
_CONTROLS = (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
_CONTROL_CHARACTERS = {code: ascii(chr(code))[1:-1] for code in _CONTROLS if chr(code) != "\t"}
"""How the log shows them: {code: escape sequence}. Tabs stay."""
_LONGEST_MESSAGE = 8 * 1024  # a name or selector of a user's object may have a megabyte
_CONTROL_CHARACTERS_OF_LINES = {code: text for code, text in _CONTROL_CHARACTERS.items() if chr(code) != "\n"}


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end, on uvloop if it is installed, otherwise on asyncio's own loop.

    Raises the limit on open files to the hard limit, as Go programs do. Freezes the imported modules' objects: a full
    garbage collection that scans them blocks the event loop for a tenth of a second. A worker thread that computes
    delays the event loop by a millisecond at a time, not by Python's five.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):  # macOS reports a hard limit that it does not accept
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    gc.freeze()
    sys.setswitchinterval(_SWITCH_SECONDS)
    with asyncio.Runner(loop_factory=_event_loop) as runner:
        return runner.run(main)


def freeze_gc() -> None:
    """Exclude all present objects from garbage collection. Call it after the first lists.

    With thousands of a cluster's objects in memory, a full collection blocks the event loop for most of a second. Also
    makes collections less frequent.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)


@contextmanager
def stopped_by_signals(stop: asyncio.Event) -> Iterator[asyncio.Event]:
    """Make SIGTERM and SIGINT set `stop` instead of ending the process; yield an event that a second one sets."""
    loop, again = asyncio.get_running_loop(), asyncio.Event()
    for number in _SIGNALS:
        loop.add_signal_handler(number, lambda: (again if stop.is_set() else stop).set())
    try:
        yield again
    finally:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)


def boot_clock() -> float:
    """Return the seconds since the machine started, including suspended time (unlike time.monotonic())."""
    return time.clock_gettime(_BOOT_CLOCK)


async def watch_loop(observe: Callable[[float], None], *, interval: float = _LAG_INTERVAL_SECONDS) -> None:
    """Measure the event loop's lag every `interval` seconds, until cancelled; `observe` gets it in seconds."""
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + interval
        await asyncio.sleep(interval)
        observe(max(loop.time() - due, 0.0))


class _OneLine(logging.Formatter):
    """Formats a record as one line without control characters, whatever its arguments contain.

    Names from the cluster can contain them, and a terminal would obey them. Only a traceback adds lines.
    """

    def format(self, record: logging.LogRecord) -> str:
        message = record.getMessage()
        if len(message) > _LONGEST_MESSAGE:
            message = f"{message[:_LONGEST_MESSAGE]}... ({len(message)} characters)"
        record.message = message.translate(_CONTROL_CHARACTERS)
        record.asctime = self.formatTime(record, self.datefmt)
        line = self.formatMessage(record)
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info).translate(_CONTROL_CHARACTERS_OF_LINES)
        return line


def setup_logging(verbosity: int) -> None:
    """Log to stderr: from INFO on, from DEBUG on with a verbosity of 4 or more."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_OneLine("%(asctime)s.%(msecs)03d %(levelname)-7s %(name)s: %(message)s", "%Y-%m-%dT%H:%M:%S"))
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.DEBUG if verbosity >= _DEBUG_FROM else logging.INFO)
    # At DEBUG these libraries log requests and responses, and so credentials; at INFO azure-identity logs each request.
    for library in ("azure", "botocore", "google", "msal", "requests"):
        logging.getLogger(library).setLevel(logging.ERROR)
    # At DEBUG these libraries log every connection.
    for library in ("aiohttp", "asyncio", "kubernetes_asyncio", "urllib3", "prometheus_api_client"):
        logging.getLogger(library).setLevel(logging.DEBUG if verbosity >= _DEBUG_FROM * 2 else logging.WARNING)


def _event_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop = uvloop.new_event_loop()
    loop.set_exception_handler(_log_loop_error)
    return loop


def _log_loop_error(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log an error that no task handles.

    If a TLS connection is closed while data arrives on it, uvloop reports an error with a traceback (uvloop issue 506);
    nothing is lost by it, so that one is a debug message.
    """
    error = context.get("exception")
    is_closed = isinstance(error, RuntimeError) and str(error).endswith("the handler is closed")
    if is_closed and context.get("message") == "Fatal error on SSL protocol":
        _log.debug("data arrived on a connection that was being closed: %s", error)
        return
    loop.default_exception_handler(context)
