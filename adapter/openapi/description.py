"""The served APIs as data: which paths there are, what may be asked, and what comes back."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final


@dataclass(frozen=True, slots=True)
class Subject:
    """The group, version and kind that something is about."""

    group: str
    version: str
    kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    """A JSON schema, as far as these APIs need it.

    Attributes:
        type: "string", "integer", "array" or "object"; empty where `definition` stands for all of it.
        format: such as "int64".
        description: one sentence.
        properties: of an object with known fields.
        required: those that are always there.
        items: of an array.
        values: of an object that maps strings to this.
        definition: the name of the definition that is referred to.
    """

    type: str = ""
    format: str = ""
    description: str = ""
    properties: tuple[tuple[str, Schema], ...] = ()
    required: tuple[str, ...] = ()
    items: Schema | None = None
    values: Schema | None = None
    definition: str = ""


@dataclass(frozen=True, slots=True)
class Definition:
    """A named schema; `subject` is the kind of object that it is, if it is one."""

    name: str
    schema: Schema
    subject: Subject | None = None


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter, in the "path" or in the "query"."""

    name: str
    place: str
    description: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """A GET.

    Attributes:
        path: with parameters in braces.
        identifier: its name among all operations.
        description: one sentence.
        parameters: what may be asked.
        result: what comes back.
        subject: the kind of that, where it is an object.
        action: "get" or "list", where `subject` is given.
    """

    path: str
    identifier: str
    description: str
    parameters: tuple[Parameter, ...] = ()
    result: Schema = field(default_factory=lambda: Schema(type="object"))
    subject: Subject | None = None
    action: str = ""


_PACKAGES: Final = {
    "custom.metrics.k8s.io": "custom_metrics",
    "external.metrics.k8s.io": "external_metrics",
    "metrics.k8s.io": "metrics",
}

_PRETTY = Parameter("pretty", "query", "Whether JSON is indented.")
_LABELS = Parameter("labelSelector", "query", "Only objects with labels that match; counts where the name is `*`.")
_SERIES = Parameter("metricLabelSelector", "query", "Only series with labels that match.")
_LISTED = Parameter("labelSelector", "query", "Only objects with labels that match.")
_EXTERNAL = Parameter("labelSelector", "query", "Only series with labels that match.")
_NAMESPACE = Parameter("namespace", "path", "The namespace.")
_NAME = Parameter("name", "path", "The name of the object, or `*` for all that match.")
_ONE_NAME = Parameter("name", "path", "The name of the object.")
_RESOURCE = Parameter("resource", "path", "The resource of the object, with its group: `pods`, `deployments.apps`.")
_METRIC = Parameter("metric", "path", "The name of the metric.")


def _text(description: str) -> Schema:
    return Schema(type="string", description=description)


def _object(description: str, required: Iterable[str], **properties: Schema) -> Schema:
    return Schema(
        type="object", description=description, properties=tuple(properties.items()), required=tuple(required)
    )


def _list(description: str, items: Schema) -> Schema:
    return Schema(type="array", description=description, items=items)


def _map(description: str, values: Schema) -> Schema:
    return Schema(type="object", description=description, values=values)


_KIND: Final = {
    "apiVersion": _text("The group and version of the object."),
    "kind": _text("The kind of the object."),
}
_LIST_META = Schema(type="object", description="Nothing that would mean anything for metrics.")
_TIME = Schema(type="string", format="date-time", description="When the value was measured.")
_WINDOW = Schema(type="integer", format="int64", description="Over how many seconds the value was measured.")
_VALUE = _text("The value, as a quantity: `250m` is a quarter.")
_DESCRIBED = _object(
    "The object that is measured.",
    (),
    kind=_text("The kind of the object."),
    namespace=_text("The namespace of the object."),
    name=_text("The name of the object."),
    apiVersion=_text("The group and version of the object."),
)
_SELECTOR = _object(
    "Which series of the metric are meant; nothing means all.",
    (),
    matchLabels=_map("Labels and their values.", Schema(type="string")),
    matchExpressions=_list(
        "Further requirements.",
        _object(
            "A requirement on a label.",
            ("key", "operator"),
            key=_text("The label."),
            operator=_text("In, NotIn, Exists or DoesNotExist."),
            values=_list("What the operator compares with.", Schema(type="string")),
        ),
    ),
)
_USAGE = _map("What is used, by resource: `cpu` in cores and `memory` in bytes.", Schema(type="string"))
_METADATA = _object(
    "The name of what is measured, and its labels.",
    (),
    name=_text("The name."),
    namespace=_text("The namespace, of a pod."),
    labels=_map("The labels.", Schema(type="string")),
    creationTimestamp=Schema(type="string", format="date-time", description="When this was made."),
)
_USED_WINDOW = _text("Over which time the use was measured, such as `1m0s`.")


