"""Make MetricRules and a HorizontalPodAutoscaler for a ScaledObject.

Upstream: controllers/keda/hpa.go and pkg/scaling/executor/scale_scaledobjects.go of KEDA 2.20.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from adapter.promql import PromqlError, matcher_sign, matchers, parse, selectors
from adapter.rules.objects import Tenancy, read_object
from kubectl_milliscale.keda.manifests import Fallback, Object, ScaledObject, Trigger
from kubectl_milliscale.keda.servers import Servers
from kubectl_milliscale.keda.triggers import Activation, Metric, TriggerError, moved_trigger

HPA_VERSIONS = ("autoscaling/v2", "milliscale.io/v1")
"""Kubernetes' HPAs, and those of our own kind, which may always have minReplicas 0."""

_KEDA = "autoscaling.keda.sh/"
_OURS = "milliscale.io/"
_OWNER_LABEL = "scaledobject.keda.sh/name"
_DEFAULT_MAX = 100
_DEFAULT_COOLDOWN = _DEFAULT_WINDOW = 300
_MAX_WINDOW = 3600
_MAX_HOLD = 86_400  # of `activation`
_MAX_NAME = 253
_NOT_NAME = re.compile(r"[^a-z0-9.-]+")
_FALSE = ("0", "f", "F", "false", "FALSE", "False")


