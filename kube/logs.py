"""Logging as the cluster expects it: one line a record on stderr, more of it with a higher `-v`."""

from __future__ import annotations

import logging
import sys

# klog's levels are numbers without names: up to 3 is operation, from 4 on debugging.
_DEBUG_FROM = 4


class _OneLine(logging.Formatter):
    """A record is one line, whatever a hostile input put into it; only a traceback adds lines."""

    def format(self, record: logging.LogRecord) -> str:
        record.message = record.getMessage().replace("\n", "\\n").replace("\r", "\\r")
        record.asctime = self.formatTime(record, self.datefmt)
        line = self.formatMessage(record)
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def setup_logging(verbosity: int) -> None:
    """Send this process's log to stderr: warnings and news, and from verbosity 4 on what helps to debug."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_OneLine("%(asctime)s.%(msecs)03d %(levelname)-7s %(name)s: %(message)s", "%Y-%m-%dT%H:%M:%S"))
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.DEBUG if verbosity >= _DEBUG_FROM else logging.INFO)
    # Libraries speak of every connection; that helps from the verbosity on where a person would read a trace.
    for library in ("aiohttp", "asyncio", "kubernetes_asyncio", "urllib3", "prometheus_api_client"):
        logging.getLogger(library).setLevel(logging.DEBUG if verbosity >= _DEBUG_FROM * 2 else logging.WARNING)
