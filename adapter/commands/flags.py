"""Flags about Prometheus, the available metrics and the API server, and their values.

Flags come in groups: each is a decorator that passes its flags on as one typed argument. Those of the HTTPS server are
in adapter.commands.serving_flags and kube.serving.flags.

Names and defaults are those of prometheus-adapter and of Kubernetes' library for API servers, so that the arguments of
an existing Deployment work unchanged. Invalid values are refused here, before anything starts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from adapter.commands.rule_object_flags import RuleObjectOptions
from adapter.commands.serving_flags import ServingOptions
from adapter.prometheus import PrometheusConfigError, PrometheusOptions
from adapter.prometheus.long_responses import DEFAULT_BYTES
from adapter.prometheus.options import DEFAULT_CONNECTIONS
from adapter.rules.reading import parse_auth
from adapter.settings import DEFAULTS, Settings
from adapter.upstream import Auth, header
from kube.api.config import RestConfigError, load_config
from kube.process.config_page import Flags
from kube.process.flags import DURATION, FILE, POSITIVE_DURATION, Parsed, bool_option, option_group
from kube.serving.options import AuthOptions, ServerLimits
from kube.web.options import UIAddress, external_url

Command = Callable[..., None]
"""A function that click's decorators take and return."""

_MIB = 1024 * 1024
_SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(frozen=True, slots=True, kw_only=True)
class PrometheusAccess:
    """Prometheus, and the source of credentials for it."""

    options: PrometheusOptions
    """The server, and how queries are sent to it."""
    in_cluster: bool = False
    """Authenticate with the pod's service account."""
    kubeconfig: Path | None = None
    """Authenticate with the current context of this kubeconfig."""
    response_memory: int = DEFAULT_BYTES
    """Bytes that all long responses together may take while they are read."""

    async def authorized(self, *, service_account: Path = _SERVICE_ACCOUNT) -> PrometheusOptions:
        """Return the options with the cluster's credentials, for a Prometheus behind a proxy that accepts them.

        As in prometheus-adapter, the credentials are not sent if --prometheus-ca-file is given.

        Raises:
            PrometheusConfigError: there is no service account, or the kubeconfig cannot be used.
        """
        options = self.options
        if options.ca_file is not None or (not self.in_cluster and self.kubeconfig is None):
            return options
        if self.kubeconfig is None:
            token = service_account / "token"
            if not token.is_file():
                raise PrometheusConfigError(
                    "--prometheus-auth-incluster: not running in a pod with a service account "
                    f"(there is no {token}); give --prometheus-auth-config or --prometheus-token-file"
                )
            ca_file = None if options.insecure_skip_tls_verify else service_account / "ca.crt"
            return replace(options, token_file=options.token_file or token, ca_file=ca_file)
        try:
            cluster = await load_config(self.kubeconfig)
        except RestConfigError as error:
            raise PrometheusConfigError(f"--prometheus-auth-config: {error}") from error
        is_insecure = options.insecure_skip_tls_verify or not cluster.verifies
        return replace(options, cluster=cluster, insecure_skip_tls_verify=is_insecure)


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogOptions:
    """Which metrics are available. All in seconds."""

    relist_interval: float
    """Between two lists of the series."""
    max_age: float
    """A series is available if it has a sample within this period."""
    freshness: float = 0.0
    """How long results of queries are cached; 0 disables the cache."""
    slow_query_seconds: float = 1.0
    """How long the requests of a namespace may wait for slow queries, per second; 0: no limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesOptions:
    """The kubeconfig for each purpose, or else the one for all; None is the pod's service account."""

    kubeconfig: Path | None = None
    lister_kubeconfig: Path | None = None
    authentication_kubeconfig: Path | None = None
    authorization_kubeconfig: Path | None = None

    @property
    def purposes(self) -> tuple[Path | None, ...]:
        """The kubeconfigs for lists, for TokenReviews and for SubjectAccessReviews; several may be the same one."""
        own = self.lister_kubeconfig, self.authentication_kubeconfig, self.authorization_kubeconfig
        return tuple(each or self.kubeconfig for each in own)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """The options of `serve`."""

    config: Path
    prometheus: PrometheusAccess
    catalog: CatalogOptions
    kubernetes: KubernetesOptions
    serving: ServingOptions
    auth: AuthOptions
    limits: ServerLimits = field(default_factory=ServerLimits)
    rule_objects: RuleObjectOptions = field(default_factory=RuleObjectOptions)
    debug_endpoints: str = "local"
    """Either "local" or "off", see `debug_flag`."""
    ui_address: UIAddress | None = None
    """None for no pages."""
    prometheus_external_url: str | None = None
    """The URL to which the pages link queries; None for no links."""
    settings: Settings = DEFAULTS
    flags: Flags = field(default_factory=dict)
    """Those that are given."""


