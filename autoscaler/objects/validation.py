"""Validate an HPA as kube-apiserver does at create and update, with the messages of Kubernetes 1.36.

For HPAs that have not passed an API server. A metric's selector, a resource's name and a target type that contradicts
the given value are not checked, as in Kubernetes; they fail at reconciliation.

Upstream: validation.ValidateHorizontalPodAutoscaler.
"""

from collections.abc import Callable, Mapping
from typing import Any

from autoscaler.core.model import (
    SOURCES,
    ContainerResourceMetric,
    CrossVersionObjectReference,
    ExternalMetric,
    MetricIdentifier,
    MetricSource,
    MetricSpec,
    MetricTarget,
    ObjectMetric,
    PodsMetric,
    ResourceMetric,
    ScalingPolicy,
    ScalingRules,
    Spec,
)
from autoscaler.objects.hpa import ObjectMeta, decode_hpa
from kube.values import fields, names

_MAX_WINDOW_SECONDS = 3600
_MAX_PERIOD_SECONDS = 1800
_MAX_ANNOTATION_BYTES = 256 * 1024

_TARGET_TYPES = ("Utilization", "Value", "AverageValue")
_SELECT_POLICIES = ("Max", "Min", "Disabled")
_POLICY_TYPES = ("Pods", "Percent")

_STANDARD_CONTAINER_RESOURCES = frozenset({"cpu", "memory", "ephemeral-storage"})
_STANDARD_RESOURCES = _STANDARD_CONTAINER_RESOURCES | {
    *("requests.cpu", "requests.memory", "requests.ephemeral-storage", "requests.storage", "storage"),
    *("limits.cpu", "limits.memory", "limits.ephemeral-storage"),
    *("pods", "resourcequotas", "services", "replicationcontrollers", "secrets", "configmaps"),
    *("persistentvolumeclaims", "services.nodeports", "services.loadbalancers"),
}


def validate_hpa(obj: Mapping[str, Any], *, scale_to_zero: bool) -> list[str]:
    """Return the errors of an object that has its defaults, sorted; duplicates are possible.

    Args:
        obj: an autoscaling/v2 HPA, as `default_hpa` returns it.
        scale_to_zero: whether the feature gate HPAScaleToZero is on.

    Raises:
        ParseError: a field has the wrong type, or a text is not a quantity.
    """
    hpa = decode_hpa(obj)
    return sorted(_metadata_errors(hpa.metadata) + _spec_errors(hpa.spec, scale_to_zero=scale_to_zero))


def _metadata_errors(metadata: ObjectMeta) -> list[str]:
    errors = []
    if prefix := metadata.generate_name:
        # generateName may end with a dash, because a suffix follows.
        likely = prefix[:-2] + "a" if len(prefix) > 1 and prefix.endswith("-") else prefix
        errors += _invalid("metadata.generateName", prefix, names.rfc1123_subdomain_errors(likely))
    missing = "name or generateName is required"
    errors += _name_errors("metadata.name", metadata.name, names.rfc1123_subdomain_errors, missing)
    errors += _name_errors("metadata.namespace", metadata.namespace, names.rfc1123_label_errors)
    for key, value in metadata.labels.items():
        errors += _invalid("metadata.labels", key, names.qualified_name_errors(key))
        errors += _invalid("metadata.labels", value, names.label_value_errors(value))
    for key in metadata.annotations:
        errors += _invalid("metadata.annotations", key, names.qualified_name_errors(key.lower()))
    if sum(len((key + value).encode()) for key, value in metadata.annotations.items()) > _MAX_ANNOTATION_BYTES:
        errors.append(fields.too_long("metadata.annotations", _MAX_ANNOTATION_BYTES))
    return errors


