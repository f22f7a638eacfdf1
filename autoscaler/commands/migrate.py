"""`migrate`: print how to move HPAs between autoscaling/v2 and milliscale.io/v1. It changes nothing in the cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import click

from autoscaler.core.model import HPA_APIS, KUBERNETES, MILLISCALE, HPAApi
from autoscaler.objects.hpa import default_hpa
from autoscaler.objects.migration import is_scaled_to_zero, move, render
from autoscaler.objects.validation import validate_hpa
from kube.api.client import KubeClient, KubeConfigError, KubeError
from kube.api.config import default_kubeconfig
from kube.api.objects import ParseError
from kube.api.status import StatusError
from kube.process.flags import kubeconfig_options
from kube.process.runtime import run

_APIS: Final = {api.name: api for api in HPA_APIS}
_NOT_FOUND: Final = 404


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--to", type=click.Choice(list(_APIS)), required=True, help="API to move the HPAs to.")
@click.option("-n", "--namespace", default="default", help="Namespace of the HPAs.")
@click.option("-A", "--all-namespaces", is_flag=True, show_default=False, help="Move the HPAs of all namespaces.")
@kubeconfig_options
def migrate(
    *,
    names: tuple[str, ...],
    to: str,
    namespace: str,
    all_namespaces: bool,
    kubeconfig: Path | None,
    context: str | None,
) -> None:
    """Print how to move HPAs to another API: YAML, with the steps as comments. Nothing is changed.

    Without NAME, all HPAs of the namespace are moved. For each HPA that cannot be moved there is an error on stderr,
    and the exit status is 1.
    """
    if names and all_namespaces:
        raise click.UsageError("give names, or --all-namespaces, not both")
    target = _APIS[to]
    source = KUBERNETES if target is MILLISCALE else MILLISCALE

    async def read() -> tuple[list[dict[str, Any]] | None, list[dict[str, Any]] | None]:
        path = kubeconfig or default_kubeconfig()
        async with await KubeClient.connect(path, context=context, user_agent="milliscale-migrate") as client:
            where = "" if all_namespaces else namespace
            try:
                return await _list(client, source, where), await _list(client, target, where)
            except (KubeError, StatusError) as error:
                raise click.ClickException(client.describe(error)) from error

    try:
        hpas, existing = run(read())
    except KubeConfigError as error:
        raise click.ClickException(str(error)) from error
    if hpas is None:
        raise click.ClickException(f"this cluster does not serve {source.api_version}")
    if existing is None:
        click.echo(f"Note: this cluster does not serve {target.api_version} yet; apply manifests/crds first.", err=True)
    absent = sorted(set(names) - {each["metadata"]["name"] for each in hpas})
    errors = [f"{namespace}/{name}: there is no such HPA in {source.api_version}" for name in absent]
    taken = frozenset(map(_key, existing or ()))
    moves = []
    for hpa in hpas:
        if names and hpa["metadata"]["name"] not in names:
            continue
        problem = _problem(hpa, target, taken)
        if problem is None:
            moves.append(move(hpa, target))
        else:
            errors.append("/".join(_key(hpa)) + f": {problem}")
    if moves:
        click.echo(render(moves, target), nl=False)
    elif not errors:
        click.echo(f"Note: there is no HPA in {source.api_version} to move.", err=True)
    for text in errors:
        click.echo(f"Error: {text}", err=True)
    if errors:
        raise SystemExit(1)


async def _list(client: KubeClient, api: HPAApi, namespace: str) -> list[dict[str, Any]] | None:
    """List the HPAs of an API; None if it is not served."""
    try:
        page = await client.get(api.path(namespace) if namespace else api.collection)
    except StatusError as error:
        if error.code == _NOT_FOUND:
            return None
        raise
    return [{**item, "apiVersion": api.api_version} for item in page.get("items") or ()]


def _key(hpa: dict[str, Any]) -> tuple[str, str]:
    return hpa["metadata"]["namespace"], hpa["metadata"]["name"]


def _problem(hpa: dict[str, Any], target: HPAApi, taken: frozenset[tuple[str, str]]) -> str | None:
    """Return why an HPA cannot be moved; None if it can."""
    if _key(hpa) in taken:
        return f"{target.api_version} has an HPA of this name already"
    if is_scaled_to_zero(hpa):
        return (
            "its target is scaled to zero, and only this HPA scales it up again; wait until then, or set minReplicas "
            "to 1 during the move"
        )
    try:
        errors = validate_hpa(default_hpa(hpa), scale_to_zero=True)
    except ParseError as error:
        errors = [str(error)]
    return "; ".join(errors) if errors else None
