"""The adapter's command line: `serve`, `check`, `explain`, `forecast` and `schedule`.

Everything is validated before anything starts. Invalid flags exit with status 2; an invalid rules file, and any later
failure, exits with status 1 and one line on stderr.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import click

from adapter.commands.flags import (
    ServeOptions,
    catalog_flags,
    debug_flag,
    external_url_flag,
    kubernetes_flags,
    prometheus_flags,
    ui_flag,
)
from adapter.commands.ignored_flags import IGNORED, ServeCommand, given_ignored_flags, ignored_options
from adapter.commands.rule_object_flags import rule_object_flags
from adapter.commands.serve import flags_of
from adapter.commands.serve import serve as run_server
from adapter.commands.serving_flags import limit_flags, serving_flags
from adapter.prometheus import PrometheusConfigError
from adapter.rules import RulesError, load_rules
from adapter.settings import DEFAULTS as SETTINGS
from kube.api.client import KubeConfigError
from kube.process.flags import (
    CONTEXT_SETTINGS,
    LazyGroup,
    flag_section,
    option_group,
    verbosity_option,
)
from kube.process.runtime import run, setup_logging
from kube.process.settings import setting_option
from kube.security.tls import TLSError
from kube.security.trust import TrustError
from kube.serving.flags import authorization_flags, tls_flags, token_ttl_flag, trust_flags
from kube.serving.listener import ListenError
from kube.serving.options import AuthOptions
from kube.version import VERSION

_log = logging.getLogger(__name__)

# The executable of prometheus-adapter's image, which its Helm chart puts in front of the arguments.
_EXECUTABLE = "/adapter"
_GROUP_OPTIONS = ("--help", "-h", "--version")


class _Commands(LazyGroup):
    """The commands. prometheus-adapter has none, so arguments that begin with a flag are those of `serve`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Insert `serve` if no command is given."""
        if args[:1] == [_EXECUTABLE]:
            args = args[1:]
        if args and args[0].startswith("-") and args[0] not in _GROUP_OPTIONS:
            args = ["serve", *args]
        return super().parse_args(ctx, args)


_LAZY = {
    "check": "adapter.commands.diagnose:check",
    "explain": "adapter.commands.diagnose:explain",
    "forecast": "adapter.commands.forecast:forecast",
    "schedule": "adapter.commands.schedule:schedule",
    "migrate-keda": "kubectl_milliscale.keda.command:migrate_keda",  # its first name
}


@click.group(cls=_Commands, lazy=_LAZY, context_settings=CONTEXT_SETTINGS)
@click.version_option(VERSION)
def main() -> None:
    """Serve the Kubernetes metrics APIs from Prometheus.

    Without a command, flags are those of `serve`.
    """


@main.command(cls=ServeCommand)
@flag_section("Metrics discovery flags")
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    help="The rules file, in prometheus-adapter's format; reloaded when it changes, and on SIGHUP.",
)
@catalog_flags()
@flag_section("Prometheus flags")
@prometheus_flags
@flag_section("Kubernetes client flags")
@kubernetes_flags
@flag_section("Rules in objects flags")
@rule_object_flags
@flag_section("Secure serving flags")
@serving_flags
@limit_flags
@debug_flag
@tls_flags
@flag_section("Authentication flags")
@trust_flags
@token_ttl_flag
@flag_section("Authorization flags")
@authorization_flags
@option_group("auth", AuthOptions)
@flag_section("Web pages flags")
@ui_flag
@external_url_flag
@flag_section("Global flags")
@setting_option(SETTINGS)
@verbosity_option
@ignored_options
def serve(*, config: Path | None, verbosity: int, **options: Any) -> None:
    """Serve the metrics APIs until SIGTERM.

    Serves custom.metrics.k8s.io, external.metrics.k8s.io and metrics.k8s.io from Prometheus. Accepts the flags and the
    rules file of prometheus-adapter; docs/migrating.md lists the flags without effect.
    """
    if config is None:
        raise click.UsageError("no metrics discovery configuration file specified (make sure to use --config)")
    setup_logging(verbosity)
    context = click.get_current_context()
    for flag in given_ignored_flags(context):
        _log.warning("%s has no effect: %s", flag, IGNORED[flag])
    try:
        rules = load_rules(config)
        flags = flags_of(context)
        run(run_server(ServeOptions(config=config, flags=flags, **options), rules))
    except RulesError as error:
        raise click.ClickException(f"unable to load metrics discovery configuration: {error}") from error
    except (KubeConfigError, ListenError, PrometheusConfigError, TLSError, TrustError) as error:
        raise click.ClickException(str(error)) from error
