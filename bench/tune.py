"""Measure `tune` on the traces of the tests: `python -m bench.tune`.

Each row is one `python -m autoscaler tune --jobs 1`, from its start to its end, of an HPA with a target of 70 % of the
capacity and the default behavior: time, and pod-hours and overload on the unseen days.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Final

import click
import msgspec

from bench.figures import show, write_lines
from bench.replay import TRACES, execute

_CAPACITY: Final = 100
_HPA: Final = {
    "apiVersion": "autoscaling/v2",
    "kind": "HorizontalPodAutoscaler",
    "metadata": {"name": "web", "namespace": "shop"},
    "spec": {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "minReplicas": 1,
        "maxReplicas": 1000,
        "metrics": [
            {
                "type": "Pods",
                "pods": {
                    "metric": {"name": "requests_per_second"},
                    "target": {"type": "AverageValue", "averageValue": "70"},
                },
            }
        ],
    },
}


class TunedRow(msgspec.Struct, kw_only=True):
    """One command; a row of the table. Shares are of the unseen days."""

    trace: str
    max_overload: str
    seconds: float
    cpu_seconds: float
    verdict: str
    changes: str
    saved_pod_hours: str
    overload: str
    given_overload: str


def _measure(trace: str, max_overload: str) -> TunedRow:
    with tempfile.TemporaryDirectory() as folder:
        hpa = Path(folder) / "hpa.json"
        hpa.write_bytes(msgspec.json.encode(_HPA))
        command = [sys.executable, "-m", "autoscaler", "tune", f"--hpa={hpa}", f"--csv={TRACES / f'{trace}.csv.gz'}"]
        command += [f"--capacity={_CAPACITY}", "--pod-startup=30s", "--jobs=1", "--output=json"]
        command += [f"--max-overload={max_overload}"] if max_overload else []
        output = Path(folder) / "output"
        seconds, usage = execute(command, output)
        document = msgspec.json.decode(output.read_bytes())
    specs = {spec["name"]: spec for spec in document["specs"]}
    given = specs["given"]
    tuned = specs.get("tuned", given)
    return TunedRow(
        trace=trace,
        max_overload=max_overload or "as given",
        seconds=round(seconds, 1),
        cpu_seconds=round(usage.ru_utime + usage.ru_stime, 1),
        verdict=document["verdict"],
        changes=msgspec.json.encode(tuned["changes"]).decode(),
        saved_pod_hours=f"{1 - tuned['unseen']['podHours'] / given['unseen']['podHours']:.1%}",
        overload=f"{tuned['unseen']['overloadRatio']:.4%}",
        given_overload=f"{given['unseen']['overloadRatio']:.4%}",
    )


@click.command()
@click.option("--output", type=click.Path(path_type=Path), default="bench-tune.jsonl", show_default=True)
def main(*, output: Path) -> None:
    """Measure tune on the traces of the tests, a minute each."""
    rows = [_measure(trace, limit) for trace in ("ms_db_node", "ms_db_app") for limit in ("", "0.1%")]
    show("tune", rows)
    write_lines(output, rows)


if __name__ == "__main__":
    main()
