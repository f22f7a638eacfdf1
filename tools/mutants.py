"""Change one module in many small ways, and see that its own tests notice each: `make mutants MODULE=PATH`.

mutmut changes a copy below `.mutants/`. `tests/mutants/NAME.yaml` names the module's tests, and the changes
that no test notices, each with the reason why that is right. A change is named by its function and its lines, because
mutmut's numbers are others after each edit. Lines that call a logger are not changed.

A change whose tests do not end in time is listed apart, neither noticed nor a survivor: the machine may be busy.

Exit status 0: each survivor has a reason, and at most 5 % survive. 1: otherwise; the diffs are printed.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

ROOT = Path(__file__).resolve().parent.parent
EXPECTED = ROOT / "tests" / "mutants"
MAX_SHARE = 0.05
# Each call of a changed function is three calls deep in mutmut, and trees of queries are read by recursion.
_MUTMUT = "import sys; sys.setrecursionlimit(1_800); from mutmut.__main__ import cli; cli()"
_SURVIVES = ("survived", "no tests")
_CONFIG = """[mutmut]
source_paths={package}
only_mutate={module}
do_not_mutate_patterns=_log[.]
timeout_multiplier=5
timeout_constant=5
pytest_add_cli_args=
    --timeout=0
pytest_add_cli_args_test_selection=
    {tests}
also_copy=
    {others}
"""


class Survivor(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A change that no test notices."""

    change: str
    """The function, and the changed lines of the diff, without indentation."""
    reason: str
    """Why no test has to notice it."""


class Expected(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is known of a module's mutants: its tests, and the survivors."""

    tests: tuple[str, ...]
    survivors: tuple[Survivor, ...] = ()


@dataclass(frozen=True)
class Result:
    """What mutmut found."""

    total: int
    """The number of mutants."""
    survivors: tuple[tuple[str, str], ...]
    """Those that no test noticed: (change, diff); lines that are in a function twice make equal changes."""
    timeouts: tuple[str, ...] = ()
    """The changes whose tests did not end in 25 seconds and five times their usual duration."""


def expected_of(module: str) -> Expected:
    """Read what is known of a module, whose path is relative to the project."""
    name = module.removesuffix(".py").replace("/", ".")
    return msgspec.yaml.decode((EXPECTED / f"{name}.yaml").read_bytes(), type=Expected)


def make_folder(module: str, tests: Sequence[str]) -> Path:
    """Return a new folder with links to the project, in which mutmut makes its copy."""
    folder = ROOT / ".mutants" / module.removesuffix(".py").replace("/", ".")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    names = sorted({line.partition("/")[0] for line in tracked.splitlines()})
    for name in names:
        (folder / name).symlink_to(ROOT / name)
    package = module.partition("/")[0]
    others = [name for name in names if name not in (package, "tests", "pyproject.toml")]
    config = _CONFIG.format(package=package, module=module, tests="\n    ".join(tests), others="\n    ".join(others))
    (folder / "setup.cfg").write_text(config)
    return folder


def run(folder: Path) -> Result:
    """Run mutmut in a folder of `make_folder`."""
    mutmut = [sys.executable, "-c", _MUTMUT]
    subprocess.run([*mutmut, "run"], cwd=folder, check=True)
    subprocess.run([*mutmut, "export-cicd-stats"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    stats = json.loads((folder / "mutants" / "mutmut-cicd-stats.json").read_text())
    results = subprocess.run([*mutmut, "results"], cwd=folder, check=True, capture_output=True, text=True).stdout
    survivors, timeouts = [], []
    for name, status in re.findall(r"^ *(\S+): (.+)$", results, re.MULTILINE):
        shown = subprocess.run([*mutmut, "show", name], cwd=folder, check=True, capture_output=True, text=True)
        change = change_of(name, shown.stdout)
        if status in _SURVIVES:
            survivors.append((change, shown.stdout))
        elif status == "timeout":
            timeouts.append(change)
    return Result(stats["total"], tuple(survivors), tuple(timeouts))


def change_of(name: str, diff: str) -> str:
    """Return a mutant's function and its changed lines, which stay the same when lines around them change."""
    mangled = re.sub(r"__mutmut_\d+$", "", name).rpartition(".")[2]  # x_function or xǁClassǁmethod
    function = re.sub(r"^x[_ǁ]", "", mangled).replace("ǁ", ".")
    lines = [line for line in diff.splitlines() if re.match(r"[-+](?![-+]{2} )", line)]
    return "\n".join([function, *(f"{line[0]} {line[1:].strip()}" for line in lines)])


def report(result: Result, expected: Expected) -> int:
    """Print what has no reason and what has one too many; return the exit status."""
    reasons = {each.change.strip(): each.reason for each in expected.survivors}
    unknown = [diff for change, diff in result.survivors if change not in reasons]
    for diff in unknown:
        print(diff)
    for change in reasons.keys() - dict(result.survivors).keys():
        print(f"a test notices this now, or it is no mutant any more:\n{change}\n")
    for change in result.timeouts:
        print(f"the tests do not end in time:\n{change}\n")
    share = len(result.survivors) / max(result.total, 1)
    print(f"{len(result.survivors)} of {result.total} mutants survive ({share:.1%}), {len(unknown)} without a reason")
    if result.timeouts:
        print(f"the tests of {len(result.timeouts)} more did not end in time")
    return 1 if unknown or share > MAX_SHARE else 0


def main(arguments: Sequence[str]) -> int:
    """Run the mutants of one module, a path relative to the project."""
    if len(arguments) != 1 or not (ROOT / arguments[0]).is_file():
        known = ", ".join(sorted(path.stem for path in EXPECTED.glob("*.yaml")))
        print(f"give a module's path, such as MODULE=kube/controller/flowcontrol.py; there are files for: {known}")
        return 1
    expected = expected_of(arguments[0])
    return report(run(make_folder(arguments[0], expected.tests)), expected)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
