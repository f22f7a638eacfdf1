"""HPAs from YAML or JSON files, checked as an API server would.

A file may have several documents, or a List. HPAs are those of autoscaling/v1, autoscaling/v2 and milliscale.io/v1. The
resource requests are read from a Deployment or StatefulSet in the same file. Other objects are ignored.
"""

from __future__ import annotations

import contextlib
import difflib
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import UnionType
from typing import Any, Final, Union, get_args, get_origin

import msgspec
import yaml

from autoscaler.core.model import (
    HPA,
    KIND,
    KUBERNETES,
    MILLISCALE,
    MetricSource,
    ObjectMetric,
    Spec,
)
from autoscaler.core.observation import MetricError
from autoscaler.core.pods import calculate_pod_requests
from autoscaler.objects.hpa import default_hpa, parse_hpa
from autoscaler.objects.validation import validate_hpa
from autoscaler.objects.workloads import parse_pod
from kube.api.objects import ParseError
from replay.load import ReplayError, metric_key, metric_name

_V1: Final = "autoscaling/v1"
_READ: Final = (KUBERNETES.api_version, _V1, MILLISCALE.api_version)
_WORKLOADS: Final = ("Deployment", "StatefulSet")
_V1_ANNOTATIONS: Final = ("autoscaling.alpha.kubernetes.io/metrics", "autoscaling.alpha.kubernetes.io/behavior")
_V1_CPU: Final = "targetCPUUtilizationPercentage"
_MAX_BYTES: Final = 4 * 2**20
_MAX_DEPTH: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class HPAFile:
    """An HPA and where it comes from."""

    hpa: HPA
    path: str
    document: Mapping[str, Any]
    """The HPA as written, with or without namespace; converted to autoscaling/v2 from v1, without status."""
    requests: Mapping[str, int] | None
    """{resource or CONTAINER/resource: what a pod requests, in milli-values}; None: the file has no scale target."""


def read_hpa_file(path: Path, *, scale_to_zero: bool = True) -> list[HPAFile]:
    """Return the HPAs of a file, at least one.

    Raises:
        ReplayError: the file cannot be read, has no HPA, or one that is not valid.
    """
    documents = list(_documents(path))
    hpas = [each for each in documents if each.get("kind") == KIND]
    if not hpas:
        kinds = ", ".join(sorted({str(each.get("kind") or "object without a kind") for each in documents}))
        raise ReplayError(f"{path}: there is no HorizontalPodAutoscaler in it, only: {kinds or 'nothing'}")
    return [parse_hpa_document(each, str(path), documents, scale_to_zero=scale_to_zero) for each in hpas]


def parse_hpa_document(
    document: Mapping[str, Any], path: str, others: Iterable[Mapping[str, Any]] = (), *, scale_to_zero: bool = True
) -> HPAFile:
    """Check and parse an HPA's object. The scale target, if it is among `others`, has the resource requests.

    Raises:
        ReplayError: the HPA is not valid; the message names `path` and the field.
    """
    where = _where(document, path)
    converted = _as_v2(document, where)
    _check_fields(converted.get("spec"), Spec, f"{where}: spec")
    try:
        errors = validate_hpa(default_hpa(converted), scale_to_zero=scale_to_zero)
        if errors:
            # A missing field explains the others' errors.
            raise ReplayError(f"{where}: {min(errors, key=lambda error: 'Required value' not in error)}")
        hpa = parse_hpa(converted)
        for metric in hpa.spec.metrics:
            metric_key(metric.source)
    except (ParseError, ReplayError) as error:
        text = str(error)
        raise ReplayError(text if text.startswith(where) else f"{where}: {text}") from None
    written = {**converted, "metadata": document["metadata"]}
    return HPAFile(hpa=hpa, path=path, document=written, requests=_requests(hpa, others, path))


def check_together(files: Sequence[HPAFile]) -> None:
    """Check that HPAs can be replayed on one load.

    Raises:
        ReplayError: they have several scale targets, or metrics of several kinds with the same name.
    """
    targets = {file.hpa.target for file in files}
    if len(targets) != 1:
        raise ReplayError(
            f"the HPAs have the targets {' and '.join(sorted(targets))}; replay HPAs of the same target together"
        )
    found: dict[str, tuple[HPAFile, MetricSource]] = {}
    for file in files:
        for spec in file.hpa.spec.metrics:
            key = metric_key(spec.source)
            first, source = found.setdefault(key, (file, spec.source))
            if _kind(source) != _kind(spec.source):
                raise ReplayError(
                    f"{_kind(source)} metric {key} of {first.hpa.key} and {_kind(spec.source)} metric {key} of "
                    f"{file.hpa.key} have the same name, so one load cannot have both: rename one"
                )


def check_requests(files: Sequence[HPAFile], requests: Mapping[str, int]) -> None:
    """Check that what a pod requests is known where a target is a part of it.

    Raises:
        ReplayError: it is not; the message names the HPA and its workload.
    """
    for file in files:
        for spec in file.hpa.spec.metrics:
            name = metric_name(spec.source)
            if spec.target.average_utilization is None or name in requests:
                continue
            target = file.hpa.spec.scale_target_ref
            stated = f"{target.kind} {target.name} in {file.path} states none"
            why = "no workload is given" if file.requests is None else stated
            raise ReplayError(
                f"{file.hpa.key}: what a pod requests of {name} is not known, {why}: give --request {name}=..., or the "
                f"{target.kind} with its requests beside the HPA in its file"
            )