def _definitions(group: str, version: str) -> tuple[Definition, ...]:
    def definition(kind: str, schema: Schema, *, is_kind: bool = False) -> Definition:
        return Definition(_name(group, version, kind), schema, Subject(group, version, kind) if is_kind else None)

    def a_list(kind: str, item: str, description: str) -> Definition:
        items = _list("The values.", _reference(group, version, item))
        schema = _object(description, ("items",), **_KIND, metadata=_LIST_META, items=items)
        return definition(kind, schema, is_kind=True)

    match group, version:
        case "custom.metrics.k8s.io", "v1beta1":
            value = _object(
                "The value of a metric for an object.",
                ("describedObject", "metricName", "timestamp", "value", "selector"),
                describedObject=_DESCRIBED,
                metricName=_text("The name of the metric."),
                timestamp=_TIME,
                window=_WINDOW,
                value=_VALUE,
                selector=_SELECTOR,
            )
            return definition("MetricValue", value), a_list("MetricValueList", "MetricValue", "Values of a metric.")
        case "custom.metrics.k8s.io", _:
            identifier = _object("The metric.", ("name",), name=_text("The name of the metric."), selector=_SELECTOR)
            value = _object(
                "The value of a metric for an object.",
                ("describedObject", "metric", "timestamp", "value"),
                describedObject=_DESCRIBED,
                metric=identifier,
                timestamp=_TIME,
                windowSeconds=_WINDOW,
                value=_VALUE,
            )
            return definition("MetricValue", value), a_list("MetricValueList", "MetricValue", "Values of a metric.")
        case "external.metrics.k8s.io", _:
            value = _object(
                "The value of one series of a metric.",
                ("metricName", "metricLabels", "timestamp", "value"),
                metricName=_text("The name of the metric."),
                metricLabels=_map("The labels of the series.", Schema(type="string")),
                timestamp=_TIME,
                window=_WINDOW,
                value=_VALUE,
            )
            kind = "ExternalMetricValue"
            return definition(kind, value), a_list(f"{kind}List", kind, "Values of an external metric.")
    container = _object("What a container uses.", ("name", "usage"), name=_text("The container."), usage=_USAGE)
    pod = _object(
        "What the containers of a pod use.",
        ("timestamp", "window", "containers"),
        **_KIND,
        metadata=_METADATA,
        timestamp=_TIME,
        window=_USED_WINDOW,
        containers=_list("The containers.", container),
    )
    node = _object(
        "What a node uses.",
        ("timestamp", "window", "usage"),
        **_KIND,
        metadata=_METADATA,
        timestamp=_TIME,
        window=_USED_WINDOW,
        usage=_USAGE,
    )
    return (
        definition("NodeMetrics", node, is_kind=True),
        a_list("NodeMetricsList", "NodeMetrics", "What nodes use."),
        definition("PodMetrics", pod, is_kind=True),
        a_list("PodMetricsList", "PodMetrics", "What pods use."),
    )


def describe(group: str, version: str) -> tuple[tuple[Operation, ...], tuple[Definition, ...]]:
    """What one version of a group has: its operations, and the definitions that they refer to."""
    root = f"/apis/{group}/{version}"
    title = "".join(part.capitalize() for part in (*group.removesuffix(".k8s.io").split("."), version))

    def operation(path: str, name: str, kind: str, what: str, *parameters: Parameter) -> Operation:
        return Operation(
            path=f"{root}/{path}",
            identifier=f"{'list' if kind.endswith('List') else 'read'}{title}{name}",
            description=what,
            parameters=(*parameters, _PRETTY),
            result=_reference(group, version, kind),
            subject=Subject(group, version, kind),
            action="list" if kind.endswith("List") else "get",
        )

    resources = Operation(path=f"{root}/", identifier=f"get{title}APIResources", description="The metrics there are.")
    match group:
        case "custom.metrics.k8s.io":
            values = "MetricValueList"
            found = [
                operation(
                    "namespaces/{namespace}/{resource}/{name}/{metric}",
                    "NamespacedValues",
                    values,
                    "A metric of objects in a namespace.",
                    *(_NAMESPACE, _RESOURCE, _NAME, _METRIC, _LABELS, _SERIES),
                ),
                operation(
                    "namespaces/{namespace}/metrics/{metric}",
                    "NamespaceValues",
                    values,
                    "A metric of a namespace, or of all where it is `*`.",
                    *(_NAMESPACE, _METRIC, _LABELS, _SERIES),
                ),
                operation(
                    "{resource}/{name}/{metric}",
                    "Values",
                    values,
                    "A metric of objects that are in no namespace.",
                    *(_RESOURCE, _NAME, _METRIC, _LABELS, _SERIES),
                ),
            ]
        case "external.metrics.k8s.io":
            found = [
                operation(
                    "namespaces/{namespace}/{metric}",
                    "NamespacedValues",
                    "ExternalMetricValueList",
                    "The values of an external metric.",
                    *(_NAMESPACE, _METRIC, _EXTERNAL),
                )
            ]
        case _:
            found = [
                operation("nodes", "Nodes", "NodeMetricsList", "What nodes use.", _LISTED),
                operation("nodes/{name}", "Node", "NodeMetrics", "What a node uses.", _ONE_NAME),
                operation("pods", "Pods", "PodMetricsList", "What pods use.", _LISTED),
                operation(
                    "namespaces/{namespace}/pods",
                    "NamespacedPods",
                    "PodMetricsList",
                    "What the pods of a namespace use.",
                    *(_NAMESPACE, _LISTED),
                ),
                operation(
                    "namespaces/{namespace}/pods/{name}",
                    "NamespacedPod",
                    "PodMetrics",
                    "What a pod uses.",
                    *(_NAMESPACE, _ONE_NAME),
                ),
            ]
    return (resources, *found), _definitions(group, version)


def describe_common(groups: Iterable[str]) -> dict[str, Operation]:
    """What is beside the APIs themselves: the operations, by the path under which version 3 has their document."""
    found = {"apis": Operation(path="/apis/", identifier="getAPIVersions", description="The groups there are.")}
    for group in groups:
        name = "".join(part.capitalize() for part in group.removesuffix(".k8s.io").split("."))
        found[f"apis/{group}"] = Operation(
            path=f"/apis/{group}/", identifier=f"get{name}APIGroup", description="The versions of a group."
        )
    found["version"] = Operation(path="/version/", identifier="getCodeVersion", description="The version of this.")
    return found


def _name(group: str, version: str, kind: str) -> str:
    return f"io.k8s.metrics.pkg.apis.{_PACKAGES[group]}.{version}.{kind}"


def _reference(group: str, version: str, kind: str) -> Schema:
    return Schema(definition=_name(group, version, kind))
