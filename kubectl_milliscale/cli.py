"""The command line of `kubectl milliscale`."""

from __future__ import annotations

import importlib
import shutil
import signal
import sys
from types import FrameType
from typing import Final

import click

from kube.flags import CONTEXT_SETTINGS
from kube.process import installed_version

_COMMANDS: Final = {
    "status": "status",
    "explain": "explain",
    "replay": "replay",
    "tune": "replay",
    "check": "check",
}
"""{command: its module}; a module is imported, with its libraries, when its command is used."""


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands."""
        del ctx
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command of this name, or None."""
        del ctx
        if cmd_name not in _COMMANDS:
            return None
        module = importlib.import_module(f"kubectl_milliscale.{_COMMANDS[cmd_name]}")
        command: click.Command = getattr(module, cmd_name)
        return command


@click.group(cls=_Commands, context_settings={**CONTEXT_SETTINGS, "show_default": True})
@click.version_option(installed_version() or "unknown")
def main() -> None:
    """Look at the autoscaler's HPAs and decisions, and at the adapter's rules.

    Reads the cluster with kubectl, so it needs no other rights than the user has: to read HPAs, and pods and Leases in
    the autoscaler's namespace, and to create pods/portforward there.
    """
    if shutil.which("kubectl") is None:
        raise click.ClickException("kubectl is not on PATH")
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _exit)


def _exit(number: int, _: FrameType | None) -> None:
    """End the process; contexts end the child processes."""
    sys.exit(128 + number)
