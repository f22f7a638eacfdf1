"""The autoscaler's settings: one frozen object that the command line fills and everything else reads."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from autoscaler.core.config import Config, Mode
from autoscaler.core.model import KUBERNETES, MILLISCALE, HPAApi
from autoscaler.loop.debug import DebugAccess
from autoscaler.loop.saved_history import SavedHistoryLocation
from autoscaler.loop.sharding import Shard
from autoscaler.records.audit import AuditSettings
from kube.client import BOOKMARK_SECONDS
from kube.election import ElectionSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Availability:
    """What several processes share, at the same time or one after the other; by default nothing."""

    election: ElectionSettings | None = None
    """The Lease that decides which of them acts; None: there is only one."""
    saved_history: SavedHistoryLocation | None = None
    """Where the next one finds what this one remembers; None: nowhere."""
    shard: Shard = field(default_factory=Shard)
    """Which part of the HPAs is this one's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionLogOptions:
    """Where records of decisions go."""

    max_per_hpa: int = 20
    """The number of records in memory per HPA."""
    debug_access: DebugAccess = DebugAccess.LOCAL
    """Who may read them."""
    audit: AuditSettings | None = None
    """The file to which each is appended; None: no file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Settings of one autoscaler process; the defaults are kube-controller-manager's."""

    kubeconfig: Path | None = None
    """None: the service account of the pod this runs in."""
    hpa_apis: tuple[HPAApi, ...] = (KUBERNETES,)
    """Whose HPAs are reconciled; every one of these must be served."""
    welcome_hpa_apis: tuple[HPAApi, ...] = (MILLISCALE,)
    """Whose HPAs are reconciled as well, once the cluster serves them."""
    mode: Mode = Mode.ACT
    """What becomes of the decisions; an HPA's annotation can only restrict it."""
    allow_foreign_controller: bool = False
    """Go on acting on HPAs whose status kube-controller-manager writes, too."""
    sync_period: float = 15.0
    """Seconds from the end of an HPA's reconciliation to the start of its next."""
    workers: int | None = None
    """How many HPAs are reconciled at the same time; None: 5, and one more for every 100 HPAs."""
    qps: float = 20.0
    """Requests a second to the API server: for scales, statuses and events together, and for each metrics API."""
    burst: int = 30
    """How many requests may exceed `qps` at once."""
    bookmark_seconds: float = BOOKMARK_SECONDS
    """How often the API server sends a bookmark to a watch."""
    bind_address: str = "0.0.0.0"  # noqa: S104  # probes and Prometheus come from outside the pod
    metrics_port: int = 8080
    availability: Availability = field(default_factory=Availability)
    decision_log: DecisionLogOptions = field(default_factory=DecisionLogOptions)
    config: Config = field(default_factory=Config)
    """What decisions depend on."""
