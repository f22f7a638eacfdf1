"""Reload the rules file when it changes.

The file is polled (kube.process.files). On SIGHUP it is read at once, and the series of its rules are listed again. A
file that cannot be used changes nothing: the last good rules stay in use, which is logged once, and reported by a
metric and by readyz?verbose until the file is fixed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

from adapter.rules import RulesError, RulesFile, load_rules
from adapter.settings import DEFAULTS
from adapter.telemetry import RuleTelemetry
from kube.process.files import FilesVersion, files_version

_log = logging.getLogger(__name__)


class RulesReloader:
    """Polls a rules file.

    Args:
        path: the file.
        rules: its content as it was loaded at the start.
        apply: activates new rules.
        list_again: begins new lists of the series of the rules in use.
        telemetry: counts reloads.
        poll_seconds: the interval of polls.

    Attributes:
        path: the file.
        problem: why the current file cannot be used; None if it is in use.
    """

    def __init__(
        self,
        path: Path,
        rules: RulesFile,
        apply: Callable[[RulesFile], Awaitable[None]],
        *,
        list_again: Callable[[], None],
        telemetry: RuleTelemetry,
        poll_seconds: float = DEFAULTS.rules.poll_seconds,
    ) -> None:
        self.path = path
        self._digest = rules.digest
        self._files = (path, *rules.other_files)
        self._apply = apply
        self._list_again = list_again
        self._telemetry = telemetry
        self._poll_seconds = poll_seconds
        self._version: FilesVersion | None = None
        self.problem: str | None = None
        self._hangup = asyncio.Event()

    def note(self) -> str | None:
        """Return the problem, and what is in use instead; None if there is no problem."""
        return f"the last good rules stay in use: {self.problem}" if self.problem is not None else None

    async def run(self) -> None:
        """Poll until cancelled."""
        with self._on_hangup():
            while True:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._poll_seconds):
                        await self._hangup.wait()
                forced = self._hangup.is_set()
                self._hangup.clear()
                if forced:
                    self._list_again()
                await self.poll(force=forced)

    async def poll(self, *, force: bool = False) -> None:
        """Reload the file if it has changed, or in any case with `force`."""
        version = await asyncio.to_thread(files_version, *self._files)
        if version == self._version and not force:
            return
        try:
            rules = await asyncio.to_thread(load_rules, self.path)
        except RulesError as error:
            self._version = version
            self._refuse(str(error))
            return
        except Exception as error:  # noqa: BLE001  (a file that triggers a bug in its reader must not end the process)
            self._version = version
            self._refuse(f"{self.path}: it cannot be read: {error!r}", error)
            return
        if rules.digest != self._digest:
            await self._apply(rules)
            self._digest = rules.digest
            _log.info("reloaded the rules file %s: %d rules", self.path, len(rules.all_rules))
        elif self.problem is not None:
            self._telemetry.reload_successful.set(1)
            _log.info("the rules file has again the content that is in use")
        self._version = version
        self._files = (self.path, *rules.other_files)
        self.problem = None

    def _refuse(self, why: str, bug: Exception | None = None) -> None:
        self._telemetry.reload_successful.set(0)
        if why != self.problem:
            self.problem = why
            _log.error(
                "the rules file has changed and cannot be used; the last good rules stay in use: %s", why, exc_info=bug
            )

    @contextlib.contextmanager
    def _on_hangup(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGHUP, self._hangup.set)
        try:
            yield
        finally:
            loop.remove_signal_handler(signal.SIGHUP)
