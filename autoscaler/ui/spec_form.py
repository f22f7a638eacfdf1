"""The form in which the spec of an HPA is changed for a what-if.

Its fields are the bounds, the targets of the metrics, the stabilization window of scale down, and the assumptions of
the replay; the rest of `behavior` is YAML. The changed spec is checked as an API server would; each error is beside its
field.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

import msgspec

from autoscaler.core.config import Config
from autoscaler.core.model import HPA, KIND, InvalidMetric
from autoscaler.objects.hpa import default_hpa, parse_hpa
from autoscaler.objects.validation import validate_hpa
from autoscaler.records.build import metric_record, target_field
from autoscaler.records.sentence import metric_name
from autoscaler.ui.spec_fields import (
    TARGETS,
    metric_unit,
    parse_behavior,
    parse_capacity,
    parse_integer,
    parse_seconds,
    parse_startup,
    to_yaml,
    unknown_fields,
)
from kube.api.objects import ParseError
from kube.security.request_info import Query
from kube.values.durations import format_duration

_WINDOW: Final = "stabilizationWindowSeconds"
_KEPT_METADATA: Final = ("name", "namespace", "labels", "annotations")
_SHOWN_PARAMETERS: Final = 5
_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One control of the form."""

    name: str
    """The name of the parameter in the URL."""
    label: str
    """What the field is."""
    value: str
    """Its text."""
    paths: Sequence[str] = ()
    """The fields of the spec whose errors are shown here."""
    hint: str = ""
    """A sentence about it."""
    placeholder: str = ""
    """What counts if it is empty."""
    lines: int = 0
    """The lines of a text of several lines; 0: one line."""
    errors: Sequence[str] = ()
    """Why the value is not valid."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """Fields under a heading."""

    title: str
    fields: Sequence[Field]


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecForm:
    """The form with its values."""

    sections: Sequence[Section]
    """The fields."""
    errors: Sequence[str]
    """Those of no field."""
    changed: HPA | None
    """The HPA with the changed spec; None if there is an error."""
    document: Mapping[str, Any]
    """Its object, as one would apply it."""
    pod_startup: float | None
    """How long a new pod takes to become ready, in seconds; None: as the kept decisions show."""
    capacity: Mapping[int, float]
    """{index of a metric: what one ready pod can serve}, where given."""


def read_form(hpa: HPA, query: Query, config: Config) -> SpecForm:
    """Return the form with the parameters of a URL; without a parameter, a field has the present value.

    Args:
        hpa: an HPA whose spec is valid.
        query: the parameters.
        config: the controller's flags.
    """
    return _Reader(hpa, query, config).read()


class _Reader:
    def __init__(self, hpa: HPA, query: Query, config: Config) -> None:
        self._hpa = hpa
        self._query = query
        self._config = config
        self._effective = hpa.overrides.apply_to(config)
        self._document = hpa_document(hpa)
        self._errors: dict[str, list[str]] = {}  # {name of a field: its errors}
        self._pod_startup: float | None = None
        self._capacity: dict[int, float] = {}

    def read(self) -> SpecForm:
        """Return the form."""
        sections = [
            Section(title="Replicas and targets", fields=[*self._bounds(), *self._metrics()]),
            Section(title="Behavior", fields=list(self._behavior())),
            Section(title="Assumptions about the pods", fields=list(self._assumptions())),
        ]
        changed = None
        try:
            found = validate_hpa(default_hpa(self._document), scale_to_zero=self._config.scale_to_zero)
            if not found and not self._errors:
                changed = replace_spec(self._hpa, self._document)
                found = [f"spec.behavior.{path}: unknown field" for path in self._unknown_fields(changed)]
        except ParseError as error:
            found = [str(error)]
        fields = [each for section in sections for each in section.fields]
        errors = [*self._unknown_parameters(fields), *self._of_no_field(found, fields)]
        sections = [
            replace(section, fields=[replace(each, errors=self._errors.get(each.name, ())) for each in section.fields])
            for section in sections
        ]
        return SpecForm(
            sections=sections,
            errors=errors,
            changed=None if errors or self._errors else changed,
            document=self._document,
            pod_startup=self._pod_startup,
            capacity=self._capacity,
        )

    def _of_no_field(self, found: Iterable[str], fields: Sequence[Field]) -> list[str]:
        """Note each error at the field with the longest path that it begins with; return the others."""
        # A field whose text cannot be parsed is missing in the document: that is no error of its own.
        missing = tuple([path for each in fields if each.name in self._errors for path in each.paths])
        paths = {path: each.name for each in fields for path in each.paths}
        others = []
        for error in dict.fromkeys(found):
            owner = max((path for path in paths if error.startswith(path)), key=len, default=None)
            if owner is None:
                others.append(error)
            elif not error.startswith(missing):
                self._errors.setdefault(paths[owner], []).append(error)
        return others

    def _unknown_parameters(self, fields: Sequence[Field]) -> Iterator[str]:
        """Yield an error if the URL has parameters of an earlier form or of an earlier spec."""
        unknown = {name for name, _ in self._query.pairs} - {"group", *(each.name for each in fields)}
        if unknown:
            names = ", ".join(sorted(unknown)[:_SHOWN_PARAMETERS])
            yield f"the address has parameters that this form does not have: {names}; open the form again"

    def _unknown_fields(self, changed: HPA) -> Iterator[str]:
        """Yield the paths in the behavior that are none of its fields: the API server would ignore them."""
        read = msgspec.json.decode(msgspec.json.encode(changed.spec.behavior, enc_hook=str))
        return unknown_fields(self._document["spec"].get("behavior", {}), read or {})

    def _text(self, name: str, present: object) -> str:
        """Return the text of a field; without such a parameter, the present value."""
        if name in self._query:
            return self._query.get(name).strip()
        return "" if present is None else str(present)

    def _parsed(self, name: str, text: str, parse: Callable[[str], _T]) -> _T | None:
        """Return the value of a field; None if it is empty, or if it cannot be parsed, which is noted."""
        try:
            return parse(text) if text else None
        except ValueError as error:
            self._errors[name] = [str(error)]
            return None

    def _set(self, parent: dict[str, Any], key: str, text: str, name: str, parse: Callable[[str], Any]) -> None:
        """Set a field of the spec; without a text, or with one that cannot be parsed, remove it."""
        value = self._parsed(name, text, parse)
        if value is None:
            parent.pop(key, None)
        else:
            parent[key] = value

    # --- the sections

    def _bounds(self) -> Iterator[Field]:
        spec = self._hpa.spec
        for key, present, paths, placeholder in (
            ("minReplicas", spec.min_replicas, ["spec.minReplicas", "spec.metrics: Forbidden"], "1"),
            ("maxReplicas", spec.max_replicas, ["spec.maxReplicas"], ""),
        ):
            text = self._text(key, present)
            self._set(self._document["spec"], key, text, key, parse_integer)
            yield Field(name=key, label=key, value=text, paths=paths, placeholder=placeholder)

    def _metrics(self) -> Iterator[Field]:
        for index, spec in enumerate(self._hpa.spec.metrics):
            if not isinstance(spec.source, InvalidMetric):
                name, field = f"target.{index}", target_field(spec)
                target = TARGETS[field]
                text = self._text(name, getattr(spec.target, field))
                source = self._document["spec"]["metrics"][index][spec.type[:1].lower() + spec.type[1:]]
                self._set(source["target"], target.field, text, name, target.parse)
                label = f"Target of {metric_name(metric_record(spec))}, {target.what}"
                yield Field(name=name, label=label, value=text, paths=[f"spec.metrics[{index}]"])

    def _behavior(self) -> Iterator[Field]:
        present = self._document["spec"].pop("behavior", None) or {}
        window = self._text("down.window", present.get("scaleDown", {}).pop(_WINDOW, None))
        text = self._text("behavior", to_yaml(present) if present else None)
        behavior = self._parsed("behavior", text, parse_behavior) or {}
        if behavior.get("scaleDown") is None:
            behavior.pop("scaleDown", None)
        if window and isinstance(rules := behavior.setdefault("scaleDown", {}), dict):
            if rules.get(_WINDOW) is not None:
                self._errors["behavior"] = [f"{_WINDOW} of scaleDown has a field of its own: write it there only"]
            self._set(rules, _WINDOW, window, "down.window", parse_seconds)
        if behavior:
            self._document["spec"]["behavior"] = behavior
        yield Field(
            name="down.window",
            label="Stabilization window of scale down, seconds or such as 5m",
            value=window,
            paths=[f"spec.behavior.scaleDown.{_WINDOW}"],
            placeholder=format_duration(self._effective.downscale_stabilization_ms / 1000),
        )
        yield Field(
            name="behavior",
            label="The rest of behavior, as YAML",
            value=text,
            paths=["spec.behavior"],
            hint=f"Such as scaleUp: {{tolerance: {self._effective.tolerance:g}}}. Empty: Kubernetes' defaults.",
            lines=12,
        )

    def _assumptions(self) -> Iterator[Field]:
        startup = self._text("startup", None)
        self._pod_startup = self._parsed("startup", startup, parse_startup)
        label = "Time until a new pod is ready, such as 30s"
        yield Field(name="startup", label=label, value=startup, placeholder="as the kept decisions show")
        for index, spec in enumerate(self._hpa.spec.metrics):
            if not isinstance(spec.source, InvalidMetric):
                name, unit = f"capacity.{index}", metric_unit(spec)
                text = self._text(name, None)
                if (value := self._parsed(name, text, parse_capacity)) is not None:
                    self._capacity[index] = value
                label = f"What one ready pod can serve of {metric_name(metric_record(spec))}"
                label += f", {unit}" if unit else ""
                yield Field(name=name, label=label, value=text, placeholder="unknown, and so is overload")


# --- the spec ------------------------------------------------------------------------------------------------------


def hpa_document(hpa: HPA) -> dict[str, Any]:
    """Return an HPA's object as one would apply it."""
    served = msgspec.json.decode(hpa.metadata)
    metadata = {name: served[name] for name in _KEPT_METADATA if served.get(name)}
    metadata = {"name": hpa.name, "namespace": hpa.namespace, **metadata}
    annotations = {name: text for name, text in metadata.pop("annotations", {}).items() if name != _LAST_APPLIED}
    if annotations:
        metadata["annotations"] = annotations
    return {
        "apiVersion": hpa.api_version,
        "kind": KIND,
        "metadata": metadata,
        "spec": msgspec.json.decode(msgspec.json.encode(hpa.spec, enc_hook=str)),
    }


def replace_spec(hpa: HPA, document: Mapping[str, Any]) -> HPA:
    """Return the HPA with the spec of another object. Raises ParseError."""
    return msgspec.structs.replace(hpa, spec=parse_hpa(document).spec)
