"""The values of the flags, checked and typed: one class for each part of the adapter."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from adapter.prometheus import PrometheusOptions
from adapter.prometheus.budget import DEFAULT_BYTES
from kube.security.authorization import AuthorizationOptions
from kube.security.trust import TrustOptions
from kube.serving.options import ServingOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class PrometheusAccess:
    """Prometheus, and the source of credentials for it.

    Attributes:
        options: the server, and how queries are sent to it.
        in_cluster: authenticate with the pod's service account.
        kubeconfig: authenticate with the current context of this kubeconfig.
        response_memory: bytes for long responses while they are read, all together.
    """

    options: PrometheusOptions
    in_cluster: bool = False
    kubeconfig: Path | None = None
    response_memory: int = DEFAULT_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogOptions:
    """Which metrics are available. All in seconds.

    Attributes:
        relist_interval: between two lists of the series.
        max_age: a series is available if it has a sample within this period.
        freshness: how long results of queries are cached; 0 disables the cache.
    """

    relist_interval: float
    max_age: float
    freshness: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesOptions:
    """The kubeconfig for each purpose; None is the pod's service account."""

    lister_kubeconfig: Path | None = None
    authentication_kubeconfig: Path | None = None
    authorization_kubeconfig: Path | None = None

    @property
    def purposes(self) -> tuple[Path | None, ...]:
        """The three kubeconfigs, in the order of the fields; several may be the same one."""
        return self.lister_kubeconfig, self.authentication_kubeconfig, self.authorization_kubeconfig


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """The options of `serve`. `token_ttl` is how many seconds the results of TokenReviews are cached."""

    config: Path
    prometheus: PrometheusAccess
    catalog: CatalogOptions
    kubernetes: KubernetesOptions
    serving: ServingOptions
    trust: TrustOptions
    token_ttl: float
    authorization: AuthorizationOptions
