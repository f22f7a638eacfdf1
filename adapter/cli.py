"""The adapter's command line.

Everything is validated before anything starts: a wrong flag is one message and exit status 2, a wrong rules file and
whatever else goes wrong later is one line and exit status 1.
"""

from __future__ import annotations

import logging
from pathlib import Path

import click

from adapter.commands.diagnosing import check, explain
from adapter.commands.flags import catalog_flags, kubernetes_flags, prometheus_flags
from adapter.commands.ignored_flags import IGNORED
from adapter.commands.options import CatalogOptions, KubernetesOptions, PrometheusAccess, ServeOptions, ServingOptions
from adapter.commands.serve import ListenError
from adapter.commands.serve import serve as run_server
from adapter.commands.serving_flags import authentication_flags, authorization_flags, serving_flags
from adapter.prometheus import PrometheusConfigError
from adapter.rules import RulesError, load_rules
from adapter.security.authorization import AuthorizationOptions
from adapter.security.tls import TLSError
from adapter.security.trust import TrustError, TrustOptions
from kube.client import KubeConfigError
from kube.flags import CONTEXT_SETTINGS, GoCommand, ignored_options, verbosity_option
from kube.process import installed_version, run, setup_logging

_log = logging.getLogger(__name__)


# The name of prometheus-adapter's executable, which its chart puts in front of its arguments.
_PEER = "/adapter"
_OWN_OPTIONS = ("--help", "-h", "--version")


class _Commands(click.Group):
    """The commands; arguments that begin with a flag are those of `serve`, as prometheus-adapter has no commands."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put in the command where there is none."""
        if args[:1] == [_PEER]:
            args = args[1:]
        if args and args[0].startswith("-") and args[0] not in _OWN_OPTIONS:
            args = ["serve", *args]
        return super().parse_args(ctx, args)


@click.group(cls=_Commands, context_settings=CONTEXT_SETTINGS)
@click.version_option(installed_version() or "unknown")
def main() -> None:
    """The metrics adapter of milliscale: the three metrics APIs, answered from Prometheus.

    Arguments that begin with a flag are those of `serve`.
    """


main.add_command(check)
main.add_command(explain)


@main.command(cls=GoCommand)
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    help="The rules file, in prometheus-adapter's format; reloaded when it changes, and at once on SIGHUP.",
)
@prometheus_flags
@catalog_flags
@kubernetes_flags
@serving_flags
@authentication_flags
@authorization_flags
@verbosity_option
@ignored_options(IGNORED)
def serve(
    *,
    config: Path | None,
    prometheus: PrometheusAccess,
    catalog: CatalogOptions,
    kubernetes: KubernetesOptions,
    serving: ServingOptions,
    trust: TrustOptions,
    token_ttl: float,
    authorization: AuthorizationOptions,
    verbosity: int,
    ignored: tuple[str, ...],
) -> None:
    """Serve custom.metrics.k8s.io, external.metrics.k8s.io and metrics.k8s.io until SIGTERM or Ctrl-C.

    Takes prometheus-adapter's flags and rules file unchanged. Without kubeconfigs the service account of the pod that
    this runs in is used.
    """
    if config is None:
        raise click.UsageError("no metrics discovery configuration file specified (make sure to use --config)")
    setup_logging(verbosity)
    for flag in ignored:
        _log.warning("%s has no effect: %s", flag, IGNORED[flag])
    options = ServeOptions(
        config=config,
        prometheus=prometheus,
        catalog=catalog,
        kubernetes=kubernetes,
        serving=serving,
        trust=trust,
        token_ttl=token_ttl,
        authorization=authorization,
    )
    try:
        rules = load_rules(config)
        run(run_server(options, rules))
    except RulesError as error:
        raise click.ClickException(f"unable to load metrics discovery configuration: {error}") from error
    except (KubeConfigError, ListenError, PrometheusConfigError, TLSError, TrustError) as error:
        raise click.ClickException(str(error)) from error
