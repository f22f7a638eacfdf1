"""`shadow-report`: how the decisions of a running autoscaler compare with those of the built-in controller."""

from __future__ import annotations

import click
import msgspec

from autoscaler.commands.debug_client import SERVER, DebugClientError, fetch_page
from autoscaler.loop.debug import SHADOW_PATH
from autoscaler.records.shadow_report import ShadowPage, as_table
from kube.process import run


@click.command("shadow-report")
@click.option(
    "--server",
    type=SERVER,
    default="http://127.0.0.1:8080",
    show_default=True,
    help="Endpoint of the running autoscaler, such as one behind kubectl port-forward.",
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="How to print.",
)
def shadow_report(*, server: str, output: str) -> None:
    """Say how shadow mode's decisions compare with those of the built-in controller.

    An HPA is in shadow mode by --mode=shadow or by its annotation milliscale.io/mode.
    """
    url = f"{server.rstrip('/')}{SHADOW_PATH}"
    try:
        content = run(fetch_page(url))
    except DebugClientError as error:
        raise click.ClickException(str(error)) from error
    try:
        page = msgspec.json.decode(content, type=ShadowPage)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise click.ClickException(f"{url} is not the page of an autoscaler: {error}") from error
    click.echo(as_table(page) if output == "table" else msgspec.json.format(msgspec.json.encode(page)).decode())
