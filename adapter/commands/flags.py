"""The flags about what is asked: Prometheus, which metrics there are, the API server.

They are in groups: each is a decorator that turns its flags into one typed option. Those about clients of the adapter
are in adapter.commands.serving_flags.

Names and defaults are prometheus-adapter's, so that the arguments of its Deployment work unchanged. What cannot be
right is refused here, before anything starts.
"""

from __future__ import annotations

import functools
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
from kube.flags import bool_option

Command = Callable[..., None]
"""What a group of flags decorates, and makes of it."""

_MIB = 1024 * 1024

FILE = click.Path(path_type=Path, exists=True, dir_okay=False)
"""A file that is there."""


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


def prometheus_flags(command: Command) -> Command:
    """Prometheus: passed on as `prometheus`."""

    @click.option("--prometheus-url", default="https://localhost", show_default=True, help="Base URL of Prometheus.")
    @bool_option(
        "--prometheus-auth-incluster",
        help="Show Prometheus the pod's service account; not together with --prometheus-ca-file.",
    )
    @click.option(
        "--prometheus-auth-config",
        type=FILE,
        help="Show Prometheus the credentials of this kubeconfig; not together with --prometheus-ca-file.",
    )
    @click.option("--prometheus-ca-file", type=FILE, help="The authority of Prometheus' certificate.")
    @click.option("--prometheus-client-tls-cert-file", type=FILE, help="A client certificate for Prometheus.")
    @click.option("--prometheus-client-tls-key-file", type=FILE, help="The key of that certificate.")
    @bool_option(
        "--prometheus-insecure-skip-tls-verify",
        help="Do not verify Prometheus' certificate; a CA file is safer.",
    )
    @click.option(
        "--prometheus-token-file", type=FILE, help="A bearer token for Prometheus; read again when the file changes."
    )
    @click.option(
        "--prometheus-header",
        "prometheus_headers",
        type=_Header(),
        multiple=True,
        help="A header for requests to Prometheus, such as X-Scope-OrgID=team; may be given several times.",
    )
    @click.option(
        "--prometheus-verb",
        default="GET",
        show_default=True,
        help="GET or POST: how queries are sent to Prometheus; long ones always by POST.",
    )
    @click.option(
        "--prometheus-max-queries",
        type=click.IntRange(min=1),
        default=DEFAULT_CONNECTIONS,
        show_default=True,
        help="Queries under way at a time; more wait, and a free slot goes to the namespace that holds the fewest.",
    )
    @click.option(
        "--prometheus-response-memory-mb",
        type=click.IntRange(min=1),
        default=DEFAULT_BYTES // _MIB,
        show_default=True,
        help="Memory in MiB that long responses of Prometheus take together while they are read and decoded. "
        "A response that needs more is an error.",
    )
    @functools.wraps(command)
    def wrapper(
        *arguments: Any,
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
        **others: Any,
    ) -> None:
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
        access = PrometheusAccess(
            options=options,
            in_cluster=prometheus_auth_incluster,
            kubeconfig=prometheus_auth_config,
            response_memory=prometheus_response_memory_mb * _MIB,
        )
        command(*arguments, prometheus=access, **others)

    return wrapper


def catalog_flags_once(command: Command) -> Command:
    """As `catalog_flags`, for a command that lists series once: --metrics-max-age alone decides which."""

    @functools.wraps(command)
    def wrapper(*arguments: Any, **others: Any) -> None:
        context = click.get_current_context()
        if context.get_parameter_source("metrics_relist_interval") is ParameterSource.DEFAULT:
            others["metrics_relist_interval"] = others["metrics_max_age"] or others["metrics_relist_interval"]
        flagged(*arguments, **others)

    flagged = catalog_flags(command)
    return wrapper


def catalog_flags(command: Command) -> Command:
    """Which metrics there are: passed on as `catalog`."""

    @click.option(
        "--metrics-relist-interval",
        type=POSITIVE_DURATION,
        default="10m",
        show_default=True,
        help="How often Prometheus is asked which series there are.",
    )
    @click.option(
        "--metrics-max-age",
        type=DURATION,
        default="0s",
        help="How far back a series counts as being there.  [default: the relist interval]",
    )
    @click.option(
        "--metrics-freshness",
        type=DURATION,
        default="5s",
        show_default=True,
        help="For how long an answer of Prometheus is given again; no longer than the scrape interval, 0s for never.",
    )
    @functools.wraps(command)
    def wrapper(
        *arguments: Any, metrics_relist_interval: float, metrics_max_age: float, metrics_freshness: float, **others: Any
    ) -> None:
        max_age = metrics_max_age or metrics_relist_interval
        if max_age < metrics_relist_interval:
            raise click.UsageError("max age must not be less than relist interval")
        catalog = CatalogOptions(relist_interval=metrics_relist_interval, max_age=max_age, freshness=metrics_freshness)
        command(*arguments, catalog=catalog, **others)

    return wrapper


def kubernetes_flags(command: Command) -> Command:
    """The API server: passed on as `kubernetes`."""

    @click.option("--lister-kubeconfig", type=FILE, help="Kubeconfig for listing objects and resources.")
    @click.option("--authentication-kubeconfig", type=FILE, help="Kubeconfig for TokenReviews and authorities.")
    @click.option("--authorization-kubeconfig", type=FILE, help="Kubeconfig for SubjectAccessReviews.")
    @functools.wraps(command)
    def wrapper(
        *arguments: Any,
        lister_kubeconfig: Path | None,
        authentication_kubeconfig: Path | None,
        authorization_kubeconfig: Path | None,
        **others: Any,
    ) -> None:
        options = KubernetesOptions(
            lister=lister_kubeconfig,
            authentication=authentication_kubeconfig,
            authorization=authorization_kubeconfig,
        )
        command(*arguments, kubernetes=options, **others)

    return wrapper
