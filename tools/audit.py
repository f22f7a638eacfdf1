"""Look up known vulnerabilities of the packages in lock files, with pip-audit: `make audit`.

Exit status 0: none is known. 1: there are some, and they are listed. 2: not all packages could be looked up, such as
without a network, so nothing is known. pip-audit itself exits with 0 for packages that it could not look up.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence

_KNOWN, _UNKNOWN = 1, 2


def main(locks: Sequence[str]) -> int:
    """Audit lock files, and print what is known."""
    files = [option for lock in locks for option in ("--requirement", lock)]
    options = ("--require-hashes", "--disable-pip", "--format=json", "--progress-spinner=off")
    run = subprocess.run(
        [sys.executable, "-m", "pip_audit", *options, *files], capture_output=True, text=True, check=False
    )
    return report(run.stdout, run.stderr)


def report(found: str, errors: str) -> int:
    """Print pip-audit's JSON; return the exit status."""
    try:
        packages = json.loads(found)["dependencies"]
    except (ValueError, KeyError):
        print(errors.strip() or "pip-audit printed nothing", file=sys.stderr)
        print("audit: pip-audit failed, so nothing is known", file=sys.stderr)
        return _UNKNOWN
    vulnerable = [package for package in packages if package.get("vulns")]
    for package in vulnerable:
        for one in package["vulns"]:
            fixed = ", ".join(one.get("fix_versions") or ()) or "no version"
            print(f"{package['name']} {package['version']}: {one['id']}, fixed in {fixed}")
    skipped = [package for package in packages if package.get("skip_reason")]
    if skipped:
        print(
            f"audit: {len(skipped)} of {len(packages)} packages could not be looked up, the first because:",
            file=sys.stderr,
        )
        print(f"  {skipped[0]['skip_reason']}", file=sys.stderr)
    if vulnerable:
        return _KNOWN
    if skipped or not packages:
        return _UNKNOWN
    print(f"no vulnerability of the {len(packages)} packages is known")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
