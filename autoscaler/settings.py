"""The autoscaler's settings: limits, timeouts and periods without a flag of their own, see kube.process.settings."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from kube.api.client import ClientSettings
from kube.controller.events import EventSettings
from kube.security.authentication import ReviewSettings
from kube.web.options import PageSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconciliationSettings:
    """When HPAs are reconciled, and what they may request."""

    start_interval_seconds: float = 0.01
    """Time between the first reconciliations of a new leader, so that they do not all hit the metrics APIs at once;
    shorter if it would exceed a sync period in total."""
    other_shards_periods: int = 10
    """Sync periods between two reads of an HPA of another shard. It is read only for its selector, which rarely
    changes."""
    metrics_in_flight: int = 20
    """Requests in flight to each metrics API, for each worker. kube-controller-manager has one, but an HPA's metrics
    are read side by side here."""
    metrics_seconds: float = 22.0
    """Limit of a request for metrics with all its retries. A hanging one delays its HPA by that and a sync period; the
    adapter has at most 20 s for a query, and its error must arrive."""
    version_lookup_seconds: float = 2.0
    """How long a reconciliation waits until the version of the custom metrics API is looked up again, which it is every
    sync period and while its server is away. Then the last version is used."""
    watched_from: int = 50
    """Deployments, or StatefulSets, that HPAs scale are watched from this number on. For few, requests cost less than a
    watch on all of the cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EagerSettings:
    """Evaluations of eager HPAs (--eager), between their syncs."""

    interval_seconds: float = 1.0
    """From one evaluation of an HPA to the next."""
    timeout_seconds: float = 5.0
    """Limit of an evaluation. One that fails or takes longer is repeated after a second, then two, up to a sync
    period."""
    evaluations_per_second: int = 1000
    """Of all HPAs together, for their CPU; with more HPAs, those in namespaces with many have longer intervals. An HPA
    counts once more for each 50 pods."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CoalescingSettings:
    """Queries of metrics that differ only in their pod selectors, in one request."""

    min_selectors: int = 4
    """Fewer selectors are not coalesced, since separate requests cost less than splitting a response."""
    max_selectors: int = 50
    """Selectors in one request, whose URL has all of them."""
    max_pods: int = 500
    """Pods in one response. Servers put the pods' names into a query to Prometheus, and many proxies limit that to 8
    KiB."""
    backoff_seconds: float = 60.0
    """Time after a failed attempt in which queries are not coalesced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HistorySettings:
    """The saved history (--state-configmap)."""

    save_seconds: float = 15.0
    """Time between saves: the default sync period, in which each HPA gets one recommendation. A process that is killed
    loses what came after the last save."""
    load_seconds: float = 30.0
    """How long a new leader tries to load it. It does not scale before; without the history, it would scale down too
    early."""
    retry_seconds: float = 5.0
    """The longest time between two tries to load it; the first is a tenth of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionSettings:
    """The decisions in memory."""

    kept_bytes: int = 32 * 2**20
    """Memory for those of all HPAs together, some 50,000 of 650 bytes. The oldest are dropped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditLimits:
    """The file of --audit-log. Its disk may be slow, or hang."""

    queue_bytes: int = 32 * 2**20
    """Memory for records that wait for the disk; further ones are dropped."""
    open_seconds: float = 2.0
    """How long the start waits for the file to be opened; then it is opened in the background."""
    close_seconds: float = 0.5
    """How long the end waits for the rest of the records: part of the 5 s after SIGTERM."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShutdownSettings:
    """The end after SIGTERM.

    With the release of the Lease, less than 5 s: some tools kill the process then.
    """

    reconcile_seconds: float = 2.5
    """Time for reconciliations in flight; then they are cancelled."""
    flush_seconds: float = 1.0
    """Time for sending the last events and saving the history."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIfSettings:
    """What-ifs on the pages, of which one runs at a time."""

    replay_seconds: float = 10.0
    """Limit of one replay, which takes CPU from decisions. A thousand decisions take about a second."""
    waiting_per_user: int = 3
    """Replays of one user that may wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of `run`."""

    api_server: ClientSettings = field(default_factory=ClientSettings)
    reconciliation: ReconciliationSettings = field(default_factory=ReconciliationSettings)
    eager: EagerSettings = field(default_factory=EagerSettings)
    coalescing: CoalescingSettings = field(default_factory=CoalescingSettings)
    events: EventSettings = field(default_factory=EventSettings)
    history: HistorySettings = field(default_factory=HistorySettings)
    decisions: DecisionSettings = field(default_factory=DecisionSettings)
    audit: AuditLimits = field(default_factory=AuditLimits)
    shutdown: ShutdownSettings = field(default_factory=ShutdownSettings)
    pages: PageSettings = field(default_factory=PageSettings)
    reviews: ReviewSettings = field(default_factory=ReviewSettings)
    what_if: WhatIfSettings = field(default_factory=WhatIfSettings)


DEFAULTS: Final = Settings()
