"""Flags about Prometheus, the available metrics and the API server.

Flags come in groups: each is a decorator that passes its flags on as one typed argument. Those of the HTTPS server are
in kube.serving.flags.

Names and defaults are those of prometheus-adapter and of Kubernetes' library for API servers, so that the arguments of
an existing Deployment work unchanged. Values that can never work are refused here, before anything starts.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from adapter.commands.options import CatalogOptions, KubernetesOptions, PrometheusAccess
from adapter.prometheus import PrometheusConfigError, PrometheusOptions
from adapter.prometheus.budget import DEFAULT_BYTES
from adapter.prometheus.options import DEFAULT_CONNECTIONS
from kube.durations import DURATION, POSITIVE_DURATION
from kube.flags import FILE, bool_option, option_group

Command = Callable[..., None]
"""A function that click's decorators take and return."""

_MIB = 1024 * 1024


class _Header(click.ParamType[tuple[str, str]]):
    """A header, as NAME=VALUE."""

    name = "name=value"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        """Split the flag's text."""
        name, equals, content = str(value).partition("=")
        if not equals or not name or not name.isascii() or not name.replace("-", "").replace("_", "").isalnum():
            self.fail(f"{value!r} is not a header; write NAME=VALUE", param, ctx)
        if not content.isprintable():
            self.fail(f"the value of {name} cannot be sent in a header", param, ctx)
        return name, content


def _prometheus_access(
    *,
    prometheus_url: str,
    prometheus_auth_incluster: bool,
    prometheus_auth_config: Path | None,
    prometheus_ca_file: Path | None,
    prometheus_client_tls_cert_file: Path | None,
    prometheus_client_tls_key_file: Path | None,
    prometheus_insecure_skip_tls_verify: bool,
    prometheus_token_file: Path | None,
    prometheus_headers: tuple[tuple[str, str], ...],
    prometheus_verb: str,
    prometheus_max_queries: int,
    prometheus_response_memory_mb: int,
) -> PrometheusAccess:
    if prometheus_auth_incluster and prometheus_auth_config:
        raise click.UsageError("may not use both in-cluster auth and an explicit kubeconfig at the same time")
    try:
        options = PrometheusOptions(
            url=prometheus_url,
            verb=prometheus_verb,
            headers=prometheus_headers,
            token_file=prometheus_token_file,
            ca_file=prometheus_ca_file,
            cert_file=prometheus_client_tls_cert_file,
            key_file=prometheus_client_tls_key_file,
            connections=prometheus_max_queries,
            insecure_skip_tls_verify=prometheus_insecure_skip_tls_verify,
        )
    except PrometheusConfigError as error:
        raise click.UsageError(str(error)) from error
    return PrometheusAccess(
        options=options,
        in_cluster=prometheus_auth_incluster,
        kubeconfig=prometheus_auth_config,
        response_memory=prometheus_response_memory_mb * _MIB,
    )


prometheus_flags = option_group(
    "prometheus",
    _prometheus_access,
    click.option(
        "--prometheus-url", default="https://localhost", show_default=True, help="URL for connecting to Prometheus."
    ),
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
    click.option("--prometheus-client-tls-cert-file", type=FILE, help="Client certificate for Prometheus."),
    click.option("--prometheus-client-tls-key-file", type=FILE, help="Private key of the client certificate."),
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
        type=_Header(),
        multiple=True,
        help="Header to set on requests to Prometheus, such as X-Scope-OrgID=team. Can be repeated.",
    ),
    click.option(
        "--prometheus-verb",
        default="GET",
        show_default=True,
        help="HTTP verb of requests to Prometheus, GET or POST. Long queries are always sent with POST.",
    ),
    click.option(
        "--prometheus-max-queries",
        type=click.IntRange(min=1),
        default=DEFAULT_CONNECTIONS,
        show_default=True,
        help="Maximum number of concurrent queries. Further ones wait; a free slot goes to the namespace with the "
        "fewest queries under way.",
    ),
    click.option(
        "--prometheus-response-memory-mb",
        type=click.IntRange(min=1),
        default=DEFAULT_BYTES // _MIB,
        show_default=True,
        help="Memory in MiB for long responses of Prometheus while they are read and decoded, all together. A response "
        "that needs more is an error.",
    ),
)


def catalog_flags(*, lists_once: bool = False) -> Callable[[Command], Command]:
    """Flags about the available metrics; a command that lists series once takes --metrics-max-age alone."""

    def build(*, metrics_relist_interval: float, metrics_max_age: float, metrics_freshness: float) -> CatalogOptions:
        source = click.get_current_context().get_parameter_source("metrics_relist_interval")
        if lists_once and metrics_max_age and source is ParameterSource.DEFAULT:
            metrics_relist_interval = metrics_max_age
        max_age = metrics_max_age or metrics_relist_interval
        if max_age < metrics_relist_interval:
            raise click.UsageError("max age must not be less than relist interval")
        return CatalogOptions(relist_interval=metrics_relist_interval, max_age=max_age, freshness=metrics_freshness)

    return option_group(
        "catalog",
        build,
        click.option(
            "--metrics-relist-interval",
            type=POSITIVE_DURATION,
            default="10m",
            show_default=True,
            help="Only the default of --metrics-max-age; series are listed once."
            if lists_once
            else "Interval at which the available series are listed again.",
        ),
        click.option(
            "--metrics-max-age",
            type=DURATION,
            default="0s",
            help="A series is available if it has a sample within this period.  [default: the relist interval]",
        ),
        click.option(
            "--metrics-freshness",
            type=DURATION,
            default="5s",
            show_default=True,
            hidden=lists_once,
            help="Duration to cache results of queries; not longer than the scrape interval. 0s disables the cache, "
            "and that requests for different objects share one query.",
        ),
    )


kubernetes_flags = option_group(
    "kubernetes",
    KubernetesOptions,
    click.option(
        "--lister-kubeconfig",
        type=FILE,
        help="Kubeconfig for listing objects and API resources.  [default: the pod's service account]",
    ),
    click.option(
        "--authentication-kubeconfig",
        type=FILE,
        help="Kubeconfig for TokenReviews and the ConfigMap extension-apiserver-authentication.  [default: the pod's "
        "service account]",
    ),
    click.option(
        "--authorization-kubeconfig",
        type=FILE,
        help="Kubeconfig for SubjectAccessReviews.  [default: the pod's service account]",
    ),
)