@dataclass(slots=True)
class Migrated:
    """The result for one ScaledObject.

    Attributes:
        name: the ScaledObject.
        objects: MetricRules, and the HPA that reads their metrics; none if it cannot be moved.
        problems: why it cannot be moved, or what is to be done by hand.
        notes: what differs.
    """

    name: str
    objects: list[dict[str, Any]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


class Names:
    """Names of new objects: unique in their namespace, and valid."""

    def __init__(self) -> None:
        self._taken: set[tuple[str, str, str]] = set()

    def new(self, kind: str, namespace: str, wanted: str) -> str:
        """Return a name like the one that is wanted."""
        wanted = _NOT_NAME.sub("-", wanted.lower()).strip("-.")[: _MAX_NAME - 4].rstrip("-.")
        name, number = wanted, 2
        while (kind, namespace, name) in self._taken:
            name, number = f"{wanted}-{number}", number + 1
        self._taken.add((kind, namespace, name))
        return name


def migrate(
    scaled: ScaledObject,
    *,
    servers: Servers,
    authentications: Mapping[tuple[str, str, str], Object],
    names: Names,
    hpa_version: str = HPA_VERSIONS[0],
    tenant_label: str = "",
) -> Migrated:
    """Make the objects for one ScaledObject.

    Args:
        scaled: the ScaledObject.
        servers: collects the servers that its triggers need.
        authentications: the specs of TriggerAuthentications; see KedaManifests.
        names: the names that other objects have.
        hpa_version: the apiVersion of the HPA, one of HPA_VERSIONS.
        tenant_label: the adapter's --tenant-label; "": queries are not restricted.
    """
    metadata = scaled.metadata
    namespace = metadata.namespace or ""
    result = Migrated(f"ScaledObject {namespace}/{metadata.name}" if namespace else f"ScaledObject {metadata.name}")
    activation = _activation(scaled)
    metrics: list[tuple[str, Metric]] = []
    reasons = list(_without_counterpart(scaled))
    for index, trigger in enumerate(scaled.spec.triggers):
        place = f"triggers[{index}] ({trigger.type})"
        try:
            spec = _authentication(trigger, namespace, authentications)
            metrics.append((place, moved_trigger(trigger, activation, authentication_spec=spec)))
        except TriggerError as error:
            reasons.append(f"{place}: {error}")
    if not reasons:
        for index, (place, metric) in enumerate(metrics):
            try:
                result.objects += _rules(metric, scaled.spec.triggers[index], scaled, servers, names)
            except ValueError as error:
                reasons.append(f"{place}: {error}")
    if reasons:
        result.objects.clear()
        result.problems = [f"not moved: {reason}" for reason in reasons]
        return result
    for place, metric in metrics:
        if metric.rule is not None and metric.rule.get("empty") == "zero" and tenant_label:
            result.problems += _emptied(place, metric.rule["query"], tenant_label, namespace)
        result.problems += [f"{place}: {problem}" for problem in metric.problems]
        result.notes += [f"{place}: {note}" for note in metric.notes]
    hpa = _hpa(scaled, [metric for _, metric in metrics], activation, names, result)
    if activation.to_zero and hpa_version == HPA_VERSIONS[0]:
        gate = "the feature gate HPAScaleToZero (on since Kubernetes 1.37)"
        result.problems.append(f"minReplicas 0 needs {gate}, or an HPA of milliscale.io/v1 (--hpa-version)")
    result.objects.append({"apiVersion": hpa_version, **hpa})
    return result


def _emptied(place: str, query: str, label: str, namespace: str) -> Iterator[str]:
    """Yield a problem if a query may read series of other namespaces, which its rule cannot."""
    try:
        found = [
            {one.value for one in matchers(each) if one.name == label and matcher_sign(one) == "="}
            for each in selectors(parse(query))
        ]
    except PromqlError:
        return  # the adapter refuses it, and says why
    if any(values != {namespace} for values in found):
        yield (
            f'{place}: the adapter adds {label}="{namespace}" to the query (--tenant-label); series of other namespaces'
            " are left out, and no series is 0 (`empty: zero`): see what it then finds, or use a ClusterMetricRule"
        )


def _authentication(
    trigger: Trigger, namespace: str, authentications: Mapping[tuple[str, str, str], Object]
) -> Object | None:
    """Return the spec of a trigger's TriggerAuthentication, if its manifest is there."""
    reference = trigger.authentication_ref
    if reference is None:
        return None
    is_of_cluster = reference.kind.startswith("Cluster")
    return authentications.get((reference.kind, "" if is_of_cluster else namespace, reference.name))


def _without_counterpart(scaled: ScaledObject) -> Iterator[str]:
    spec = scaled.spec
    if not spec.triggers:
        yield "it has no triggers"
    if spec.advanced is not None and spec.advanced.scaling_modifiers:
        yield "advanced.scalingModifiers: write the formula in PromQL"
    if spec.idle_replica_count:
        yield f"idleReplicaCount {spec.idle_replica_count}: an HPA has only 0"


def _activation(scaled: ScaledObject) -> Activation:
    """Return whether KEDA scales it to zero, when, and how many replicas it then starts with."""
    spec = scaled.spec
    least, types = spec.min_replica_count or 0, {trigger.type for trigger in spec.triggers} - {"cpu", "memory"}
    if not types:  # triggers of resources are always active
        return Activation(to_zero=False, least=1)
    if spec.idle_replica_count == 0 and least > 1:
        return Activation(to_zero=True, least=least)
    if least > 0 and spec.idle_replica_count is None:
        return Activation(to_zero=False, least=1)
    # An HPA scales down after its window, and so to zero after the window and this time.
    hold = min(_cooldown(scaled) - _window(scaled), _MAX_HOLD) if types == {"prometheus"} else 0
    return Activation(to_zero=True, least=1, hold_seconds=max(hold, 0))


def _cooldown(scaled: ScaledObject) -> int:
    """Return how long KEDA waits before the step to zero, in seconds."""
    return _DEFAULT_COOLDOWN if scaled.spec.cooldown_period is None else scaled.spec.cooldown_period


def _window(scaled: ScaledObject) -> int:
    """Return how long the HPA waits before it scales down, in seconds."""
    window = (_behavior(scaled).get("scaleDown") or {}).get("stabilizationWindowSeconds")
    return window if isinstance(window, int) else _DEFAULT_WINDOW


def _behavior(scaled: ScaledObject) -> Mapping[str, Any]:
    config = scaled.spec.advanced.horizontal_pod_autoscaler_config if scaled.spec.advanced is not None else None
    return (config.behavior or {}) if config is not None else {}


def _rules(
    metric: Metric, trigger: Trigger, scaled: ScaledObject, servers: Servers, names: Names
) -> Iterator[dict[str, Any]]:
    """Yield the MetricRule of a metric, if it needs one, and set the metric's name in the HPA.

    Raises:
        ValueError: the address of the server or the rule is invalid.
    """
    if metric.rule is None:
        return
    name = names.new(
        "MetricRule", scaled.metadata.namespace or "", f"{scaled.metadata.name}-{trigger.name or trigger.type}"
    )
    metric.spec["external"] = {"metric": {"name": name}, **metric.spec["external"]}
    spec = {"type": "External", "metric": name, **metric.rule}
    made = {"apiVersion": "milliscale.io/v1", "kind": "MetricRule", "metadata": _metadata(name, scaled), "spec": spec}
    if error := read_object(made, servers={}, tenancy=Tenancy()).error:
        raise ValueError(error)
    if metric.server is not None:
        server = servers.name_of(metric.server, files=metric.files)
        metric.problems = [problem.replace("<server>", server) for problem in metric.problems]
        if server:
            spec["prometheus"] = server
        if server in servers.closed:
            metric.problems.append(f"set prometheusServers.{server}.tenants: true in the rules file")
    yield made


def _hpa(
    scaled: ScaledObject, metrics: list[Metric], activation: Activation, names: Names, result: Migrated
) -> dict[str, Any]:
    """Return the HPA without its version. Upstream: newHPAForScaledObject."""
    spec, target = scaled.spec, scaled.spec.scale_target_ref
    config = spec.advanced.horizontal_pod_autoscaler_config if spec.advanced is not None else None
    wanted = config.name if config is not None and config.name else scaled.metadata.name
    name = names.new("HorizontalPodAutoscaler", scaled.metadata.namespace or "", wanted)
    least = 0 if activation.to_zero else max(spec.min_replica_count or 0, 1)
    behavior = copy.deepcopy(dict(_behavior(scaled)))
    if activation.to_zero:
        if any(metric.rule is None for metric in metrics):
            why = "the HPA keeps a replica while that uses CPU or memory; KEDA ignores both for scaling to zero"
            result.notes.append(why)
        _delay_zero(scaled, activation, behavior, result)
    annotations = _annotations(scaled, behavior, result)
    return {
        "kind": "HorizontalPodAutoscaler",
        "metadata": {**_metadata(name, scaled), **({"annotations": annotations} if annotations else {})},
        "spec": {
            "scaleTargetRef": {
                "apiVersion": target.api_version or "apps/v1",
                "kind": target.kind or "Deployment",
                "name": target.name,
            },
            "minReplicas": least,
            "maxReplicas": _DEFAULT_MAX if spec.max_replica_count is None else spec.max_replica_count,
            "metrics": [metric.spec for metric in metrics],
            **({"behavior": behavior} if behavior else {}),
        },
    }


def _delay_zero(scaled: ScaledObject, activation: Activation, behavior: dict[str, Any], result: Migrated) -> None:
    """Let the window of scaling down be KEDA's cooldown period, unless the metrics wait for it themselves."""
    cooldown, window = _cooldown(scaled), _window(scaled)
    if cooldown < window:
        result.notes.append(f"cooldownPeriod {cooldown}: an HPA scales to zero after its window, {window} s")
    if cooldown <= window or activation.hold_seconds:
        return
    wanted = min(cooldown, _MAX_WINDOW)
    behavior["scaleDown"] = {**(behavior.get("scaleDown") or {}), "stabilizationWindowSeconds": wanted}
    result.notes.append(
        f"cooldownPeriod {cooldown}: every scale-down waits {wanted} s; KEDA's HPA waits {window} s, except to zero"
    )


def _annotations(scaled: ScaledObject, behavior: dict[str, Any], result: Migrated) -> dict[str, str]:
    """Return our annotations for those of KEDA, and for its fallback."""
    given, annotations = scaled.metadata.annotations or {}, {}
    for key, direction in (("paused-scale-in", "scaleDown"), ("paused-scale-out", "scaleUp")):
        if _is_set(given, key):
            behavior[direction] = {**(behavior.get(direction) or {}), "selectPolicy": "Disabled"}
    if f"{_KEDA}paused-replicas" in given:
        replicas = given[f"{_KEDA}paused-replicas"]
        result.problems.append(f"annotation paused-replicas: scale the target to {replicas} replicas yourself")
    if _is_set(given, "paused") or f"{_KEDA}paused-replicas" in given:
        annotations[f"{_OURS}paused"] = "all"
        result.notes.append("a pause needs milliscale's autoscaler; without it the HPA scales at once")
    if _is_set(given, "force-activation"):
        result.problems.append("annotation force-activation: raise minReplicas while you need it")
    if fallback := scaled.spec.fallback:
        annotations |= _fallback(fallback, result)
    advanced = scaled.spec.advanced
    if advanced is not None and advanced.restore_to_original_replica_count:
        result.notes.append("restoreToOriginalReplicaCount has no counterpart: without the HPA the replicas stay")
    if scaled.spec.initial_cooldown_period:
        result.notes.append("initialCooldownPeriod has no counterpart: a new HPA keeps the replicas for its window")
    return annotations


def _fallback(fallback: Fallback, result: Migrated) -> dict[str, str]:
    if fallback.behavior == "currentReplicas" or fallback.replicas == 0:
        return {}  # what an HPA does without metrics
    result.notes.append("a fallback needs milliscale's autoscaler; without it the replicas stay as they are")
    if fallback.behavior != "currentReplicasIfHigher":
        result.notes.append(f"fallback.behavior {fallback.behavior}: ours never scales down without metrics")
    return {
        f"{_OURS}fallback-replicas": str(fallback.replicas),
        f"{_OURS}fallback-failure-threshold": str(max(fallback.failure_threshold, 1)),
    }


def _is_set(annotations: Mapping[str, str], key: str) -> bool:
    """Upstream: getBoolAnnotation, for which what is no boolean is true."""
    return f"{_KEDA}{key}" in annotations and annotations[f"{_KEDA}{key}"] not in _FALSE


def _metadata(name: str, scaled: ScaledObject) -> dict[str, Any]:
    metadata = scaled.metadata
    labels = {key: value for key, value in (metadata.labels or {}).items() if key != _OWNER_LABEL}
    return {
        "name": name,
        **({"namespace": metadata.namespace} if metadata.namespace else {}),
        **({"labels": labels} if labels else {}),
    }
