"""The flags about what is told of decisions: how many are kept, who may read them, and the audit file.

Those of the file have the names that kube-apiserver's have.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from autoscaler.loop.debug import DebugAccess
from autoscaler.loop.options import Journal
from autoscaler.records.audit import AuditSettings

_F = TypeVar("_F", bound=Callable[..., Any])

_DEFAULTS = Journal()
_MEGABYTE = 2**20


def journal_options(function: _F) -> _F:
    """Add the flags; their values are passed on together, as `journal`."""

    @functools.wraps(function)
    def wrapper(
        *,
        kept_decisions: int,
        debug_endpoints: str,
        audit_log: Path | None,
        audit_log_maxsize: int,
        audit_log_maxbackup: int,
        **others: Any,
    ) -> Any:
        audit = None
        if audit_log is not None:
            audit = AuditSettings(path=audit_log, max_bytes=audit_log_maxsize * _MEGABYTE, backups=audit_log_maxbackup)
        journal = Journal(kept=kept_decisions, access=DebugAccess(debug_endpoints), audit=audit)
        return function(journal=journal, **others)

    for option in reversed(_OPTIONS):
        option(wrapper)
    return wrapper  # type: ignore[return-value]  # click looks at the parameters that the options declare, not here


_OPTIONS = (
    click.option(
        "--kept-decisions",
        type=click.IntRange(0, 1000),
        default=_DEFAULTS.kept,
        show_default=True,
        help="How many of the last decisions are kept of each HPA, to be explained; those of all HPAs together take "
        "32 MiB at most.",
    ),
    click.option(
        "--debug-endpoints",
        type=click.Choice([each.value for each in DebugAccess]),
        default=_DEFAULTS.access.value,
        show_default=True,
        help="Who may read /debug/decisions on --metrics-port. local: connections from inside the pod, such as those "
        "of kubectl port-forward; all: whoever reaches the port; off: nobody.",
    ),
    click.option(
        "--audit-log",
        type=click.Path(dir_okay=False, path_type=Path),
        help="File to which every decision is appended, one JSON object a line.  [default: none]",
    ),
    click.option(
        "--audit-log-maxsize",
        type=click.IntRange(min=1),
        default=100,
        show_default=True,
        help="Megabytes at which the audit file is put aside and begun anew.",
    ),
    click.option(
        "--audit-log-maxbackup",
        type=click.IntRange(min=0),
        default=10,
        show_default=True,
        help="How many audit files that were put aside are kept; 0: all.",
    ),
)
