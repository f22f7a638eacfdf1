"""Read KEDA's objects from manifests: as people write them, and as kubectl prints them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import yaml

_GROUP = "keda.sh/"
_KEDA_1 = "keda.k8s.io/"
_AUTHENTICATIONS = ("TriggerAuthentication", "ClusterTriggerAuthentication")
_SHOWN = 5
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
Object = Mapping[str, Any]


class ManifestError(ValueError):
    """The text is no manifest, or has no ScaledObject. The message is one line."""


class _Struct(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A part of an object; unknown keys are ignored."""


class Metadata(_Struct, frozen=True, kw_only=True):
    """An object's metadata."""

    name: str
    namespace: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class Reference(_Struct, frozen=True, kw_only=True):
    """A reference to a TriggerAuthentication, by name and kind."""

    name: str
    kind: str = "TriggerAuthentication"


class Trigger(_Struct, frozen=True, kw_only=True):
    """A trigger. The values of `metadata` are texts in KEDA; numbers without quotes are read, too."""

    type: str
    name: str = ""
    metadata: dict[str, str | int | float | bool] = {}
    metric_type: str = ""
    authentication_ref: Reference | None = None


class Target(_Struct, frozen=True, kw_only=True):
    """The workload."""

    name: str
    api_version: str = ""
    kind: str = ""


class Fallback(_Struct, frozen=True, kw_only=True):
    """What happens when metrics are not available."""

    failure_threshold: int
    replicas: int
    behavior: str = "static"


class HPAConfig(_Struct, frozen=True, kw_only=True):
    """Fields of the HPA that KEDA makes."""

    name: str = ""
    behavior: dict[str, dict[str, Any]] = {}


class Advanced(_Struct, frozen=True, kw_only=True):
    """Further options."""

    restore_to_original_replica_count: bool = False
    horizontal_pod_autoscaler_config: HPAConfig = HPAConfig()
    scaling_modifiers: dict[str, Any] = {}


class Spec(_Struct, frozen=True, kw_only=True):
    """The spec of a ScaledObject, with KEDA's defaults. Upstream: ScaledObjectSpec."""

    scale_target_ref: Target
    triggers: tuple[Trigger, ...]
    min_replica_count: int = 0
    max_replica_count: int = 100
    idle_replica_count: int | None = None
    cooldown_period: int = 300
    initial_cooldown_period: int = 0
    fallback: Fallback | None = None
    advanced: Advanced = Advanced()


class ScaledObject(_Struct, frozen=True, kw_only=True):
    """A ScaledObject."""

    metadata: Metadata
    spec: Spec


@dataclass(frozen=True, slots=True)
class KedaManifests:
    """What is in some manifests."""

    scaled: Sequence[ScaledObject]
    """The ScaledObjects."""
    unreadable: Sequence[tuple[str, str]]
    """The names of objects that cannot be moved, each with the reason: ScaledJobs, objects of KEDA 1, and invalid
    ones."""
    authentications: Mapping[tuple[str, str, str], Object]
    """The specs of TriggerAuthentications and ClusterTriggerAuthentications, by kind, namespace and name."""


def read_manifests(text: str, *, source: str) -> KedaManifests:
    """Read the objects of KEDA in a text of YAML or JSON; others are left out. `source` names it in messages.

    Raises:
        ManifestError: it is no YAML, or there is no object of KEDA in it.
    """
    try:
        documents = list(yaml.load_all(text, Loader=_Loader))
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise ManifestError(f"{source}: {_problem(error, text)}") from error
    objects = [each for document in documents for each in _objects(document)]
    scaled: list[ScaledObject] = []
    unreadable: list[tuple[str, str]] = []
    authentications = {}
    for each in objects:
        api_version, kind = str(each.get("apiVersion", "")), each.get("kind")
        if kind == "ScaledJob" and api_version.startswith(_GROUP):
            unreadable.append((named(each), "an HPA scales no Jobs; keep KEDA for it"))
        elif kind == "ScaledObject" and api_version.startswith(_KEDA_1):
            unreadable.append((named(each), f"it is of KEDA 1 ({api_version}); write it for {_GROUP}v1alpha1 first"))
        elif kind == "ScaledObject" and api_version.startswith(_GROUP):
            try:
                found = msgspec.convert(_without_nulls(each), ScaledObject, strict=False)
            except msgspec.ValidationError as error:
                unreadable.append((named(each), f"it is invalid: {error}".replace(" - at `$.", " (")[:-1] + ")"))
                continue
            given = (found.metadata.name, found.metadata.namespace or "default", found.spec.scale_target_ref.name)
            wrong = [name for name in given if not _NAME.fullmatch(name)]
            if wrong:
                why = f"{wrong[0]!r} is no name of an object; render the template first"
                unreadable.append((named(each), why))
            else:
                scaled.append(found)
        elif kind in _AUTHENTICATIONS and isinstance(each.get("spec"), dict):
            metadata = each.get("metadata")
            names = metadata if isinstance(metadata, dict) else {}
            namespace = str(names.get("namespace") or "") if kind == _AUTHENTICATIONS[0] else ""
            authentications[str(kind), namespace, str(names.get("name"))] = each["spec"]
    if not scaled and not unreadable:
        others = ", ".join(named(each) for each in objects[:_SHOWN]) or "no objects"
        raise ManifestError(f"{source}: there are no ScaledObjects in it, but {others}")
    return KedaManifests(scaled, unreadable, authentications)


def named(obj: Object) -> str:
    """Return an object's kind, namespace and name."""
    metadata = obj.get("metadata")
    names = [str(metadata.get(key) or "") for key in ("namespace", "name")] if isinstance(metadata, dict) else []
    return f"{obj.get('kind', 'an object without a kind')} {'/'.join(filter(None, names))}".rstrip()


def _objects(document: object) -> Iterator[Object]:
    """Yield the objects of a document; those in a List, too."""
    if not isinstance(document, dict):
        return
    items = document.get("items")
    if isinstance(items, list) and str(document.get("kind", "List")).endswith("List"):
        for item in items:
            yield from _objects(item)
    else:
        yield document


def _without_nulls(tree: Any) -> Any:
    """Return a tree without keys whose value is null, which are as if they were not there."""
    if isinstance(tree, dict):
        return {key: _without_nulls(value) for key, value in tree.items() if value is not None}
    return [_without_nulls(each) for each in tree] if isinstance(tree, list) else tree


def _problem(error: Exception, text: str) -> str:
    if "{{" in text:
        return "this is a template; render it first, for example with `helm template`"
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        mark = error.problem_mark
        return f"line {mark.line + 1}, column {mark.column + 1}: {error.problem}"
    return f"this is not YAML: {' '.join(str(error).split())}"