def _spec_errors(spec: Spec, *, scale_to_zero: bool) -> list[str]:
    errors = []
    least = 0 if scale_to_zero else 1
    if spec.min_replicas < least:
        detail = f"must be greater than or equal to {least}"
        errors.append(fields.invalid("spec.minReplicas", spec.min_replicas, detail))
    if spec.max_replicas == 0:
        errors.append(fields.required("spec.maxReplicas", "must be set and greater than 0"))
    elif spec.max_replicas < 0:
        errors.append(fields.invalid("spec.maxReplicas", spec.max_replicas, "must be greater than or equal to 1"))
    if spec.max_replicas < spec.min_replicas:
        detail = "must be greater than or equal to `minReplicas`"
        errors.append(fields.invalid("spec.maxReplicas", spec.max_replicas, detail))
    # The only scalable kind of the core group, whose name is empty.
    core_group_allowed = spec.scale_target_ref.kind == "ReplicationController"
    errors += _reference_errors("spec.scaleTargetRef", spec.scale_target_ref, core_group_allowed=core_group_allowed)
    for index, metric in enumerate(spec.metrics):
        errors += _metric_errors(f"spec.metrics[{index}]", metric)
    if spec.min_replicas == 0 and not any(metric.type in ("Object", "External") for metric in spec.metrics):
        detail = "must specify at least one Object or External metric to support scaling to zero replicas"
        errors.append(fields.forbidden("spec.metrics", detail))
    if spec.behavior:
        for name, rules in (("scaleUp", spec.behavior.scale_up), ("scaleDown", spec.behavior.scale_down)):
            errors += _rules_errors(f"spec.behavior.{name}", rules)
    return errors


def _reference_errors(path: str, reference: CrossVersionObjectReference, *, core_group_allowed: bool) -> list[str]:
    errors = _name_errors(f"{path}.kind", reference.kind, names.path_segment_errors)
    errors += _name_errors(f"{path}.name", reference.name, names.path_segment_errors)
    version = reference.api_version
    if version.count("/") > 1:
        detail = f"unexpected GroupVersion string: {version}"
        errors.append(fields.invalid(f"{path}.apiVersion", version, detail))
    elif not core_group_allowed and not version.rpartition("/")[0]:
        errors.append(fields.invalid(f"{path}.apiVersion", version, "apiVersion must specify API group"))
    return errors


def _metric_errors(path: str, metric: MetricSpec) -> list[str]:
    errors = []
    unsupported = fields.not_supported(f"{path}.type", metric.type, tuple(SOURCES))
    if not metric.type:
        errors.append(fields.required(f"{path}.type", "must specify a metric source type"))
    if metric.type not in SOURCES:
        errors += [unsupported, unsupported]  # reported twice, as by Kubernetes

    present = metric.sources
    for type_, source in list(present.items())[:1]:  # as in Kubernetes, other sources are not validated
        errors += _source_errors(f"{path}.{_field(type_)}", source)
    if metric.type in SOURCES and metric.type not in present:
        detail = "must populate information for the given metric source"
        errors.append(fields.required(f"{path}.{_field(metric.type)}", detail))
    if len(present) > 1:
        errors += [
            fields.forbidden(f"{path}.{_field(type_)}", "must populate the given metric source only")
            for type_ in present
            if type_ != metric.type
        ]
    return errors


def _field(type_: str) -> str:
    """Return the field of a metric's type: `containerResource` of ContainerResource."""
    return type_[0].lower() + type_[1:]


def _source_errors(path: str, source: MetricSource) -> list[str]:
    errors = _target_errors(f"{path}.target", source.target)
    has_value, has_average = source.target.value is not None, source.target.average_value is not None
    has_utilization = source.target.average_utilization is not None
    average_path = f"{path}.target.averageValue"
    match source:
        case ObjectMetric():
            errors += _reference_errors(f"{path}.describedObject", source.described_object, core_group_allowed=True)
            errors += _identifier_errors(f"{path}.metric", source.metric)
            if not has_value and not has_average:
                errors.append(fields.required(average_path, "must set either a target value or averageValue"))
        case ExternalMetric():
            errors += _identifier_errors(f"{path}.metric", source.metric)
            if not has_value and not has_average:
                detail = "must set either a target value for metric or a per-pod target"
                errors.append(fields.required(average_path, detail))
            if has_value and has_average:
                detail = "may not set both a target value for metric and a per-pod target"
                errors.append(fields.forbidden(f"{path}.target.value", detail))
        case PodsMetric():
            errors += _identifier_errors(f"{path}.metric", source.metric)
            if not has_average:
                errors.append(fields.required(average_path, "must specify a positive target averageValue"))
        case ResourceMetric():
            errors += _resource_name_errors(path, source)
            if not has_utilization and not has_average:
                detail = "must set either a target raw value or a target utilization"
                errors.append(fields.required(f"{path}.target.averageUtilization", detail))
            if has_utilization and has_average:
                detail = "may not set both a target raw value and a target utilization"
                errors.append(fields.forbidden(average_path, detail))
    return errors


