"""prometheus-adapter's flags that are accepted without effect: each is logged at the start, with the reason."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar

import click
from click.core import ParameterSource

from kube.process.flags import GoCommand

F = TypeVar("F", bound=Callable[..., Any])

_LOG: Final = "the log always goes to standard error, one line per record"
_HTTP1: Final = "HTTP/2 is not supported"
_PROFILE: Final = "there is no profiling endpoint"
_AUDIT: Final = "no audit log of requests is written"
_ALONE: Final = "no other process can listen on the same address"

# For --audit-log-... and --audit-webhook-...
_AUDIT_FLAGS: Final = (
    "batch-buffer-size",
    "batch-max-size",
    "batch-max-wait",
    "batch-throttle-burst",
    "batch-throttle-enable",
    "batch-throttle-qps",
    "mode",
    "truncate-enabled",
    "truncate-max-batch-size",
    "truncate-max-event-size",
    "version",
)


def _audit_flags() -> Iterator[str]:
    yield "--audit-policy-file"
    yield from (f"--audit-log-{name}" for name in ("compress", "format", "maxage", "maxbackup", "maxsize", "path"))
    yield from (f"--audit-webhook-{name}" for name in ("config-file", "initial-backoff"))
    yield from (f"--audit-{kind}-{name}" for kind in ("log", "webhook") for name in _AUDIT_FLAGS)


IGNORED: Final = {
    "--add-dir-header": _LOG,
    "--alsologtostderr": _LOG,
    "--log-backtrace-at": _LOG,
    "--log-dir": _LOG,
    "--log-file": _LOG,
    "--log-file-max-size": _LOG,
    "--log-flush-frequency": _LOG,
    "--logtostderr": _LOG,
    "--one-output": _LOG,
    "--skip-headers": _LOG,
    "--skip-log-headers": _LOG,
    "--stderrthreshold": _LOG,
    "--vmodule": "verbosity is the same for all modules",
    "--disable-http2": _HTTP1,
    "--disable-http2-serving": _HTTP1,
    "--http2-max-streams-per-connection": _HTTP1,
    "--profiling": _PROFILE,
    "--contention-profiling": _PROFILE,
    "--debug-socket-path": _PROFILE,
    "--client-qps": "requests to the API server are not limited",
    "--client-burst": "requests to the API server are not limited",
    "--discovery-interval": "the API server's resources are discovered again when a request names an unknown one",
    "--authentication-tolerate-lookup-failure": "a failing lookup is always tolerated and retried",
    "--enable-priority-and-fairness": "requests in flight are limited by --max-requests-inflight",
    "--permit-address-sharing": _ALONE,
    "--permit-port-sharing": _ALONE,
    "--tls-curve-preferences": "OpenSSL chooses the key exchanges",
    **dict.fromkeys(_audit_flags(), _AUDIT),
}
"""The flags, and the reason why each has no effect."""


class ServeCommand(GoCommand):
    """A command with `ignored_options`, which take any value.

    click would read a value that begins with a dash, as in `--client-qps=-1`, as another option.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments; see click."""
        pairs = [argument.partition("=") for argument in args]
        return super().parse_args(
            ctx, [f"{name}=..." if equals and name in IGNORED else name + equals + text for name, equals, text in pairs]
        )


def ignored_options(function: F) -> F:
    """Add the flags, which --help does not show."""
    for flag in IGNORED:
        click.option(flag, is_flag=False, flag_value="", expose_value=False, hidden=True)(function)
    return function


def given_ignored_flags(context: click.Context) -> Iterator[str]:
    """Yield those on the command line."""
    for flag in IGNORED:
        if context.get_parameter_source(flag.strip("-").replace("-", "_")) is ParameterSource.COMMANDLINE:
            yield flag
