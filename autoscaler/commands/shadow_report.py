"""`shadow-report`: compare a running autoscaler's decisions with kube-controller-manager's."""

from __future__ import annotations

import click
import msgspec

from autoscaler.commands.debug_client import fetch_shadow_page, server_option
from autoscaler.records.shadow_report import as_table
from kube.process import run


@click.command("shadow-report")
@server_option(
    default="http://127.0.0.1:8080",
    help="URL of the running autoscaler, for example behind kubectl port-forward.",
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json"]),
    default="table",
    help="Output format.",
)
def shadow_report(*, server: str, output: str) -> None:
    """Compare the decisions of shadow mode with those of kube-controller-manager.

    HPAs are in shadow mode by --mode=shadow or by the annotation milliscale.io/mode.
    """
    page = run(fetch_shadow_page(server))
    click.echo(as_table(page) if output == "table" else msgspec.json.format(msgspec.json.encode(page)).decode())
