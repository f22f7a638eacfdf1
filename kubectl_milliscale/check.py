"""`kubectl milliscale check`: `milliscale-adapter check`, with the rules and the Prometheus of the cluster."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click

from adapter.commands.diagnose import check as check_rules
from kube.process.flags import FILE
from kubectl_milliscale.flags import adapter_options, borrow_flags, call
from kubectl_milliscale.kubectl import Kubectl
from kubectl_milliscale.running_config import fill_in_prometheus


@borrow_flags(check_rules, without=("config", "kubeconfig", "context"), defaults={"prometheus_url": "the adapter's"})
@click.command()
@click.option(
    "-f",
    "--filename",
    "config",
    type=FILE,
    help="Rules file, or a manifest that contains one.  [default: the adapter's]",
)
@adapter_options
def check(*, config: Path | None, kubectl: Kubectl, **flags: Any) -> None:
    """Check the adapter's rules, or a rules file, against the cluster's Prometheus.

    Exits with 0 if there are no errors, 1 if there are errors (with --strict also for warnings), 2 for invalid flags.

    \b
    Examples:
      kubectl milliscale check
      kubectl milliscale check -f rules.yaml --strict
    """  # noqa: D301  # click's mark for a paragraph that is not wrapped
    values = {**flags, "config": config}
    with ExitStack() as stack:
        fill_in_prometheus(values, stack, kubectl, rules="config")
        call(check_rules, values, kubectl)
