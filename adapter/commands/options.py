"""What `serve` was told: the values of its flags, checked and typed, one group for each part that they concern."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from pathlib import Path

from adapter.prometheus import PrometheusOptions
from adapter.prometheus.budget import DEFAULT_BYTES
from adapter.security.authorization import AuthorizationOptions
from adapter.security.tls import CertificateFiles, NamedCertificate
from adapter.security.trust import TrustOptions
from adapter.serving.server import ServerLimits


@dataclass(frozen=True, slots=True, kw_only=True)
class PrometheusAccess:
    """Prometheus, and from where credentials for it are taken beside its own options.

    Attributes:
        options: where it is and how it is asked.
        in_cluster: use the pod's service account.
        kubeconfig: use what this kubeconfig says of its current context.
        response_memory: how many bytes long responses may take together while they are read.
    """

    options: PrometheusOptions
    in_cluster: bool = False
    kubeconfig: Path | None = None
    response_memory: int = DEFAULT_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogOptions:
    """Which metrics there are, and how often Prometheus is asked for them, in seconds.

    Attributes:
        relist_interval: between two lists of the series.
        max_age: how far back series count.
        freshness: for how long an answer of Prometheus is given again; 0 for never.
    """

    relist_interval: float
    max_age: float
    freshness: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesOptions:
    """The kubeconfigs of the API server for each purpose; None is the pod's service account."""

    lister: Path | None = None
    authentication: Path | None = None
    authorization: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingOptions:
    """The listener.

    Attributes:
        bind_address: the address; 0.0.0.0, :: and nothing mean all addresses of both families.
        port: the port; 0 is any that is free.
        cert_dir: where a self-signed certificate is kept if `certificate` is None.
        certificate: the serving certificate.
        named_certificates: others for clients that ask for certain names.
        minimum_tls: the oldest TLS version that is spoken.
        ciphers: OpenSSL names of the TLS 1.2 cipher suites; empty for its own choice.
        limits: what one client may cost the others.
        shutdown_delay: for how many seconds requests are still answered once the process is told to end.
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
    """Everything. `token_ttl` is in seconds."""

    config: Path
    prometheus: PrometheusAccess
    catalog: CatalogOptions
    kubernetes: KubernetesOptions
    serving: ServingOptions
    trust: TrustOptions
    token_ttl: float
    authorization: AuthorizationOptions
