"""`kubectl milliscale status`: the HPAs of a namespace or of all, with their last decisions."""

from __future__ import annotations

import bisect
import contextlib
import functools
import itertools
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Final

import click
import msgspec
import yaml
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from autoscaler.core.model import HPA
from kubectl_milliscale.cluster import Decisions, DesiredReplicas, list_hpas, not_found, split_names
from kubectl_milliscale.flags import TEXT, hpa_options
from kubectl_milliscale.kubectl import Kubectl, KubectlError
from kubectl_milliscale.table import StatusRow, document, table

_REFRESH_SECONDS: Final = 2.0
_OUTPUTS: Final = ("wide", "json", "yaml", "name")


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@hpa_options
@click.option("-A", "--all-namespaces", is_flag=True, help="Show the HPAs of all namespaces.")
@click.option("-l", "--selector", type=TEXT, default="", show_default=False, help="Label selector of the HPAs.")
@click.option(
    "-o",
    "--output",
    type=TEXT,
    default="",
    show_default="a table",
    help=f"Output format: {', '.join(_OUTPUTS)}. json, yaml and name are printed once.",
)
@click.option(
    "-w/ ",
    "--watch/--no-watch",
    default=False,
    help="Keep the table current until Ctrl-C; needs a terminal.",
)
def status(
    *, names: tuple[str, ...], kubectl: Kubectl, all_namespaces: bool, selector: str, output: str, watch: bool
) -> None:
    """Show HPAs: metrics, replicas, the last decisions and what limits them.

    A bar in the column DECISIONS is a decision: its desired replicas between the lowest and the highest of the bars; a
    dot is one without a replica count. Without a pod of the autoscaler the column is empty.

    \b
    Examples:
      kubectl milliscale status -n shop --watch
      kubectl milliscale status -A -o wide
      kubectl milliscale status web -o json
    """  # noqa: D301  # click's mark for a paragraph that is not wrapped
    if output not in ("", *_OUTPUTS):
        raise click.UsageError(f"--output: {output!r} is not one of {', '.join(_OUTPUTS)}")
    console = Console()
    live = watch and output in ("", "wide")
    if live and not console.is_terminal:
        raise click.UsageError("--watch needs a terminal; `kubectl get hpa --watch` prints changes as lines")
    # Invalid HPAs are shown as such.
    logging.getLogger("autoscaler").addHandler(logging.NullHandler())
    kubectl, wanted = split_names(kubectl, names)
    namespace = "" if all_namespaces else kubectl.namespace()
    list_now = functools.partial(list_hpas, kubectl, namespace, selector=selector, names=wanted)
    with contextlib.closing(Decisions(kubectl, namespace)) as decisions:
        found = list_now()
        _check_found(found, wanted, namespace)
        if output == "name":
            for hpa in found:
                click.echo(f"horizontalpodautoscaler.{hpa.key.group}/{hpa.name}")
        elif live:
            screen = functools.partial(_screen, all_namespaces=all_namespaces, wide=output == "wide")
            _show_live(console, found, list_now, decisions, screen)
        else:
            rows = _rows(found, decisions.fetch())
            _print_once(console, rows, output, all_namespaces=all_namespaces)
            if decisions.problem:
                click.echo(f"Note: no decisions: {decisions.problem}", err=True)


def _check_found(found: Sequence[HPA], names: Sequence[str], namespace: str) -> None:
    """Raise KubectlError for a name that no HPA has; say so if there is none at all."""
    missing = {*names} - {hpa.name for hpa in found}
    if missing and namespace:
        raise not_found(namespace, min(missing))
    if not found:
        click.echo(f"No resources found{f' in {namespace} namespace.' * bool(namespace)}", err=True)


def _rows(hpas: Sequence[HPA], decisions: DesiredReplicas) -> list[StatusRow]:
    return [StatusRow(hpa=hpa, decisions=decisions.get(hpa.key, ())) for hpa in hpas]


def _print_once(console: Console, rows: Sequence[StatusRow], output: str, *, all_namespaces: bool) -> None:
    if output == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(document(rows)), indent=2).decode())
    elif output == "yaml":
        click.echo(yaml.safe_dump(document(rows), sort_keys=False, allow_unicode=True), nl=False)
    elif rows:
        width = console.width if console.is_terminal else None
        lines = table(rows, all_namespaces=all_namespaces, wide=output == "wide", width=width)
        console.print(Text("\n").join(lines), soft_wrap=True)


def _show_live(
    console: Console,
    hpas: list[HPA],
    list_now: Callable[[], list[HPA]],
    decisions: Decisions,
    screen: Callable[..., RenderableType],
) -> None:
    """Show the table until Ctrl-C, at first of `hpas`; if a list fails, with the HPAs of the last one and a note.

    It is on the terminal's other screen, as that of `watch`: a terminal that is resized wraps lines again, and lines
    that were above the cursor could not be overwritten. The last table is printed at the end.
    """
    shown: RenderableType = Text()
    begun, notes = time.monotonic(), list[str]()
    with contextlib.suppress(KeyboardInterrupt), Live(console=console, auto_refresh=False, screen=True) as live:
        while True:
            rows = _rows(hpas, decisions.fetch())
            if decisions.problem:
                notes.append(f"no decisions: {decisions.problem}")
            shown = screen(rows, console, notes=notes)
            live.update(shown, refresh=True)
            # Of ten thousand HPAs a list takes seconds: the API server has as much time without one.
            time.sleep(max(_REFRESH_SECONDS, time.monotonic() - begun))
            begun, notes = time.monotonic(), []
            try:
                hpas = list_now()
            except KubectlError as error:
                notes.append(error.message)
    console.print(shown)


def _screen(
    rows: Sequence[StatusRow], console: Console, *, all_namespaces: bool, wide: bool, notes: Sequence[str]
) -> RenderableType:
    """Return the table with as many rows as fit, the number of the others, the time and the notes."""
    width, height = console.size
    plural = "HPA" if len(rows) == 1 else "HPAs"

    def footer(hidden: int) -> list[Text]:
        more = f"; {hidden} more: name some, or use -l" if hidden > 0 else ""
        summary = f"{len(rows)} {plural} at {datetime.now().astimezone():%H:%M:%S}{more}. Ctrl-C ends."
        problems = (Text(f"Note: {note.splitlines()[0]}", style="yellow") for note in notes)
        return [Text(), *problems, Text(summary, style="dim")]

    def ends(lines: Iterable[Text]) -> list[int]:
        """Return on which line of the terminal each line ends; long ones are wrapped."""
        return list(itertools.accumulate(len(line.wrap(console, width)) for line in lines))

    space = max(height - ends(footer(len(rows)))[-1], 2)
    lines = list(table(rows[: space - 1], all_namespaces=all_namespaces, wide=wide, width=width))
    fitting = max(bisect.bisect(ends(lines), space), 2)  # the headings, and a row
    return Group(*lines[:fitting], *footer(len(rows) - (fitting - 1)))
