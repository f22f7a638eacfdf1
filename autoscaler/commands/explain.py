"""`explain NAMESPACE/NAME`: show why an HPA was scaled, or was not.

With `--server` it shows the decisions of a running autoscaler. Otherwise it computes a decision, which requires only a
kubeconfig with read-only rights. Both print the same kind of record.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
from collections.abc import Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Final

import click
import msgspec
import yaml
from rich.console import Console
from rich.table import Table
from rich.text import Text

from autoscaler.commands.debug_client import SERVER_URL, fetch_config, fetch_decisions
from autoscaler.commands.decide_once import decide_once
from autoscaler.commands.flags import config_options
from autoscaler.core.config import Config
from autoscaler.core.model import HPA_APIS
from autoscaler.loop.saved_history import SavedHistoryLocation
from autoscaler.records.decision_log import DecisionsPage
from autoscaler.records.explanation import METRIC_HEADINGS, details, heading, metric_cells
from autoscaler.records.metric_lookup import MetricNames, adapter_explanation, metric_parameters, metric_url
from autoscaler.records.record import VERSION, DecisionRecord, MetricRecord
from kube.api.client import KubeClient, KubeConfigError, KubeError
from kube.api.config import RestConfigError, default_kubeconfig, load_config
from kube.api.status import StatusError
from kube.process.flags import Parsed, kubeconfig_options
from kube.process.runtime import run
from kube.values.printable import printable
from kube.web.options import external_url

_PIPE_WIDTH: Final = 10_000
_FORBIDDEN: Final = 403
_NOT_FOUND: Final = 404
_NOT_READABLE: Final = (
    "PromQL is not shown: it needs milliscale's adapter, and a user with its ClusterRole milliscale-metric-explainer"
)
"""The API server refuses a user without the right before it is known which adapter serves the metrics."""
_APIS: Final = {api.name: api for api in HPA_APIS}


class _Output(click.Choice[str]):
    """An output format. As with kubectl, `-o=json` is `-o json`."""

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Read the text, from which click does not remove the equals sign."""
        return super().convert(value.removeprefix("="), param, ctx)


def _namespaced_name(text: str) -> tuple[str, str]:
    namespace, _, name = text.partition("/")
    if not namespace or not name or "/" in name:
        raise ValueError(f"{text!r} must be NAMESPACE/NAME, such as default/web")
    return namespace, name


def _hpa_name(text: str) -> tuple[str, str]:
    """Parse NAMESPACE/NAME, or NAME with an empty namespace."""
    return _namespaced_name(text) if "/" in text else ("", text)


@click.command()
@click.argument("hpa", type=Parsed("name", _hpa_name), metavar="[NAMESPACE/]NAME")
@click.option(
    "--server",
    type=SERVER_URL,
    help="URL of a running autoscaler, such as http://127.0.0.1:8080 behind kubectl port-forward. Without it, a "
    "decision is computed here, and nothing is written.",
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
    type=Parsed("namespace/name", _namespaced_name),
    help="NAMESPACE/NAME of the ConfigMap in which the running autoscaler saves its history, to be used without "
    "--server.",
)
@click.option(
    "--adapter-ui-url",
    type=Parsed("url", external_url),
    show_default="that of the autoscaler at --server",
    help="URL at which you open the pages of the adapter: after the metrics there is a link for each, to its rule, its "
    "PromQL, and Prometheus' graph.",
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
    adapter_ui_url: str | None,
    config: Config,
) -> None:
    """Show why an HPA was scaled, or was not, with the numbers behind the decision.

    The namespace is that of the kubeconfig's context, unless it is given. Without --server, give the
    --horizontal-pod-autoscaler-* flags and --feature-gates of the running autoscaler.
    """
    if server is None and last > 1:
        raise click.UsageError("--last: only a running autoscaler has earlier decisions; give --server")
    if server is not None and not hpa[0]:
        try:
            hpa = (run(load_config(kubeconfig or default_kubeconfig(), context)).namespace, hpa[1])
        except RestConfigError as error:
            raise click.UsageError(f"with --server, give NAMESPACE/{hpa[1]}") from error
    connect = partial(KubeClient.connect, context=context, user_agent="milliscale-explain")
    is_text = output == "text"

    async def read(server: str) -> tuple[DecisionsPage, list[str], list[str]]:
        """Read the decisions of a running autoscaler, and if there is a kubeconfig, about their metrics."""
        page = await _fetch(server, hpa, last=last, api=api)
        if kubeconfig is not None and is_text:
            with contextlib.suppress(KubeConfigError):  # the decisions do not need it
                async with await connect(kubeconfig) as client:
                    return page, *await _about_metrics(client, page.decisions[-1])
        return page, [], []

    async def compute() -> tuple[DecisionsPage, list[str], list[str]]:
        # The logs of the controller's parts do not apply here; the notes report what matters.
        logging.getLogger("autoscaler").addHandler(logging.NullHandler())
        async with await connect(kubeconfig or default_kubeconfig()) as client:
            record, notes = await decide_once(
                client,
                namespace=hpa[0] or client.namespace,
                name=hpa[1],
                config=config,
                apis=HPA_APIS if api is None else (_APIS[api],),
                saved_history=None if state is None else SavedHistoryLocation(namespace=state[0], name=state[1]),
            )
            for note in notes:
                click.echo(f"Note: {note}", err=True)
            page = DecisionsPage(version=VERSION, namespace=record.namespace, name=record.name, decisions=[record])
            return page, *(await _about_metrics(client, record) if is_text else ([], []))

    try:
        page, hints, sources = run(compute() if server is None else read(server))
    except KubeConfigError as error:
        raise click.ClickException(str(error)) from error
    if server is not None and adapter_ui_url is None:
        with contextlib.suppress(click.ClickException):  # the decisions do not need it
            adapter_ui_url = str(run(fetch_config(server)).flags.get("adapter-ui-url", "")).rstrip("/")
    if adapter_ui_url:
        sources += _links(adapter_ui_url, page.decisions[-1])
    _print(page, output, hints, sources)