def _header(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise ValueError(f"{text!r} is not a header; write NAME=VALUE")
    return header(name, value)


def _query_parameter(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise ValueError(f"{text!r} is not a parameter; write NAME=VALUE")
    return name, value


def _auth(text: str) -> Auth:
    return parse_auth(text, source="YAML or JSON")


def _prometheus_access(
    *,
    prometheus_auth_incluster: bool,
    prometheus_auth_config: Path | None,
    prometheus_response_memory_mb: int,
    **options: Any,
) -> PrometheusAccess:
    """Return the values of the flags; the other ones are called as the fields of PrometheusOptions."""
    if prometheus_auth_incluster and prometheus_auth_config:
        raise click.UsageError("may not use both in-cluster auth and an explicit kubeconfig at the same time")
    return PrometheusAccess(
        options=PrometheusOptions(**{name.removeprefix("prometheus_"): value for name, value in options.items()}),
        in_cluster=prometheus_auth_incluster,
        kubeconfig=prometheus_auth_config,
        response_memory=prometheus_response_memory_mb * _MIB,
    )


prometheus_flags = option_group(
    "prometheus",
    _prometheus_access,
    click.option("--prometheus-url", default="https://localhost", help="URL for connecting to Prometheus."),
    bool_option(
        "--prometheus-auth-incluster",
        help="Authenticate to Prometheus with the pod's service account. Ignored with --prometheus-ca-file.",
    ),
    click.option(
        "--prometheus-auth-config",
        type=FILE,
        help="Kubeconfig with the credentials for Prometheus. Ignored with --prometheus-ca-file.",
    ),
    click.option("--prometheus-ca-file", type=FILE, help="CA bundle that verifies the certificate of Prometheus."),
    click.option(
        "--prometheus-client-tls-cert-file",
        "prometheus_cert_file",
        type=FILE,
        help="Client certificate for Prometheus.",
    ),
    click.option(
        "--prometheus-client-tls-key-file",
        "prometheus_key_file",
        type=FILE,
        help="Private key of the client certificate.",
    ),
    bool_option(
        "--prometheus-insecure-skip-tls-verify",
        help="Do not verify the certificate of Prometheus. Prefer --prometheus-ca-file.",
    ),
    click.option(
        "--prometheus-token-file", type=FILE, help="File with a bearer token for Prometheus; reloaded when it changes."
    ),
    click.option(
        "--prometheus-header",
        "prometheus_headers",
        type=Parsed("name=value", _header),
        multiple=True,
        help="Header to set on requests to Prometheus, such as X-Scope-OrgID=team. Can be repeated.",
    ),
    click.option(
        "--prometheus-auth",
        type=Parsed("auth", _auth),
        help="Authenticate at Prometheus with sigv4, google, azure or oauth2, as `auth` of a server in the rules file: "
        "'{sigv4: {region: eu-west-1}}'.",
    ),
    click.option(
        "--prometheus-query-parameter",
        "prometheus_query_parameters",
        type=Parsed("name=value", _query_parameter),
        multiple=True,
        help="Parameter to add to the URL of requests to Prometheus, such as dedup=true. Can be repeated.",
    ),
    click.option(
        "--prometheus-partial-responses",
        type=click.Choice(["fail", "allow"]),
        default="fail",
        help="Whether a response is an error if Prometheus says that it lacks samples, such as those of a Thanos store "
        "that is down. If it is allowed, it looks like less load.",
    ),
    click.option(
        "--prometheus-proxy-url",
        default="",
        show_default="no proxy",
        help="URL of a proxy for requests to Prometheus. The environment's HTTPS_PROXY is not used.",
    ),
    click.option(
        "--prometheus-verb",
        default="GET",
        help="HTTP verb of requests to Prometheus, GET or POST. Long queries are always sent with POST.",
    ),
    click.option(
        "--prometheus-max-queries",
        "prometheus_connections",
        type=click.IntRange(min=1),
        default=DEFAULT_CONNECTIONS,
        help="Maximum number of concurrent queries, half of which one namespace may have. Further ones wait; a free "
        "slot goes to the namespace with the fewest queries under way. All replicas together should have fewer than "
        "Prometheus executes (20, unless it has another query.max-concurrency).",
    ),
    click.option(
        "--prometheus-response-memory-mb",
        type=click.IntRange(min=1),
        default=DEFAULT_BYTES // _MIB,
        help="Memory in MiB for long responses of Prometheus while they are read and decoded, all together. A response "
        "that needs more is an error.",
    ),
)


def catalog_flags(*, lists_once: bool = False) -> Callable[[Command], Command]:
    """Flags about the available metrics. A command that lists series once has only --metrics-max-age."""

    def build(
        *,
        metrics_relist_interval: float,
        metrics_max_age: float,
        metrics_freshness: float,
        namespace_slow_query_seconds: float,
    ) -> CatalogOptions:
        source = click.get_current_context().get_parameter_source("metrics_relist_interval")
        if lists_once and metrics_max_age and source is ParameterSource.DEFAULT:
            metrics_relist_interval = metrics_max_age
        max_age = metrics_max_age or metrics_relist_interval
        if max_age < metrics_relist_interval:
            raise click.UsageError("max age must not be less than relist interval")
        return CatalogOptions(
            relist_interval=metrics_relist_interval,
            max_age=max_age,
            freshness=metrics_freshness,
            slow_query_seconds=namespace_slow_query_seconds,
        )

    return option_group(
        "catalog",
        build,
        click.option(
            "--metrics-relist-interval",
            type=POSITIVE_DURATION,
            default="10m",
            help="Only the default of --metrics-max-age; series are listed once."
            if lists_once
            else "Interval at which the available series are listed again.",
        ),
        click.option(
            "--metrics-max-age",
            type=DURATION,
            default="0s",
            show_default="the relist interval",
            help="A series is available if it has a sample within this period.",
        ),
        click.option(
            "--metrics-freshness",
            type=DURATION,
            default="5s",
            hidden=lists_once,
            help="How long a sample may be in Prometheus and not in a response. Results of queries are cached for as "
            "long, or until there can be new samples, if that is longer. 0s disables the cache, and the coalescing of "
            "queries for different objects.",
        ),
        click.option(
            "--namespace-slow-query-seconds",
            type=click.FloatRange(min=0),
            default=1.0,
            hidden=lists_once,
            help="Seconds per second that the requests of one namespace, together, may wait for queries that take "
            "longer than a second; further ones fail at once, so that they do not delay the HPAs of other namespaces. "
            "All namespaces together: eight times that. 0: no limit.",
        ),
    )


kubernetes_flags = option_group(
    "kubernetes",
    KubernetesOptions,
    click.option(
        "--kubeconfig",
        type=FILE,
        help="Kubeconfig for each of the three purposes that have none of their own.  [default: the pod's service "
        "account]",
    ),
    click.option(
        "--lister-kubeconfig",
        type=FILE,
        help="Kubeconfig for listing objects and API resources.  [default: --kubeconfig]",
    ),
    click.option(
        "--authentication-kubeconfig",
        type=FILE,
        help="Kubeconfig for TokenReviews and the ConfigMap extension-apiserver-authentication.  [default: "
        "--kubeconfig]",
    ),
    click.option(
        "--authorization-kubeconfig",
        type=FILE,
        help="Kubeconfig for SubjectAccessReviews.  [default: --kubeconfig]",
    ),
)

debug_flag = click.option(
    "--debug-endpoints",
    type=click.Choice(["local", "off"]),
    default="local",
    help="Who may read /debug/config without credentials. local: loopback connections, such as those of kubectl "
    "port-forward; off: nobody. Users who may get the path can read it in both cases.",
)

ui_flag = click.option(
    "--ui-address",
    type=Parsed("address", UIAddress.parse),
    show_default="no pages",
    help="HOST:PORT on which to serve web pages about rules and metrics. A loopback address, such as 127.0.0.1:8082 "
    "for kubectl port-forward: over HTTP, to everyone. Any other address: over TLS, to users who may get the path "
    "/debug/rules, with the certificate and the authentication of --secure-port.",
)

external_url_flag = click.option(
    "--prometheus-external-url",
    type=Parsed("url", external_url),
    show_default="no links",
    help="URL at which users open the Prometheus of --prometheus-url, to which the web pages link each query.",
)