def _resource_name_errors(path: str, source: ResourceMetric) -> list[str]:
    missing = "must specify a resource name"
    if not isinstance(source, ContainerResourceMetric):
        return _name_errors(f"{path}.name", source.name, lambda _: [], missing)
    errors = _name_errors(f"{path}.name", source.name, _container_resource_problems, missing)
    missing = "must specify a container"
    return errors + _name_errors(f"{path}.container", source.container, names.rfc1123_label_errors, missing)


def _container_resource_problems(name: str) -> list[str]:
    problems = names.qualified_name_errors(name)
    if "/" not in name:
        standard = name in _STANDARD_RESOURCES or name.startswith(("hugepages-", "requests.hugepages-"))
        if not problems and not standard:
            problems.append("must be a standard resource type or fully qualified")
        if name not in _STANDARD_CONTAINER_RESOURCES and not name.startswith("hugepages-"):
            problems.append("must be a standard resource for containers")
    elif "kubernetes.io/" not in name and (
        name.startswith("requests.") or names.qualified_name_errors(f"requests.{name}")
    ):
        problems.append("doesn't follow extended resource name standard")
    return problems


def _identifier_errors(path: str, metric: MetricIdentifier) -> list[str]:
    return _name_errors(f"{path}.name", metric.name, names.path_segment_errors, "must specify a metric name")


def _target_errors(path: str, target: MetricTarget) -> list[str]:
    errors = []
    if not target.type:
        errors.append(fields.required(f"{path}.type", "must specify a metric target type"))
    if target.type not in _TARGET_TYPES:
        detail = "must be either Utilization, Value, or AverageValue"
        errors.append(fields.invalid(f"{path}.type", target.type, detail))
    for name, value in (("value", target.value), ("averageValue", target.average_value)):
        if value is not None and value.quantity.sign != 1:
            errors.append(fields.invalid(f"{path}.{name}", value, "must be positive"))
    utilization = target.average_utilization
    if utilization is not None and utilization < 1:
        errors.append(fields.invalid(f"{path}.averageUtilization", utilization, "must be greater than 0"))
    return errors


def _rules_errors(path: str, rules: ScalingRules) -> list[str]:
    errors = []
    window, window_path = rules.stabilization_window_seconds, f"{path}.stabilizationWindowSeconds"
    if window is not None and window < 0:
        errors.append(fields.invalid(window_path, window, "must be greater than or equal to zero"))
    if window is not None and window > _MAX_WINDOW_SECONDS:
        errors.append(fields.invalid(window_path, window, f"must be less than or equal to {_MAX_WINDOW_SECONDS}"))
    if rules.select_policy not in _SELECT_POLICIES:
        errors.append(fields.not_supported(f"{path}.selectPolicy", rules.select_policy, _SELECT_POLICIES))
    if not rules.policies:
        errors.append(fields.required(f"{path}.policies", "must specify at least one Policy"))
    for index, policy in enumerate(rules.policies):
        errors += _policy_errors(f"{path}.policies[{index}]", policy)
    if rules.tolerance is not None and rules.tolerance.quantity.sign < 0:
        errors.append(fields.invalid(f"{path}.tolerance", rules.tolerance, "must be greater than or equal to 0"))
    return errors


def _policy_errors(path: str, policy: ScalingPolicy) -> list[str]:
    errors = []
    if policy.type not in _POLICY_TYPES:
        errors.append(fields.not_supported(f"{path}.type", policy.type, _POLICY_TYPES))
    if policy.value <= 0:
        errors.append(fields.invalid(f"{path}.value", policy.value, "must be greater than zero"))
    if policy.period_seconds <= 0:
        errors.append(fields.invalid(f"{path}.periodSeconds", policy.period_seconds, "must be greater than zero"))
    if policy.period_seconds > _MAX_PERIOD_SECONDS:
        detail = f"must be less than or equal to {_MAX_PERIOD_SECONDS}"
        errors.append(fields.invalid(f"{path}.periodSeconds", policy.period_seconds, detail))
    return errors


def _name_errors(path: str, name: str, check: Callable[[str], list[str]], missing: str = "") -> list[str]:
    """Return the errors of a name that must be set; `missing` is the detail if it is not."""
    return _invalid(path, name, check(name)) if name else [fields.required(path, missing)]


def _invalid(path: str, value: str, problems: list[str]) -> list[str]:
    return [fields.invalid(path, value, problem) for problem in problems]
