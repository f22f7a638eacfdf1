"""Run a command as a container would, as far as this system allows: another user and a read-only file system."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

# The first folder may be written to; the second may not, nor may the root of the file system. `unshare` needs no
# rights: it makes a user namespace, in which this user is root and may mount. Another one inside takes that away again.
_SCRIPT = """
mount --bind "$1" "$1" && mount --bind "$2" "$2" && mount -o remount,bind,ro "$2" && mount -o remount,bind,ro / || exit
user=$3; shift 3
exec unshare --user --map-user="$user" --map-group="$user" -- "$@"
"""


class Isolation(Enum):
    """What separates the command from this user, the best first."""

    NAMESPACES = "another user, read-only file system"
    USER = "another user"
    NONE = "this user"


@dataclass(frozen=True)
class Sandbox:
    """Where commands run."""

    user: int
    """The number of the user that they see."""
    read_only: Path
    """A folder that they cannot write to."""
    writable: Path
    """The only one that they can."""
    isolation: Isolation
    """How; NAMESPACES also makes `/` read-only."""

    def command_line(self, command: list[str]) -> list[str]:
        """Return the command line that runs a command here."""
        user = str(self.user)
        match self.isolation:
            case Isolation.NAMESPACES:
                unshare = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", _SCRIPT, "sh"]
                return [*unshare, str(self.writable), str(self.read_only), user, *command]
            case Isolation.USER:
                return ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "--no-new-privs", *command]
            case Isolation.NONE:
                return command


def best_sandbox(*, user: int, read_only: Path, writable: Path) -> Sandbox:
    """Return the first kind of sandbox in which this Python can write to the writable folder.

    Containers often forbid user namespaces. Only root may change the user, and not every user can read this Python.
    """
    writable.mkdir(mode=0o777, exist_ok=True)
    writable.chmod(0o777)
    probe = [sys.executable, "-c", f"import pathlib; pathlib.Path({str(writable / 'probe')!r}).write_text('')"]
    for isolation in Isolation:
        sandbox = Sandbox(user=user, read_only=read_only, writable=writable, isolation=isolation)
        try:
            works = subprocess.run(sandbox.command_line(probe), capture_output=True, check=False).returncode == 0
        except FileNotFoundError:
            works = False
        (writable / "probe").unlink(missing_ok=True)
        if works:
            break
    return sandbox
