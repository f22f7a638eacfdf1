"""What the pages read, at each request, from the controller of this process."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from autoscaler.core.config import Config, Mode
from autoscaler.core.model import HPA, HPAKey
from autoscaler.records.decision_log import DecisionLog
from autoscaler.records.metric_lookup import MetricNames
from autoscaler.records.record import DecisionRecord
from autoscaler.settings import DEFAULTS, WhatIfSettings
from autoscaler.ui.history import PrometheusHistory
from kube.web.explanation import Explanation


class WhatIfError(Exception):
    """The kept decisions cannot be replayed; the message is one sentence that says what to change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIfResult:
    """The kept decisions with the HPA's spec, and with a changed one."""

    figure: dict[str, object]
    """The charts, a figure of plotly.js: {data, layout}."""
    header: Sequence[str]
    """The columns of figures: reality, the present and the changed spec, if it is another one."""
    rows: Sequence[Sequence[str]]
    """(name, figure in each column): pod-hours, overload, and so on."""
    verdict: str
    """The difference, in one sentence."""
    notes: Sequence[str]
    """The assumptions, one sentence each."""
    replicas: Sequence[tuple[int, int]]
    """(time in milliseconds, replicas from then on) of the last column, a point for each change."""
    sentences: Sequence[tuple[int, str]]
    """(time in milliseconds, sentence) of each of its decisions that scales."""


class WhatIf(Protocol):
    """Replays kept decisions; the package `replay` has it, which is above this one."""

    async def __call__(
        self,
        hpa: HPA,
        changed: HPA,
        records: Iterable[DecisionRecord],
        *,
        config: Config,
        pod_startup: float | None,
        capacity: Mapping[int, float],
    ) -> WhatIfResult:
        """Replay the load of `records` with both specs. The event loop is not blocked.

        Args:
            hpa: the HPA as it is.
            changed: the same HPA with another spec, with the same metrics in the same order.
            records: its kept decisions, oldest first. They are read in another thread.
            config: the controller's flags.
            pod_startup: how long a new pod takes to become ready, in seconds; None: as the records show.
            capacity: {index of a metric: what one ready pod can serve, in the metric's unit}; without any, overload is
                unknown.

        Raises:
            WhatIfError: the records are too few, have no load, or do not show the time until pods are ready.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """The controller's state."""

    hpas: Callable[[], Sequence[HPA]]
    """Returns all HPAs of all APIs, those of other shards included."""
    hpa: Callable[[HPAKey], HPA | None]
    """Returns one HPA, or None."""
    mode_of: Callable[[HPA], Mode]
    """The effective mode of an HPA."""
    is_foreign: Callable[[HPAKey], bool]
    """Whether another controller writes the HPA, so that this one does not act on it."""
    owns: Callable[[HPAKey], bool]
    """Whether the HPA belongs to this process's shard."""
    is_leader: Callable[[], bool]
    """Whether this process acts."""
    decisions: DecisionLog
    """The kept decisions; those of a process that is not the leader are old, or none."""
    version: Callable[[], int]
    """Returns another number after each change of an HPA, and after each decision."""
    config: Config
    """The controller's flags."""
    sync_period: float
    """In seconds."""
    what_if: WhatIf
    """Replays kept decisions."""
    explain_metric: Callable[[Mapping[str, str]], Awaitable[Explanation]]
    """Returns what the adapter says about a metric; see `adapter_explanation`."""
    what_if_settings: WhatIfSettings = DEFAULTS.what_if
    """See WhatIfSettings."""
    metric_names: MetricNames | None = None
    """The metrics of the cluster."""
    adapter_ui_url: str | None = None
    """See Options."""
    history: PrometheusHistory | None = None
    """The charts by Prometheus, if its URL is known."""
    problem: Callable[[], str | None] = lambda: None
    """Returns why the HPAs may be out of date, such as "no contact to the API server", or None."""
