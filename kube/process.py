"""A process in a cluster: its namespace, event loop, garbage collector and open files, and how it is told to end."""

from __future__ import annotations

import asyncio
import gc
import resource
import signal
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")

_NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_SIGNALS = (signal.SIGTERM, signal.SIGINT)
# Of Python's 700, 10, 10: nearly all of our garbage goes without the collector.
_GC_THRESHOLDS = (5_000, 20, 100)


def own_namespace(*, default: str, file: Path = _NAMESPACE_FILE) -> str:
    """The namespace of the pod that this runs in; `default` outside of pods."""
    try:
        return file.read_text("utf-8").strip() or default
    except (OSError, UnicodeDecodeError):
        return default


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end, on uvloop where it is installed and on asyncio's own loop elsewhere.

    What has been imported by then is there to stay, and the garbage collector passes over it: a full pass would take a
    tenth of a second of the event loop's time, and a first list of ten thousand pods brings some.

    The process may have as many open files and connections as the system lets it: the limit that containers begin with,
    often 1,024, is for programs that use `select`. Go programs raise theirs, too.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):  # macOS has a limit that it does not tell
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    gc.freeze()
    with asyncio.Runner(loop_factory=_event_loop) as runner:
        return runner.run(main)


def settle_memory() -> None:
    """Say that what is in memory now is there to stay, as when the first lists have arrived.

    With thousands of objects of a cluster in memory a full pass of the garbage collector stops the event loop for most
    of a second. From here on it passes over what there is now, and looks at everything else less often.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)


@contextmanager
def stopped_by_signals(stop: asyncio.Event) -> Iterator[None]:
    """Let SIGTERM and Ctrl-C set `stop` instead of ending the process."""
    loop = asyncio.get_running_loop()
    for number in _SIGNALS:
        loop.add_signal_handler(number, stop.set)
    try:
        yield
    finally:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)


async def done_before(stop: asyncio.Event, work: Coroutine[Any, Any, None]) -> bool:
    """Wait for `work`, unless `stop` is set before; whether it was done. What it raises is raised."""
    waiting = asyncio.create_task(stop.wait())
    working = asyncio.create_task(work)
    try:
        await asyncio.wait((working, waiting), return_when=asyncio.FIRST_COMPLETED)
    finally:
        working.cancel()
        waiting.cancel()
        await asyncio.wait((working, waiting))
    if not working.cancelled():
        working.result()
    return not stop.is_set()


def _event_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
