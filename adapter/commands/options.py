"""The values of the flags, checked and typed: one class for each part of the adapter."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from pathlib import Path

from adapter.prometheus import PrometheusOptions
from adapter.prometheus.budget import DEFAULT_BYTES
from adapter.serving.server import ServerLimits
from kube.security.authorization import AuthorizationOptions
from kube.security.tls import CertificateFiles, NamedCertificate
from kube.security.trust import TrustOptions


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
class ServingOptions:
    """The HTTPS server.

    Attributes:
        bind_address: the address to listen on; 0.0.0.0, :: and "" are all addresses of both families.
        port: the port; 0 is any free one.
        cert_dir: directory of the self-signed certificate, if `certificate` is None.
        certificate: the serving certificate.
        named_certificates: certificates for certain server names (SNI).
        minimum_tls: the minimum TLS version.
        ciphers: OpenSSL names of the TLS 1.2 cipher suites; empty for OpenSSL's choice.
        limits: on connections and requests.
        shutdown_delay: seconds that requests are still served after SIGTERM.
    """

    bind_address: str = "0.0.0.0"  # noqa: S104  (an API server is there for the whole cluster)
    port: int = 6443
    cert_dir: Path = Path("apiserver.local.config/certificates")
    certificate: CertificateFiles | None = None
    named_certificates: tuple[NamedCertificate, ...] = ()
    minimum_tls: ssl.TLSVersion = ssl.TLSVersion.TLSv1_2
    ciphers: tuple[str, ...] = ()
    limits: ServerLimits = field(default_factory=ServerLimits)
    shutdown_delay: float = 0.0


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
