"""The form in which the spec of an HPA is changed for a what-if: bounds, targets, behavior, assumptions of the replay.

The changed spec is checked as an API server would; each error is shown beside its field.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

import msgspec

from autoscaler.core.config import Config
from autoscaler.core.model import HPA, KIND, ScalingRules
from autoscaler.objects.hpa import default_hpa, parse_hpa
from autoscaler.objects.validation import validate_hpa
from autoscaler.ui.spec_fields import (
    describe,
    metric_unit,
    parse_capacity,
    parse_integer,
    parse_policies,
    parse_quantity,
    parse_startup,
    policies_text,
    target_of,
)
from kube.api.objects import ParseError
from kube.security.request_info import Query
from kube.values.durations import format_duration

POD_STARTUP: Final = 30.0
"""The default, in seconds, as that of `replay`."""
_SELECT_POLICIES: Final = ("Max", "Min", "Disabled")
_KEPT_METADATA: Final = ("name", "namespace", "labels", "annotations")
_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One control of the form.

    Attributes:
        name: of the parameter in the URL.
        label: what the field is.
        value: its text.
        paths: the fields of the spec whose errors are shown here.
        hint: a sentence about it.
        placeholder: what counts if it is empty.
        options: of a choice; empty: a text.
        lines: of a text of several lines; 0: one line.
        errors: why the value is not valid.
    """

    name: str
    label: str
    value: str
    paths: Sequence[str] = ()
    hint: str = ""
    placeholder: str = ""
    options: Sequence[str] = ()
    lines: int = 0
    errors: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """Fields under a heading."""

    title: str
    fields: Sequence[Field]


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecForm:
    """The form with its values.

    Attributes:
        sections: the fields.
        errors: those of no field.
        changed: the HPA with the changed spec; None if there is an error.
        document: its object, as one would apply it.
        pod_startup: how long a new pod takes to become ready, in seconds.
        capacity: {index of a metric: what one ready pod can serve}, where given.
    """

    sections: Sequence[Section]
    errors: Sequence[str]
    changed: HPA | None
    document: Mapping[str, Any]
    pod_startup: float
    capacity: Mapping[int, float]


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
        self._errors: dict[str, str] = {}  # {name of a field: its error}

    def read(self) -> SpecForm:
        """Return the form."""
        sections = [
            Section(title="Replicas and targets", fields=[*self._bounds(), *self._metrics()]),
            *self._behavior(),
            Section(title="Assumptions about the pods", fields=list(self._assumptions())),
        ]
        pod_startup = self._parsed("startup", parse_startup, POD_STARTUP)
        capacity = {
            index: value
            for index in range(len(self._hpa.spec.metrics))
            if (value := self._parsed(f"capacity.{index}", parse_capacity, 0.0))
        }
        changed = None
        try:
            found = validate_hpa(default_hpa(self._document), scale_to_zero=self._config.scale_to_zero)
            if not found and not self._errors:
                changed = replace_spec(self._hpa, self._document)
        except ParseError as error:
            found = [str(error)]
        # A field whose text cannot be parsed is missing in the document: that is no error of its own.
        every = [each for section in sections for each in section.fields]
        missing = tuple([path for each in every if each.name in self._errors for path in each.paths])
        found = [error for error in dict.fromkeys(found) if not error.startswith(missing)]
        sections = [
            replace(section, fields=[self._with_errors(each, found) for each in section.fields]) for section in sections
        ]
        shown = {error for section in sections for each in section.fields for error in each.errors}
        return SpecForm(
            sections=sections,
            errors=[error for error in found if error not in shown],
            changed=changed,
            document=self._document,
            pod_startup=pod_startup,
            capacity=capacity,
        )

    def _with_errors(self, given: Field, found: Sequence[str]) -> Field:
        own = [self._errors[given.name]] if given.name in self._errors else []
        own += [error for error in found if error.startswith(tuple(given.paths))]
        return replace(given, errors=own) if own else given

    def _text(self, name: str, present: object) -> str:
        """Return the text of a field; without such a parameter, the present value."""
        if name in self._query:
            return self._query.get(name).strip()
        return "" if present is None else str(present)

    def _parsed(self, name: str, parse: Callable[[str], _T], empty: _T) -> _T:
        """Return the value of a field, or note its error."""
        text = self._query.get(name).strip()
        try:
            return parse(text) if text else empty
        except ValueError as error:
            self._errors[name] = str(error)
            return empty

    def _set(self, parent: dict[str, Any], key: str, text: str, name: str, parse: Callable[[str], Any]) -> None:
        """Set a field of the spec; without a text, or with one that cannot be parsed, remove it."""
        try:
            if text:
                parent[key] = parse(text)
                return
        except ValueError as error:
            self._errors[name] = str(error)
        parent.pop(key, None)

    # --- the sections

    def _bounds(self) -> list[Field]:
        spec = self._document["spec"]
        fields = []
        for key, present in (
            ("minReplicas", self._hpa.spec.min_replicas),
            ("maxReplicas", self._hpa.spec.max_replicas),
        ):
            text = self._text(key, present)
            self._set(spec, key, text, key, parse_integer)
            if key == "minReplicas":
                paths, placeholder = ["spec.minReplicas", "spec.metrics: Forbidden"], "1"
            else:
                paths, placeholder = ["spec.maxReplicas"], ""
            fields.append(Field(name=key, label=key, value=text, paths=paths, placeholder=placeholder))
        return fields

    def _metrics(self) -> list[Field]:
        fields = []
        for index, spec in enumerate(self._hpa.spec.metrics):
            target = target_of(spec)
            if target is None:
                continue
            name, path = f"target.{index}", f"spec.metrics[{index}]"
            text = self._text(name, target.present)
            source = self._document["spec"]["metrics"][index][spec.type[:1].lower() + spec.type[1:]]
            self._set(source["target"], target.field, text, name, target.parse)
            fields.append(
                Field(name=name, label=f"Target of {describe(spec)}, {target.what}", value=text, paths=[path])
            )
        return fields

    def _behavior(self) -> Iterator[Section]:
        behavior = self._hpa.spec.behavior
        window = format_duration(self._effective.downscale_stabilization_ms / 1000)
        directions = (
            ("up", "scaleUp", "Scale up", None if behavior is None else behavior.scale_up, "0"),
            ("down", "scaleDown", "Scale down", None if behavior is None else behavior.scale_down, window),
        )
        built: dict[str, Any] = {}
        for short, key, title, rules, placeholder in directions:
            rules_object: dict[str, Any] = {}
            fields = self._rules(short, f"spec.behavior.{key}", rules, rules_object, window=placeholder)
            if rules_object:
                built[key] = rules_object
            yield Section(title=title, fields=fields)
        self._document["spec"].pop("behavior", None)
        if built:
            self._document["spec"]["behavior"] = built

    def _rules(
        self, short: str, path: str, rules: ScalingRules | None, built: dict[str, Any], *, window: str
    ) -> list[Field]:
        tolerance = self._text(f"{short}.tolerance", rules and rules.tolerance)
        self._set(built, "tolerance", tolerance, f"{short}.tolerance", parse_quantity)
        seconds = self._text(f"{short}.window", rules and rules.stabilization_window_seconds)
        self._set(built, "stabilizationWindowSeconds", seconds, f"{short}.window", parse_integer)
        policies = self._text(f"{short}.policies", rules and policies_text(rules))
        self._set(built, "policies", policies, f"{short}.policies", parse_policies)
        select = self._text(f"{short}.select", rules and rules.select_policy)
        self._set(built, "selectPolicy", select, f"{short}.select", str)
        return [
            Field(
                name=f"{short}.tolerance",
                label="Tolerance",
                value=tolerance,
                paths=[f"{path}.tolerance"],
                placeholder=f"{self._effective.tolerance:g}",
            ),
            Field(
                name=f"{short}.window",
                label="Stabilization window, seconds",
                value=seconds,
                paths=[f"{path}.stabilizationWindowSeconds"],
                placeholder=window,
            ),
            Field(
                name=f"{short}.policies",
                label="Policies, one per line",
                value=policies,
                paths=[f"{path}.policies"],
                hint="Such as 4 pods per 15s, or 100% per 60s. Empty: Kubernetes' defaults.",
                lines=2,
            ),
            Field(
                name=f"{short}.select",
                label="Policy that counts (selectPolicy)",
                value=select,
                paths=[f"{path}.selectPolicy"],
                options=_SELECT_POLICIES,
            ),
        ]

    def _assumptions(self) -> Iterator[Field]:
        startup = format_duration(POD_STARTUP)
        yield Field(
            name="startup",
            label="Time until a new pod is ready",
            value=self._text("startup", startup),
            placeholder=startup,
        )
        for index, spec in enumerate(self._hpa.spec.metrics):
            target, unit = target_of(spec), metric_unit(spec)
            if target is not None:
                yield Field(
                    name=f"capacity.{index}",
                    label=f"What one ready pod can serve of {describe(spec)}" + (f", {unit}" if unit else ""),
                    value=self._text(f"capacity.{index}", None),
                    placeholder="" if target.field == "value" else "the present target",
                )


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