def _links(adapter_ui_url: str, record: DecisionRecord) -> list[str]:
    """Return a line for each metric that the adapter may serve, with the URL of the page that explains it."""
    paths = [(metric.name, metric_url(metric, record.namespace, record.pod_selector)) for metric in record.metrics]
    return [f"rule, PromQL and graph of {name}: {adapter_ui_url}{path}" for name, path in paths if path]


async def _fetch(server: str, hpa: tuple[str, str], *, last: int, api: str | None) -> DecisionsPage:
    namespace, name = hpa
    page = await fetch_decisions(server, namespace=namespace, name=name, last=last)
    decisions = [each for each in page.decisions if api is None or each.api_version == _APIS[api].api_version]
    if not decisions:
        raise click.ClickException(
            f"{server}: none of the last {last} decisions on {namespace}/{name} is of the API {api}; raise --last"
        )
    return msgspec.structs.replace(page, decisions=decisions)


async def _about_metrics(client: KubeClient, record: DecisionRecord) -> tuple[list[str], list[str]]:
    """Return what the cluster says about the metrics of a decision.

    A sentence for each metric that does not exist, if existing ones have similar names; and for each that exists, the
    lines of the adapter's explanation, or the reason why they cannot be read. Other adapters have no explanations.
    """
    found = await MetricNames(client.get).suggestions(record)
    hints = [f"the cluster has no metric {each.name}; did you mean {' or '.join(names)}?" for each, names in found]

    async def explained(metric: MetricRecord) -> list[str]:
        parameters = metric_parameters(metric, record.namespace, record.pod_selector)
        if not parameters or any(metric is misspelled for misspelled, _ in found):
            return []
        try:
            return list((await adapter_explanation(client, parameters)).lines(values=False))
        except (KubeError, StatusError) as error:
            code = error.code if isinstance(error, StatusError) else None
            if code == _FORBIDDEN:
                return [_NOT_READABLE]
            return [] if code == _NOT_FOUND else [f"the PromQL of {metric.name} cannot be read: {error}"]

    lines = list(chain.from_iterable(await asyncio.gather(*map(explained, record.metrics))))
    once = [_NOT_READABLE] if _NOT_READABLE in lines else []
    return hints, [line for line in lines if line != _NOT_READABLE] + once


def _print(page: DecisionsPage, output: str, hints: Sequence[str], sources: Sequence[str]) -> None:
    match output:
        case "json":
            click.echo(msgspec.json.format(msgspec.json.encode(page), indent=2).decode())
        case "yaml":
            click.echo(yaml.safe_dump(msgspec.to_builtins(page), sort_keys=False, allow_unicode=True), nl=False)
        case _ if sys.stdout.isatty():
            print_records(Console(), page.decisions, hints, sources)
        case _:
            console = Console(width=_PIPE_WIDTH, color_system=None, legacy_windows=False)
            with console.capture() as capture:
                print_records(console, page.decisions, hints, sources)
            click.echo("\n".join(line.rstrip() for line in capture.get().splitlines()))


def print_records(
    console: Console, records: Sequence[DecisionRecord], hints: Sequence[str] = (), sources: Sequence[str] = ()
) -> None:
    """Print the sentences of all records, oldest first, and the details of the last.

    Hints follow its sentence, and where its metrics come from follows these.
    """
    *earlier, latest = records
    for record in earlier:
        console.print(_text(f"{record.time}  {record.sentence}"), soft_wrap=True)
    if earlier:
        console.print()
    console.print(_text(heading(latest), style="bold"), soft_wrap=True)
    for line in (latest.sentence, *hints):
        console.print(_text(line), soft_wrap=True)
    if latest.metrics:
        console.print()
        console.print(_metrics_table(latest))
    for line in sources:
        console.print(_text(line), soft_wrap=True)
    console.print()
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, text in details(latest):
        table.add_row(_text(name), _text(text))
    console.print(table)


def _metrics_table(record: DecisionRecord) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in METRIC_HEADINGS:
        table.add_column(title, overflow="fold")
    for index, metric in enumerate(record.metrics):
        is_winner = index == record.winner
        style = "bold green" if is_winner else "red" if metric.failure is not None else ""
        table.add_row(*map(_text, metric_cells(metric, is_winner=is_winner)), style=style)
    return table


def _text(text: str, style: str = "") -> Text:
    """Return a text without control characters, which could do anything in a terminal; names in it are its users'."""
    return Text(printable(text, keep="\n"), style)
