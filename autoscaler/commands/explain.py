"""`explain NAMESPACE/NAME`: why an HPA was scaled, or was not, told to people.

From a running autoscaler (`--server`), which knows the steps that it has taken; or from a single step that is computed
here, for which a kubeconfig with rights to read is enough. Both give the same records, and so the same text.
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

from autoscaler.commands.config_flags import config_options
from autoscaler.commands.debug_client import SERVER, DebugClientError
from autoscaler.commands.decision_client import fetch_decisions
from autoscaler.commands.explain_view import show
from autoscaler.commands.one_step import ComputedStep, StepError, compute_step
from autoscaler.core.config import Config
from autoscaler.core.model import HPA_APIS
from autoscaler.loop.saved_history import SavedHistoryLocation
from autoscaler.records.record import VERSION, DecisionRecord
from kube.client import KubeClient, KubeConfigError
from kube.config import default_kubeconfig
from kube.process import run

_PLAIN_WIDTH: Final = 10_000
_APIS: Final = {api.name: api for api in HPA_APIS}


class _Document(msgspec.Struct, frozen=True):
    """What `-o json` and `-o yaml` print: the form of the page that the autoscaler serves."""

    version: int
    namespace: str
    name: str
    decisions: Sequence[DecisionRecord]


class _HPAName(click.ParamType[tuple[str, str]]):
    """NAMESPACE/NAME."""

    name = "namespace/name"

    def convert(
        self, value: str | tuple[str, str], param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        """Split the text."""
        if isinstance(value, tuple):
            return value
        namespace, _, name = value.partition("/")
        if not namespace or not name or "/" in name:
            self.fail(f"{value!r}: write NAMESPACE/NAME, such as default/web", param, ctx)
        return namespace, name


class _Output(click.Choice[str]):
    """One of the forms; `-o=json` means what it means to kubectl."""

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Read the flag's text; the short flag brings its equals sign along."""
        return super().convert(value.removeprefix("="), param, ctx)


class _ConfigMapName(click.ParamType[SavedHistoryLocation]):
    """NAMESPACE/NAME of a ConfigMap."""

    name = "namespace/name"

    def convert(
        self, value: str | SavedHistoryLocation, param: click.Parameter | None, ctx: click.Context | None
    ) -> SavedHistoryLocation:
        """Split the text."""
        if isinstance(value, SavedHistoryLocation):
            return value
        namespace, _, name = value.partition("/")
        if not namespace or not name or "/" in name:
            self.fail(f"{value!r}: write NAMESPACE/NAME of the ConfigMap", param, ctx)
        return SavedHistoryLocation(namespace=namespace, name=name)


@click.command()
@click.argument("hpa", type=_HPAName(), metavar="NAMESPACE/NAME")
@click.option(
    "--server",
    type=SERVER,
    help="Endpoint of a running autoscaler, such as http://127.0.0.1:8080 behind kubectl port-forward. Without it, one "
    "step is computed here, and nothing is written.",
)
@click.option(
    "--last",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="How many decisions to show, the latest in full. More than one are known to --server only.",
)
@click.option(
    "-o",
    "--output",
    type=_Output(["text", "json", "yaml"]),
    default="text",
    show_default=True,
    help="How to print.",
)
@click.option(
    "--kubeconfig",
    type=click.Path(path_type=Path),
    help="Kubeconfig file.  [default: $KUBECONFIG, ~/.kube/config, or the service account of the pod this runs in]",
)
@click.option("--context", help="The kubeconfig's context.  [default: its current one]")
@click.option(
    "--api",
    type=click.Choice(list(_APIS)),
    help="Of which API the HPA is, where there may be one of the same name in each.",
)
@click.option(
    "--state-configmap",
    "state",
    type=_ConfigMapName(),
    help="NAMESPACE/NAME of the ConfigMap in which the running autoscaler saves what it remembers, for computing a "
    "step with that memory.",
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
    state: SavedHistoryLocation | None,
    config: Config,
) -> None:
    """Say in plain words what was decided on an HPA, and by which numbers.

    The --horizontal-pod-autoscaler-* flags and --feature-gates count where the step is computed here: give those of the
    running autoscaler.
    """
    namespace, name = hpa
    if server is None:
        if last > 1:
            raise click.UsageError("--last: earlier decisions are known to a running autoscaler only; give --server")
        # What the parts of the loop log is about a loop; what matters here is in the notes.
        logging.getLogger("autoscaler").addHandler(logging.NullHandler())
        step = _computed(namespace, name, kubeconfig, context, api, state, config)
        records: Sequence[DecisionRecord] = [step.record]
        for note in step.notes:
            click.echo(f"Note: {note}", err=True)
    else:
        records = _fetched(server, namespace, name, last, api)
    _print(records, output, namespace=namespace, name=name)


def _fetched(server: str, namespace: str, name: str, last: int, api: str | None) -> Sequence[DecisionRecord]:
    try:
        records = run(fetch_decisions(server, namespace=namespace, name=name, last=last))
    except DebugClientError as error:
        raise click.ClickException(str(error)) from error
    chosen = [each for each in records if api is None or each.api_version == _APIS[api].api_version]
    if not chosen:
        missing = f"{server} shows no decision on {namespace}/{name} of the API {api}"
        raise click.ClickException(f"{missing} among its last {last}; look further back with --last")
    return chosen


def _computed(
    namespace: str,
    name: str,
    kubeconfig: Path | None,
    context: str | None,
    api: str | None,
    state: SavedHistoryLocation | None,
    config: Config,
) -> ComputedStep:
    async def compute() -> ComputedStep:
        chosen = kubeconfig or default_kubeconfig()
        async with await KubeClient.connect(chosen, context=context, user_agent="milliscale-explain") as client:
            return await compute_step(
                client,
                namespace=namespace,
                name=name,
                config=config,
                apis=HPA_APIS if api is None else (_APIS[api],),
                memory=state,
            )

    try:
        return run(compute())
    except (KubeConfigError, StepError) as error:
        raise click.ClickException(str(error)) from error


def _print(records: Sequence[DecisionRecord], output: str, *, namespace: str, name: str) -> None:
    document = _Document(version=VERSION, namespace=namespace, name=name, decisions=records)
    match output:
        case "json":
            click.echo(msgspec.json.format(msgspec.json.encode(document), indent=2).decode())
        case "yaml":
            click.echo(yaml.safe_dump(msgspec.to_builtins(document), sort_keys=False, allow_unicode=True), nl=False)
        case _ if sys.stdout.isatty():
            show(Console(), records)
        case _:
            console = Console(width=_PLAIN_WIDTH, color_system=None, legacy_windows=False)
            with console.capture() as capture:
                show(console, records)
            click.echo("\n".join(line.rstrip() for line in capture.get().splitlines()))
