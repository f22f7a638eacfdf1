"""Measure replays of recorded load: `python -m bench.replay`.

Each row is one `python -m autoscaler replay --csv`, from its start to its end: a day, or all days of a trace with five
specs, for about ten and for about 150 pods, with the table, with JSON and as a page. Reported are the seconds on the
clock, the seconds of CPU, and the peak of the resident memory.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import click
import msgspec
import yaml

from bench.figures import show, write_lines

ROOT: Final = Path(__file__).parent.parent
TRACES: Final = ROOT / "tests" / "data" / "traces"
_DAY: Final = ("--from=2018-06-14T00:00:00Z", "--to=2018-06-15T00:00:00Z")
_NODE: Final = "ms_db_node"
_APP: Final = "ms_db_app"
_SLOWLY: Final = {
    "scaleUp": {
        "stabilizationWindowSeconds": 60,
        "policies": [{"type": "Percent", "value": 50, "periodSeconds": 60}],
    },
    "scaleDown": {
        "stabilizationWindowSeconds": 900,
        "policies": [
            {"type": "Percent", "value": 10, "periodSeconds": 60},
            {"type": "Pods", "value": 2, "periodSeconds": 60},
        ],
        "selectPolicy": "Min",
    },
}
_KIB_PER_MIB: Final = 1024


class Replayed(msgspec.Struct, kw_only=True):
    """One command; a row of the table."""

    trace: str
    specs: int
    pods: int
    """Roughly, on average."""
    output: str
    reconciliations: int
    seconds: float
    cpu_seconds: float
    us_per_reconciliation: float
    """CPU, the start of the command included."""
    peak_mib: float


def _specs(count: int, *, target: int) -> Iterator[dict[str, Any]]:
    """Specs with targets around `target`; every second one has windows and policies."""
    for number in range(count):
        quantity = f"{target * 1000 * (10 + number) // 10}m"
        metric = {
            "metric": {"name": "requests_per_second"},
            "target": {"type": "AverageValue", "averageValue": quantity},
        }
        yield {
            "apiVersion": "autoscaling/v2",
            "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": f"web-{number}", "namespace": "shop"},
            "spec": {
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
                "minReplicas": 2,
                "maxReplicas": 1000,
                "metrics": [{"type": "Pods", "pods": metric}],
                **({"behavior": _SLOWLY} if number % 2 else {}),
            },
        }


def execute(command: Sequence[str], output: Path) -> tuple[float, resource.struct_rusage]:
    """Run a command, with its output in a file; return its seconds, and what it used. Raises ClickException."""
    started = time.monotonic()
    with output.open("wb") as written, output.with_suffix(".errors").open("wb") as errors:
        child = subprocess.Popen(command, cwd=ROOT, stdout=written, stderr=errors)
        _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise click.ClickException(output.with_suffix(".errors").read_text())
    return time.monotonic() - started, usage


def _measure(folder: Path, trace: str, *, specs: int, target: int, output: str, days: int) -> Replayed:
    files = folder / "hpas.yaml"
    files.write_text(yaml.safe_dump_all(_specs(specs, target=target)))
    csv = TRACES / f"{trace}.csv.gz"
    command = [
        sys.executable,
        "-m",
        "autoscaler",
        "replay",
        f"--hpa={files}",
        f"--csv={csv}",
        "--pod-startup=30s",
        f"--capacity={target}",
        *(_DAY if days == 1 else ()),
    ]
    command += [f"--html={folder / 'replay.html'}"] if output == "html" else [f"--output={output}"]
    seconds, usage = execute(command, folder / "output")
    reconciliations = round(days * 86_400 / 15) * specs
    cpu_seconds = usage.ru_utime + usage.ru_stime
    return Replayed(
        trace=trace,
        specs=specs,
        pods=round({_NODE: 775, _APP: 4437}[trace] / target),
        output=output,
        reconciliations=reconciliations,
        seconds=round(seconds, 2),
        cpu_seconds=round(cpu_seconds, 2),
        us_per_reconciliation=round(cpu_seconds / reconciliations * 1e6, 1),
        peak_mib=round(usage.ru_maxrss / _KIB_PER_MIB, 1),
    )


@click.command()
@click.option("--quick", is_flag=True, help="Only the rows of a day.")
@click.option("--output", type=click.Path(path_type=Path), default="bench-replay.jsonl", show_default=True)
def main(*, quick: bool, output: Path) -> None:
    """Measure replays of the traces of the tests."""
    cases = [(_NODE, 1, 70, kind, 1) for kind in ("table", "json", "csv", "html")]
    cases.append((_NODE, 1, 5, "table", 1))
    if not quick:
        cases += [(_NODE, 5, 70, "table", 14), (_NODE, 5, 70, "json", 14), (_NODE, 5, 5, "table", 14)]
        cases.append((_APP, 5, 30, "table", 11))
    rows = []
    for trace, specs, target, kind, days in cases:
        with tempfile.TemporaryDirectory() as folder:
            rows.append(_measure(Path(folder), trace, specs=specs, target=target, output=kind, days=days))
    show("replay", rows)
    write_lines(output, rows)


if __name__ == "__main__":
    main()
