"""Move an HPA from one API to the other: the new object, and the order of steps.

The spec is the same in both APIs. The order ensures that no two controllers act on one target at any time, and that the
new controller has a history before it scales down:

* While neither acts, the replica count stays the same: deleting an HPA, or setting it to dry-run, does not scale.
* To milliscale, the new HPA starts in dry-run (`milliscale.io/mode: dry-run`) beside the old one. Once it acts, it has
  a history of recommendations and scale events, including those of the old controller.
* To Kubernetes, the old HPA is set to dry-run before the new one exists. Kubernetes' controller then begins with the
  current replica count as its initial recommendation, which delays a scale-down by the usual window.

Nothing here reads from a cluster or writes to it.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import yaml

from autoscaler.core.annotations import PREFIX
from autoscaler.core.conditions import SCALED_TO_ZERO
from autoscaler.core.config import Mode
from autoscaler.core.model import KIND, KUBERNETES, MILLISCALE, HPAApi

_MODE: Final = f"{PREFIX}mode"
_KUBECTL_NAMES: Final = {KUBERNETES: "hpa", MILLISCALE: "mhpa"}
# Annotations of kubectl and older APIs, which are not copied to the new object.
_LEFT_BEHIND: Final = ("kubectl.kubernetes.io/last-applied-configuration", "autoscaling.alpha.kubernetes.io/")


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """The move of one HPA to the other API.

    Attributes:
        manifest: the new object.
        steps: (command, explanation), in order.
        warnings: about this HPA, for the user.
    """

    manifest: Mapping[str, Any]
    steps: Sequence[tuple[str, str]]
    warnings: Sequence[str]


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
