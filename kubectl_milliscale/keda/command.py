"""The command migrate-keda: prints MetricRules and HPAs for ScaledObjects."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import click
import yaml

from adapter.rules import load_rules
from adapter.rules.reading import read_text
from adapter.ui.formatting import BlockDumper
from kube.values.printable import printable
from kubectl_milliscale.keda.manifests import read_manifests
from kubectl_milliscale.keda.scaled import HPA_VERSIONS, Migrated, Migration
from kubectl_milliscale.keda.servers import Servers

_WIDTH = 120


@click.command(name="migrate-keda")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path, allow_dash=True), metavar="FILE...")
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    help="The adapter's rules file: its prometheusServers are used for triggers with the same address.",
)
@click.option(
    "--hpa-version",
    type=click.Choice(HPA_VERSIONS),
    default=HPA_VERSIONS[0],
    show_default=True,
    help="The apiVersion of the HPAs. Those of milliscale.io/v1 can scale to zero without a feature gate.",
)
@click.option("--prometheus-url", default="", help="The adapter's --prometheus-url: rules for it name no server.")
@click.option(
    "--tenant-label",
    default="namespace",
    show_default=True,
    help="The adapter's --tenant-label, by default that of the manifests: names the queries that may read series of "
    "other namespaces. An empty one: queries are not restricted.",
)
def migrate_keda(
    *, files: tuple[Path, ...], config: Path | None, hpa_version: str, prometheus_url: str, tenant_label: str
) -> None:
    """Print MetricRules and HorizontalPodAutoscalers for KEDA's ScaledObjects.

    FILE has ScaledObjects in YAML or JSON, and may have their TriggerAuthentications; - is standard input:

    \b
      kubectl get scaledobjects,triggerauthentications -A -o yaml > keda.yaml
      kubectl milliscale migrate-keda keda.yaml > milliscale.yaml

    Triggers of the types prometheus, cron, cpu and memory are moved. A ScaledObject with another one is left out. What
    is not moved, or is to be done by hand, is on stderr, and as comments in the output; the exit status is then 1.
    """  # noqa: D301  # click's mark for a paragraph that is not wrapped
    try:
        known = load_rules(config).prometheus_servers.values() if config is not None else ()
        servers = Servers(default_url=prometheus_url, known=known)
        found = [read_manifests(_text(path), source=str(path)) for path in files]
    except ValueError as error:  # ManifestError, RulesError, and text that is not UTF-8 or not a URL
        raise click.ClickException(str(error)) from error
    migration = Migration(
        servers=servers,
        authentications={key: spec for one in found for key, spec in one.authentications.items()},
        hpa_version=hpa_version,
        tenant_label=tenant_label,
    )
    results: list[Migrated] = []
    for manifests in found:
        results += map(migration.migrate, manifests.scaled)
        results += [Migrated(name, problems=[f"not moved: {reason}"]) for name, reason in manifests.unreadable]
    click.echo("".join(_output(results, servers)), nl=False)
    problems = [_line(f"{one.name}: {problem}") for one in results for problem in one.problems]
    for problem in problems:
        click.echo(problem, err=True)
    if problems:
        raise click.exceptions.Exit(1)


def _text(path: Path) -> str:
    return sys.stdin.read() if str(path) == "-" else read_text(path)


def _output(results: Iterable[Migrated], servers: Servers) -> Iterator[str]:
    if servers.entries:
        yield "# Add these servers to the rules file of the adapter (--config):\n#\n"
        yield _commented(_yaml({"prometheusServers": servers.entries}))
    for one in results:
        yield f"---\n# {_line(one.name)}\n"
        yield from (f"# - {_line(note)}\n" for note in (*one.problems, *one.notes))
        yield "---\n".join(map(_yaml, one.objects))


def _line(text: str) -> str:
    """Return a text on one line: one that ended a comment would add to the manifest."""
    return printable(" ".join(text.split()))


def _commented(text: str) -> str:
    return "".join(f"#   {line}\n" for line in text.splitlines())


def _yaml(tree: object) -> str:
    text: str = yaml.dump(tree, Dumper=BlockDumper, sort_keys=False, width=_WIDTH, allow_unicode=True)
    return text
