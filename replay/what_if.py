"""What-if: the kept decisions of a running autoscaler, replayed with another spec (see autoscaler.ui)."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from autoscaler.core.config import Config
from autoscaler.core.model import HPA, ResourceMetric
from autoscaler.records.record import DecisionRecord
from autoscaler.ui.sources import WhatIfError, WhatIfResult
from replay.load import Load, ReplayError, metric_key, metric_name
from replay.output.comparison import Cell, Comparison, compare, notes, rows, verdicts
from replay.output.documents import Document, OnStep
from replay.output.figure import comparison_figure
from replay.reality import with_startup
from replay.recorded import recorded_load
from replay.simulation import Settings, capacity_of

PRESENT: Final = "present spec"
CHANGED: Final = "changed spec"
_MAX_PODS: Final = 10_000
"""The controller's process has other work for its memory; more pods also delay its event loop."""
_SLEEP_SECONDS: Final = 0.000_05
"""After each record and reconciliation: a thread that computes keeps the GIL from the event loop for up to 5 ms."""


class _StoppedError(Exception):
    """Nobody waits for the replay any more."""


class _Interruptible(Document):
    """Lets others run after each step."""

    def __init__(self, stopped: threading.Event) -> None:
        self._stopped = stopped

    def begin(self, *_: object) -> OnStep:
        """See Document."""
        return lambda _: _let_others_run(self._stopped)


async def what_if(
    hpa: HPA,
    changed: HPA,
    records: Iterable[DecisionRecord],
    *,
    config: Config,
    pod_startup: float | None,
    capacity: Mapping[int, float],
) -> WhatIfResult:
    """Replay kept decisions; see `autoscaler.ui.sources.WhatIf`. The thread ends soon if this is cancelled."""
    stopped = threading.Event()
    hpas = {PRESENT: hpa, CHANGED: changed} if changed.spec != hpa.spec else {PRESENT: hpa}

    def compute() -> WhatIfResult:
        try:
            load = recorded_load(hpa.key, hpa.target, _interruptible(records, stopped), uid=hpa.uid)
            for each in hpas.values():
                _check(each, load)
            given = {metric_key(hpa.spec.metrics[index].source): value for index, value in capacity.items()}
            load = with_startup(load, pod_startup, hpas.values(), has_capacity=bool(given))
            settings = Settings(
                config=config,
                pod_startup_ms=load.startup.milliseconds if load.startup else 0,
                max_pods=_MAX_PODS,
                capacity=capacity_of(list(hpas.values()), given),
            )
            return _result(compare(hpas, load, settings, document=_Interruptible(stopped)))
        except ReplayError as error:
            raise WhatIfError(str(error)) from error

    try:
        return await asyncio.to_thread(compute)
    finally:
        stopped.set()


def _result(comparison: Comparison) -> WhatIfResult:
    last = comparison.replays[-1]
    return WhatIfResult(
        figure=comparison_figure(comparison),
        header=[each.name for each in comparison.columns],
        rows=[[row.label.strip(), *map(_text, row.cells)] for row in rows(comparison)],
        verdict=" ".join(verdicts(comparison)),
        notes=notes(comparison),
        replicas=[(start_ms, replicas) for start_ms, _, replicas in last.replicas],
        sentences=[(scale.time_ms, scale.sentence) for scale in last.scales],
    )


def _check(hpa: HPA, load: Load) -> None:
    """Check that the load has what the HPA's metrics need. Raises ReplayError."""
    for spec in hpa.spec.metrics:
        name = metric_name(spec.source)
        if (
            isinstance(spec.source, ResourceMetric)
            and spec.target.average_utilization is not None
            and name not in load.requests
        ):
            raise ReplayError(
                f"no kept decision has a utilization of {name}, so what a pod requests is not known: replay the HPA "
                f"with `python -m autoscaler replay --server ... --request {name}=...`"
            )
        if metric_key(spec.source) not in load.series:
            raise ReplayError(f"no kept decision has evaluated metric {metric_key(spec.source)}")


def _text(cell: Cell) -> str:
    return f"{cell.text} ({cell.change})" if cell.change else cell.text


def _interruptible(records: Iterable[DecisionRecord], stopped: threading.Event) -> Iterator[DecisionRecord]:
    for record in records:
        _let_others_run(stopped)
        yield record


def _let_others_run(stopped: threading.Event) -> None:
    if stopped.is_set():
        raise _StoppedError
    time.sleep(_SLEEP_SECONDS)
