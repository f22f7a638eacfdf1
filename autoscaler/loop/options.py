"""The autoscaler's options, as the flags give them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from autoscaler.core.config import Config, Mode
from autoscaler.core.model import HPA, KUBERNETES, MILLISCALE, HPAApi
from autoscaler.loop.endpoint import DebugAccess
from autoscaler.loop.saved_history import SavedHistoryLocation
from autoscaler.loop.sharding import Shard
from autoscaler.records.audit import AuditSettings
from autoscaler.settings import DEFAULTS, Settings
from kube.api.client import BOOKMARK_SECONDS
from kube.controller.election import ElectionSettings
from kube.process.config_page import Flags
from kube.serving.options import AuthOptions
from kube.web.options import UIAddress

_WORKERS, _HPAS_PER_WORKER = 5, 100
# kube-controller-manager's defaults are 20 and 30.
_QPS, _BURST_FACTOR = 20.0, 1.5
# Reading a scale, writing it, and writing a status; or several metrics of one API.
_REQUESTS_PER_SYNC = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Availability:
    """How several processes cooperate; by default there is one."""

    election: ElectionSettings | None = None
    """The Lease of the leader; None: no leader election."""
    saved_history: SavedHistoryLocation | None = None
    """The ConfigMaps of the saved history; None: histories are not saved."""
    shard: Shard = field(default_factory=Shard)
    """The HPAs of this process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionLogOptions:
    """The destinations of decision records."""

    max_per_hpa: int = 20
    """The number of records in memory per HPA."""
    debug_access: DebugAccess = DebugAccess.LOCAL
    """The clients that may read the records."""
    audit: AuditSettings | None = None
    """The file to which each record is appended; None: no file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of one autoscaler process; the defaults are kube-controller-manager's."""

    kubeconfig: Path | None = None
    """None: the service account of the pod."""
    hpa_apis: tuple[HPAApi, ...] = (KUBERNETES,)
    """The APIs whose HPAs are reconciled; all of them must be served."""
    optional_hpa_apis: tuple[HPAApi, ...] = (MILLISCALE,)
    """The APIs whose HPAs are reconciled as soon as the cluster serves them."""
    mode: Mode = Mode.ACT
    """An HPA's annotation can only restrict it."""
    allow_foreign_controller: bool = False
    """Act on HPAs whose status kube-controller-manager writes, too."""
    sync_period: float = 15.0
    """Seconds from the end of an HPA's reconciliation to the start of its next one."""
    eager: bool = False
    """Scale up between syncs, too; an HPA's annotation overrides it."""
    workers: int | None = None
    """Number of concurrent reconciliations; None: 5, and one more per 100 HPAs."""
    qps: float | None = None
    """Requests a second to the API server: for scales, statuses and events together, and for each metrics API. Zero or
    less: no limit. None: 20, three per HPA and sync period, and one per eager HPA."""
    burst: int | None = None
    """Number of requests that may be sent at once; None: half as many again as `qps`."""
    bookmark_seconds: float = BOOKMARK_SECONDS
    """The interval in which the API server sends bookmarks to a watch."""
    bind_address: str = "0.0.0.0"  # noqa: S104  # probes and Prometheus come from outside the pod
    metrics_port: int = 8080
    ui_address: UIAddress | None = None
    """The address of the web pages; None: there are none."""
    adapter_ui_url: str | None = None
    """Of the adapter's pages, without a slash at its end; None: there are no links to them."""
    prometheus_url: str | None = None
    """Of a Prometheus with kube-state-metrics, without a slash at its end; None: pages have no history."""
    ui_auth: AuthOptions = field(default_factory=AuthOptions)
    """TLS, authentication and authorization of web pages on an address that is not a loopback one."""
    availability: Availability = field(default_factory=Availability)
    decision_log: DecisionLogOptions = field(default_factory=DecisionLogOptions)
    config: Config = field(default_factory=Config)
    """The settings of decisions."""
    settings: Settings = DEFAULTS
    """Limits, timeouts and periods."""
    flags: Flags = field(default_factory=dict)
    """The flags that are given, for /debug/config."""

    def workers_for(self, hpas: int) -> int:
        """The number of concurrent reconciliations for a number of HPAs."""
        return self.workers or _WORKERS + hpas // _HPAS_PER_WORKER

    def is_eager(self, hpa: HPA) -> bool:
        """True if an HPA is evaluated between its syncs, too."""
        return self.eager if hpa.overrides.eager is None else hpa.overrides.eager

    def rate_limit_for(self, hpas: int, eager: int = 0) -> tuple[float, int]:
        """Requests a second and burst for a number of HPAs, some of which are eager."""
        evaluations = min(eager, self.settings.eager.evaluations_per_second)
        qps = _QPS + _REQUESTS_PER_SYNC * hpas / self.sync_period + evaluations if self.qps is None else self.qps
        return qps, self.burst or max(1, round(_BURST_FACTOR * qps))

    def metrics_in_flight_for(self, hpas: int) -> int:
        """Requests in flight to each metrics API for a number of HPAs."""
        return self.settings.reconciliation.metrics_in_flight * self.workers_for(hpas)