def _kind(source: MetricSource) -> str:
    """Return what tells metrics of the same name apart: `Pods`, or `Object (networking.k8s.io/v1)`."""
    described = f" ({source.described_object.api_version})" if isinstance(source, ObjectMetric) else ""
    return f"{type(source).__name__.removesuffix('Metric')}{described}"


# --- files ---------------------------------------------------------------------------------------------------------


def _documents(path: Path) -> Iterator[Mapping[str, Any]]:
    """Yield the objects of a file, those of Lists one by one."""
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise ReplayError(f"{path}: this is no HPA: it has more than {_MAX_BYTES >> 20} MiB")
        text = path.read_text("utf-8")
        depth = 0
        for event in yaml.parse(text, yaml.CSafeLoader):  # loading deep texts ends the stack
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > _MAX_DEPTH:
                line = event.start_mark.line + 1 if event.start_mark else "?"
                why = f"line {line} is nested more than {_MAX_DEPTH} deep; remove it"
                raise ReplayError(f"{path}: this is no HPA: {why}")
        documents = list(yaml.load_all(text, yaml.CSafeLoader))
    except OSError as error:
        raise ReplayError(f"{path}: {error.strerror or error}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ReplayError(f"{path}: this is not YAML: {' '.join(str(error).split())}") from error
    for document in documents:
        if document is None:
            continue
        if not isinstance(document, dict):
            raise ReplayError(f"{path}: a Kubernetes object is a mapping, and this is {_shown(document)}")
        kind = str(document.get("kind", ""))
        items = document.get("items")
        if kind.endswith("List") and isinstance(items, list):
            group = {"apiVersion": document.get("apiVersion"), "kind": kind.removesuffix("List")}
            yield from ({**(group if kind != "List" else {}), **item} for item in items if isinstance(item, dict))
        else:
            yield document


def _where(document: Mapping[str, Any], path: str) -> str:
    name = _mapping(document.get("metadata")).get("name")
    return f"{path}: {name}" if name else path


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:40]}..."


# --- HPAs ----------------------------------------------------------------------------------------------------------


def _as_v2(document: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the object as autoscaling/v2 or milliscale.io/v1, in a namespace and without its status."""
    version = document.get("apiVersion")
    if version not in _READ:
        raise ReplayError(f"{where}: apiVersion: {version} is not read: write autoscaling/v2")
    metadata, spec = document.get("metadata") or {}, document.get("spec") or {}
    if not isinstance(metadata, dict) or not isinstance(spec, dict):
        raise ReplayError(f"{where}: metadata and spec must be mappings")
    converted = {
        "apiVersion": KUBERNETES.api_version if version == _V1 else version,
        "kind": KIND,
        "metadata": {**metadata, "namespace": metadata.get("namespace") or "default"},
        "spec": spec,
    }
    if version != _V1:
        return converted
    annotations = metadata.get("annotations")
    for name in _V1_ANNOTATIONS:
        if isinstance(annotations, dict) and name in annotations:
            raise ReplayError(f"{where}: annotation {name} is not read: write the HPA as autoscaling/v2")
    for name in ("metrics", "behavior"):
        if name in spec:
            raise ReplayError(f"{where}: spec.{name}: {_V1} has no such field: write apiVersion: autoscaling/v2")
    spec = dict(spec)
    percent = spec.pop(_V1_CPU, None)
    if percent is not None:
        target = {"type": "Utilization", "averageUtilization": percent}
        spec["metrics"] = [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]
    return {**converted, "spec": spec}


def _check_fields(value: object, form: Any, path: str) -> None:
    """Check that an object has no field that Kubernetes does not know, which would be ignored.

    Raises:
        ReplayError: it has one.
    """
    for each in get_args(form) if get_origin(form) in (Union, UnionType) else (form,):
        if isinstance(value, list) and get_origin(each) in (list, tuple):
            for index, item in enumerate(value):
                _check_fields(item, get_args(each)[0], f"{path}[{index}]")
        elif isinstance(value, dict) and isinstance(each, type) and issubclass(each, msgspec.Struct):
            fields = {field.encode_name: field.type for field in msgspec.structs.fields(each)}
            for name, inner in value.items():
                if name not in fields:
                    similar = difflib.get_close_matches(str(name), fields, 1)
                    hint = f": did you mean {similar[0]}?" if similar else f"; there are: {', '.join(fields)}"
                    raise ReplayError(f"{path}.{name}: unknown field{hint}")
                _check_fields(inner, fields[name], f"{path}.{name}")


def _requests(hpa: HPA, documents: Iterable[Mapping[str, Any]], path: str) -> dict[str, int] | None:
    """Return what a pod of the HPA's target requests; None if the target is not among the objects."""
    target = hpa.spec.scale_target_ref
    for document in documents:
        kind = document.get("kind")
        name = _mapping(document.get("metadata")).get("name")
        if kind not in _WORKLOADS or (kind, name) != (target.kind, target.name):
            continue
        template = _mapping(_mapping(document.get("spec")).get("template"))
        try:
            pod = parse_pod({"metadata": {"name": target.name}, "spec": template.get("spec") or {}})
        except ParseError as error:
            raise ReplayError(f"{path}: {kind} {target.name}: spec.template: {error}") from None
        resources = {*(pod.requests or ()), *(resource for each in pod.containers for resource in each.requests)}
        names = {f"{each.name}/": each.name for each in pod.containers if not each.init}
        found: dict[str, int] = {}
        for resource, (prefix, container) in itertools.product(sorted(resources), [("", None), *names.items()]):
            with contextlib.suppress(MetricError):  # a missing request is an error only for a metric that needs it
                found[prefix + resource] = calculate_pod_requests(pod, resource, container)
        return found
    return None


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
