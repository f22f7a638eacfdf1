"""`migrate`: prints how HPAs move between Kubernetes' API and ours. It only reads from the cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click

from autoscaler.core.model import HPA_APIS, KUBERNETES, MILLISCALE, HPAApi
from autoscaler.objects.defaults import default_hpa
from autoscaler.objects.fields import ParseError
from autoscaler.objects.migration import is_scaled_to_zero, move, render
from autoscaler.objects.validation import validate_hpa
from kube.client import KubeClient, KubeConfigError, KubeError
from kube.config import default_kubeconfig
from kube.flags import CONTEXT_SETTINGS
from kube.process import run
from kube.status import StatusError

_APIS: Final = {api.name: api for api in HPA_APIS}
_NOT_FOUND: Final = 404


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """What the cluster has.

    Attributes:
        old: the HPAs that may move.
        taken: (namespace, name) of the HPAs that the other API has already; None where it is not served.
    """

    old: Sequence[dict[str, Any]]
    taken: frozenset[tuple[str, str]] | None


@click.command(context_settings=CONTEXT_SETTINGS)
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--to", type=click.Choice(list(_APIS)), required=True, help="The API to which they are to move.")
@click.option("-n", "--namespace", default="default", show_default=True, help="The HPAs' namespace.")
@click.option("-A", "--all-namespaces", is_flag=True, help="The HPAs of all namespaces.")
@click.option(
    "--kubeconfig",
    type=click.Path(path_type=Path),
    help="Kubeconfig file.  [default: $KUBECONFIG, ~/.kube/config, or the service account of the pod this runs in]",
)
@click.option("--context", help="The kubeconfig's context.  [default: its current one]")
def migrate(
    *,
    names: tuple[str, ...],
    to: str,
    namespace: str,
    all_namespaces: bool,
    kubeconfig: Path | None,
    context: str | None,
) -> None:
    """Print how HPAs move to the other API, as YAML with the steps to take. Nothing is changed.

    Without NAME all HPAs of the namespace are meant. An HPA that cannot be moved is told of and left out, and the exit
    status is then 1.
    """
    if names and all_namespaces:
        raise click.UsageError("give names, or --all-namespaces, not both")
    target = _APIS[to]
    source = KUBERNETES if target is MILLISCALE else MILLISCALE
    where = "" if all_namespaces else namespace

    async def read() -> _Found:
        chosen = kubeconfig or default_kubeconfig()
        async with await KubeClient.connect(chosen, context=context, user_agent="milliscale-migrate") as client:
            old = await _list(client, source, where)
            if old is None:
                raise click.ClickException(f"this cluster does not serve {source.api_version}")
            taken = await _list(client, target, where)
            return _Found(old=old, taken=None if taken is None else frozenset(map(_key, taken)))

    try:
        found = run(read())
    except (KubeConfigError, KubeError, StatusError) as error:
        raise click.ClickException(str(error)) from error
    if found.taken is None:
        click.echo(f"Note: this cluster does not serve {target.api_version} yet; apply manifests/crds first.", err=True)
    problems = [
        f"{namespace}/{name}: there is no such HPA in {source.api_version}" for name in _missing(names, found.old)
    ]
    chosen = [each for each in found.old if not names or each["metadata"]["name"] in names]
    moving = []
    for hpa in chosen:
        problem = _problem(hpa, target, found.taken or frozenset())
        if problem is None:
            moving.append(move(hpa, target))
        else:
            problems.append("/".join(_key(hpa)) + f": {problem}")
    if moving:
        click.echo(render(moving, target), nl=False)
    elif not problems:
        click.echo(f"Note: there is no HPA in {source.api_version} to move.", err=True)
    for problem in problems:
        click.echo(f"Error: {problem}", err=True)
    if problems:
        raise SystemExit(1)


async def _list(client: KubeClient, api: HPAApi, namespace: str) -> list[dict[str, Any]] | None:
    """The HPAs of an API; None where it is not served."""
    try:
        answer = await client.get(api.path(namespace) if namespace else api.collection)
    except StatusError as error:
        if error.code == _NOT_FOUND:
            return None
        raise
    return [{**item, "apiVersion": api.api_version} for item in answer.get("items") or ()]


def _key(hpa: dict[str, Any]) -> tuple[str, str]:
    return hpa["metadata"]["namespace"], hpa["metadata"]["name"]


def _missing(names: Sequence[str], hpas: Sequence[dict[str, Any]]) -> list[str]:
    return sorted(set(names) - {each["metadata"]["name"] for each in hpas})


def _problem(hpa: dict[str, Any], target: HPAApi, taken: frozenset[tuple[str, str]]) -> str | None:
    """Why an HPA cannot be moved."""
    if _key(hpa) in taken:
        return f"{target.api_version} has an HPA of this name already"
    if is_scaled_to_zero(hpa):
        return (
            "its target is scaled to zero, and only the HPA that did so wakes it again; wait until it is awake, "
            "or set minReplicas to 1 for as long as it moves"
        )
    try:
        errors = validate_hpa(default_hpa(hpa), scale_to_zero=True)
    except ParseError as error:
        errors = [str(error)]
    return "; ".join(errors) if errors else None
