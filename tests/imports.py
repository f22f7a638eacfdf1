"""What a program imports."""

import subprocess
import sys


def imported(program: str, *modules: str) -> set[str]:
    """Return which of these modules and packages a program imports, in a process of its own."""
    found = f"\nimport sys\nprint(*{set(modules)!r} & set(sys.modules), sep='\\n')"
    command = [sys.executable, "-c", f"{program}\nprint('imported:', end='')\n{found}"]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    return set(ended.stdout.rpartition("imported:")[2].split())
