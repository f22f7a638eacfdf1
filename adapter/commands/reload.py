"""The rules file, reloaded when it changes.

It is looked at every few seconds, by its content: a mounted ConfigMap changes by swapping a symlink, an editor by
renaming, and both are the same here. SIGHUP has it looked at now. A file that cannot be used changes nothing: the
rules in force stay, which is said once in the log, and in a metric and in readyz?verbose for as long as it lasts.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

from adapter.catalog.rule_telemetry import RuleTelemetry
from adapter.rules import RulesError, RulesFile, load_rules

_log = logging.getLogger(__name__)

_POLL_SECONDS = 5.0


class RulesReloader:
    """Follows a rules file.

    Args:
        path: the file.
        rules: what it said when it was first read.
        apply: puts other rules in force.
        telemetry: is told how it goes.
        poll_seconds: how often the file is looked at.
    """

    def __init__(
        self,
        path: Path,
        rules: RulesFile,
        apply: Callable[[RulesFile], Awaitable[None]],
        *,
        telemetry: RuleTelemetry,
        poll_seconds: float = _POLL_SECONDS,
    ) -> None:
        self._path = path
        self._digest = rules.digest
        self._apply = apply
        self._telemetry = telemetry
        self._poll_seconds = poll_seconds
        self._seen: tuple[int, ...] | None = None
        self._problem: str | None = None
        self._asked = asyncio.Event()

    def remark(self) -> str | None:
        """Why the file that is there is not in force; None when it is."""
        return f"the last good rules stay in force: {self._problem}" if self._problem is not None else None

    async def run(self) -> None:
        """Follow the file, until cancelled."""
        with self._on_hangup():
            while True:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._poll_seconds):
                        await self._asked.wait()
                asked = self._asked.is_set()
                self._asked.clear()
                await self.look(asked=asked)

    async def look(self, *, asked: bool = False) -> None:
        """Look at the file now, whether or not it seems unchanged if that was `asked` for."""
        seen = await asyncio.to_thread(_stamp, self._path)
        if seen == self._seen and not asked:
            return
        try:
            rules = await asyncio.to_thread(load_rules, self._path)
        except RulesError as error:
            self._seen = seen
            self._refuse(str(error))
            return
        except Exception as error:  # noqa: BLE001  (the process outlives a file that finds a bug in what reads it)
            self._seen = seen
            self._refuse(f"{self._path}: it cannot be read: {error!r}", error)
            return
        if rules.digest != self._digest:
            await self._apply(rules)
            self._digest = rules.digest
            _log.info("reloaded the rules file %s: %d rules", self._path, len(rules.all_rules))
        elif self._problem is not None:
            self._telemetry.rules_usable()
            _log.info("the rules file is again what is in force")
        self._seen = seen
        self._problem = None

    def _refuse(self, why: str, bug: Exception | None = None) -> None:
        self._telemetry.rules_refused()
        if why != self._problem:
            self._problem = why
            _log.error("the rules file has changed and cannot be used; the last good rules stay: %s", why, exc_info=bug)

    @contextlib.contextmanager
    def _on_hangup(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGHUP, self._asked.set)
        try:
            yield
        finally:
            loop.remove_signal_handler(signal.SIGHUP)


def _stamp(path: Path) -> tuple[int, ...]:
    """What changes when the file does, symlinks followed; empty when it is not there."""
    try:
        found = path.stat()
    except OSError:
        return ()
    return (found.st_dev, found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size)
