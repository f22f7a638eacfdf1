"""`explain NAMESPACE/NAME`: show why an HPA was scaled, or was not.

With `--server` it shows the decisions of a running autoscaler. Without it, it computes a decision, for which a
kubeconfig with rights to read is enough. Both have the same records, and so the same output.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click
import msgspec
import yaml
from rich.console import Console

from autoscaler.commands.debug_client import DebugClientError, fetch_decisions, server_option
from autoscaler.commands.decide_once import ComputedDecision, DecideError, decide_once
from autoscaler.commands.explain_text import print_records
from autoscaler.commands.flags import NamespacedName, config_options, kubeconfig_options
from autoscaler.core.config import Config
from autoscaler.core.model import HPA_APIS
from autoscaler.loop.saved_history import SavedHistoryLocation
from autoscaler.records.record import VERSION, DecisionRecord
from kube.client import KubeClient, KubeConfigError
from kube.config import default_kubeconfig
from kube.process import run

_PIPE_WIDTH: Final = 10_000
_APIS: Final = {api.name: api for api in HPA_APIS}


class _Document(msgspec.Struct, frozen=True):
    """The output of `-o json` and `-o yaml`, with the fields of /debug/decisions/NAMESPACE/NAME."""

    version: int
    namespace: str
    name: str
    decisions: Sequence[DecisionRecord]


class _Output(click.Choice[str]):
    """An output format. As with kubectl, `-o=json` is `-o json`."""

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Read the text, from which click does not remove the equals sign."""
        return super().convert(value.removeprefix("="), param, ctx)


@click.command()
@click.argument("hpa", type=NamespacedName(), metavar="NAMESPACE/NAME")
@server_option(
    help="URL of a running autoscaler, such as http://127.0.0.1:8080 behind kubectl port-forward. Without it, a "
    "decision is computed here, and nothing is written."
)
@click.option(
    "--last",
    type=click.IntRange(min=1),
    default=1,
    help="Number of decisions to show, the latest in detail. More than one needs --server.",
)
@click.option(
    "-o",
    "--output",
    type=_Output(["text", "json", "yaml"]),
    default="text",
    help="Output format.",
)
@kubeconfig_options
@click.option("--api", type=click.Choice(list(_APIS)), help="API of the HPA, if both have one of this name.")
@click.option(
    "--state-configmap",
    "state",
    type=NamespacedName(),
    help="NAMESPACE/NAME of the ConfigMap in which the running autoscaler saves its history, to be used without "
    "--server.",
)
@config_options
def explain(
    *,
    hpa: tuple[str, str],
    server: str | None,
    last: int,
    output: str,
    kubeconfig: Path | None,
    context: str | None,
    api: str | None,
    state: tuple[str, str] | None,
    config: Config,
) -> None:
    """Show why an HPA was scaled, or was not, with the numbers behind the decision.

    Without --server, give the --horizontal-pod-autoscaler-* flags and --feature-gates of the running autoscaler.
    """
    namespace, name = hpa
    if server is None:
        if last > 1:
            raise click.UsageError("--last: only a running autoscaler has earlier decisions; give --server")
        # The controller's logs are about a running controller; the notes have what matters here.
        logging.getLogger("autoscaler").addHandler(logging.NullHandler())
        location = None if state is None else SavedHistoryLocation(namespace=state[0], name=state[1])
        computed = _computed(namespace, name, kubeconfig, context, api, location, config)
        records = [computed.record]
        for note in computed.notes:
            click.echo(f"Note: {note}", err=True)
    else:
        records = _fetched(server, namespace, name, last, api)
    _print(records, output, namespace=namespace, name=name)


def _fetched(server: str, namespace: str, name: str, last: int, api: str | None) -> list[DecisionRecord]:
    try:
        records = run(fetch_decisions(server, namespace=namespace, name=name, last=last))
    except DebugClientError as error:
        raise click.ClickException(str(error)) from error
    selected = [each for each in records if api is None or each.api_version == _APIS[api].api_version]
    if not selected:
        raise click.ClickException(
            f"{server}: none of the last {last} decisions on {namespace}/{name} is of the API {api}; raise --last"
        )
    return selected


def _computed(
    namespace: str,
    name: str,
    kubeconfig: Path | None,
    context: str | None,
    api: str | None,
    saved_history: SavedHistoryLocation | None,
    config: Config,
) -> ComputedDecision:
    async def compute() -> ComputedDecision:
        path = kubeconfig or default_kubeconfig()
        async with await KubeClient.connect(path, context=context, user_agent="milliscale-explain") as client:
            return await decide_once(
                client,
                namespace=namespace,
                name=name,
                config=config,
                apis=HPA_APIS if api is None else (_APIS[api],),
                saved_history=saved_history,
            )

    try:
        return run(compute())
    except (KubeConfigError, DecideError) as error:
        raise click.ClickException(str(error)) from error


def _print(records: Sequence[DecisionRecord], output: str, *, namespace: str, name: str) -> None:
    document = _Document(version=VERSION, namespace=namespace, name=name, decisions=records)
    match output:
        case "json":
            click.echo(msgspec.json.format(msgspec.json.encode(document), indent=2).decode())
        case "yaml":
            click.echo(yaml.safe_dump(msgspec.to_builtins(document), sort_keys=False, allow_unicode=True), nl=False)
        case _ if sys.stdout.isatty():
            print_records(Console(), records)
        case _:
            console = Console(width=_PIPE_WIDTH, color_system=None, legacy_windows=False)
            with console.capture() as capture:
                print_records(console, records)
            click.echo("\n".join(line.rstrip() for line in capture.get().splitlines()))
