"""`migrate`: print how to move HPAs between autoscaling/v2 and milliscale.io/v1. It changes nothing in the cluster.

The spec is the same in both APIs. The order of the steps ensures that no two controllers act on one target at any time,
and that the new controller has a history before it scales down:

* While neither acts, the replica count stays the same: deleting an HPA, or setting it to dry-run, does not scale.
* To milliscale, the new HPA starts in dry-run (`milliscale.io/mode: dry-run`) beside the old one. Once it acts, it has
  a history of recommendations and scale events, including those of the old controller.
* To Kubernetes, the old HPA is set to dry-run before the new one exists. Kubernetes' controller then begins with the
  current replica count as its initial recommendation, which delays a scale-down by the usual window.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click
import yaml

from autoscaler.core.config import PREFIX, Mode
from autoscaler.core.model import HPA_APIS, KIND, KUBERNETES, MILLISCALE, HPAApi
from autoscaler.core.status import SCALED_TO_ZERO
from autoscaler.objects.hpa import default_hpa
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


_MODE: Final = f"{PREFIX}mode"
_KUBECTL_NAMES: Final = {KUBERNETES: "hpa", MILLISCALE: "mhpa"}
# Annotations of kubectl and older APIs, which are not copied to the new object.
_LEFT_BEHIND: Final = ("kubectl.kubernetes.io/last-applied-configuration", "autoscaling.alpha.kubernetes.io/")


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """The move of one HPA to the other API."""

    manifest: Mapping[str, Any]
    """The new object."""
    steps: Sequence[tuple[str, str]]
    """(command, explanation), in order."""
    warnings: Sequence[str]
    """About this HPA, for the user."""


def is_scaled_to_zero(raw: Mapping[str, Any]) -> bool:
    """Return True if the HPA has scaled its target to zero; a new HPA would not scale that target up."""
    conditions = (raw.get("status") or {}).get("conditions") or ()
    return any(each.get("type") == SCALED_TO_ZERO and each.get("status") == "True" for each in conditions)


def move(raw: Mapping[str, Any], to: HPAApi) -> Move:
    """Return the move of an HPA to the API `to`; `raw` is the object as served in the other API."""
    metadata = raw["metadata"]
    name = metadata["name"]
    annotations = {
        key: value for key, value in (metadata.get("annotations") or {}).items() if not key.startswith(_LEFT_BEHIND)
    }
    unknown = sorted(key for key in annotations if key.startswith(PREFIX) and key != _MODE)
    warnings = [_owner_warning(owner) for owner in metadata.get("ownerReferences") or ()]
    if raw["spec"].get("minReplicas") == 0:
        warnings.append(
            "it may scale its target to zero, and the new HPA would not scale it up again: set minReplicas to 1 in "
            "the old one first, and to 0 in the new one when it acts."
        )
    annotations.pop(_MODE, None)
    if to is MILLISCALE:
        annotations[_MODE] = Mode.DRY_RUN.value
    elif unknown:
        warnings.append(f"Kubernetes' own controller does not know {', '.join(unknown)}; they will have no effect.")
    kept = {"labels": metadata.get("labels"), "annotations": annotations}
    where = {"namespace": metadata["namespace"]} if metadata.get("namespace") else {}
    return Move(
        manifest={
            "apiVersion": to.api_version,
            "kind": KIND,
            "metadata": {"name": name, **where, **{key: value for key, value in kept.items() if value}},
            "spec": raw["spec"],
        },
        steps=_steps(to, metadata.get("namespace", ""), name),
        warnings=warnings,
    )


def render(moves: Iterable[Move], to: HPAApi) -> str:
    """Return the manifests as YAML, each with its steps as a comment."""
    documents = [f"# HPAs for {to.api_version}. Nothing has been changed yet. Run these steps in order.\n"]
    for each in moves:
        lines = [f"# {number}. {command}\n#      {why}" for number, (command, why) in enumerate(each.steps, 1)]
        lines += [f"# Note: {warning}" for warning in each.warnings]
        body = yaml.safe_dump(dict(each.manifest), sort_keys=False, allow_unicode=True, width=10_000)
        documents.append("\n".join([*lines, body]))
    return "---\n".join(documents)


def _steps(to: HPAApi, namespace: str, name: str) -> list[tuple[str, str]]:
    where = f"--namespace={namespace} {name}" if namespace else name
    old = _KUBECTL_NAMES[KUBERNETES if to is MILLISCALE else MILLISCALE]
    create = "kubectl apply --filename=FILE"
    delete = f"kubectl delete {old} {where}"
    if to is MILLISCALE:
        explain = f"python -m autoscaler explain {shlex.quote(f'{namespace}/{name}')} --api=milliscale"
        return [
            (create, f"The new HPA records its decisions and their history, and scales nothing ({_MODE}: dry-run)."),
            (
                explain,
                "It should desire as many replicas as the old one. Wait for the old one's stabilization window: 5 min.",
            ),
            (delete, "From here on no controller scales; the replicas stay as they are."),
            (f"kubectl annotate mhpa {where} {_MODE}-", "The new HPA acts, with its history."),
        ]
    return [
        (f"kubectl annotate mhpa {where} {_MODE}=dry-run --overwrite", "From here on no controller scales."),
        (create, "The new HPA acts, and begins with the current number of replicas as its first recommendation."),
        (delete, "The old one is no longer needed."),
    ]


def _owner_warning(owner: Mapping[str, Any]) -> str:
    what = f"{owner.get('kind')} {owner.get('name')}"
    return f"{what} owns it and may create it again after it is deleted; change that first."
