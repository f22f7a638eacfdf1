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
from kube.process.flags import parse_bool
from kubectl_milliscale.keda.manifests import Fallback, Object, ScaledObject, Trigger
from kubectl_milliscale.keda.servers import Servers
from kubectl_milliscale.keda.triggers import Activation, Metric, TriggerError, moved_trigger

HPA_VERSIONS = ("autoscaling/v2", "milliscale.io/v1")
"""Kubernetes' HPAs, and those of our own kind, which may always have minReplicas 0."""

_KEDA = "autoscaling.keda.sh/"
_OURS = "milliscale.io/"
_OWNER_LABEL = "scaledobject.keda.sh/name"
_DEFAULT_WINDOW = 300
_MAX_WINDOW = 3600
_MAX_HOLD = 86_400  # of `activation`
_MAX_NAME = 253
_NOT_NAME = re.compile(r"[^a-z0-9.-]+")


@dataclass(slots=True)
class Migrated:
    """The result for one ScaledObject."""

    name: str
    """The ScaledObject."""
    objects: list[dict[str, Any]] = field(default_factory=list)
    """MetricRules, and the HPA that reads their metrics; none if it cannot be moved."""
    problems: list[str] = field(default_factory=list)
    """Why it cannot be moved, or what is to be done by hand."""
    notes: list[str] = field(default_factory=list)
    """What differs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration:
    """Makes objects whose names and servers are unique."""

    servers: Servers
    """Collects the servers that triggers need."""
    authentications: Mapping[tuple[str, str, str], Object] = field(default_factory=dict)
    """The specs of TriggerAuthentications; see KedaManifests."""
    hpa_version: str = HPA_VERSIONS[0]
    """The apiVersion of the HPAs, one of HPA_VERSIONS."""
    tenant_label: str = ""
    """The adapter's --tenant-label; "": queries are not restricted."""
    _names: set[tuple[str, str, str]] = field(default_factory=set)

    def migrate(self, scaled: ScaledObject) -> Migrated:
        """Make the objects for one ScaledObject."""
        namespace = scaled.metadata.namespace
        result = Migrated(f"ScaledObject {f'{namespace}/' if namespace else ''}{scaled.metadata.name}")
        activation = _activation(scaled)
        metrics: list[tuple[str, Trigger, Metric]] = []
        reasons = list(_without_counterpart(scaled))
        for index, trigger in enumerate(scaled.spec.triggers):
            place = f"triggers[{index}] ({trigger.type})"
            try:
                metric = moved_trigger(trigger, activation, self._authentication(trigger, namespace))
            except TriggerError as error:
                reasons.append(f"{place}: {error}")
            else:
                metrics.append((place, trigger, metric))
        for place, trigger, metric in () if reasons else metrics:
            try:
                result.objects += self._rules(metric, trigger, scaled)
            except ValueError as error:
                reasons.append(f"{place}: {error}")
        if reasons:
            result.objects.clear()
            result.problems = [f"not moved: {reason}" for reason in reasons]
            return result
        for place, _, metric in metrics:
            result.problems += [
                f"{place}: {problem}" for problem in (*self._emptied(metric, namespace), *metric.problems)
            ]
            result.notes += [f"{place}: {note}" for note in metric.notes]
        hpa = self._hpa(scaled, [metric for _, _, metric in metrics], activation, result)
        if activation.to_zero and self.hpa_version == HPA_VERSIONS[0]:
            gate = "the feature gate HPAScaleToZero (on since Kubernetes 1.37)"
            result.problems.append(f"minReplicas 0 needs {gate}, or an HPA of milliscale.io/v1 (--hpa-version)")
        result.objects.append(hpa)
        return result

    def _new_name(self, kind: str, namespace: str, wanted: str) -> str:
        """Return a valid name like the one that is wanted, which no other object has."""
        wanted = _NOT_NAME.sub("-", wanted.lower()).strip("-.")[: _MAX_NAME - 4].rstrip("-.")
        name, number = wanted, 2
        while (kind, namespace, name) in self._names:
            name, number = f"{wanted}-{number}", number + 1
        self._names.add((kind, namespace, name))
        return name

    def _emptied(self, metric: Metric, namespace: str) -> Iterator[str]:
        """Yield a problem if a query may read series of other namespaces, which its rule cannot."""
        label = self.tenant_label
        if metric.rule is None or metric.rule.get("empty") != "zero" or not label:
            return
        try:
            found = [
                {one.value for one in matchers(each) if one.name == label and matcher_sign(one) == "="}
                for each in selectors(parse(metric.rule["query"]))
            ]
        except PromqlError:
            return  # the adapter refuses it, and says why
        if any(values != {namespace} for values in found):
            yield (
                f'the adapter adds {label}="{namespace}" to the query (--tenant-label); series of other namespaces are'
                " left out, and no series is 0 (`empty: zero`): see what it then finds, or use a ClusterMetricRule"
            )

    def _authentication(self, trigger: Trigger, namespace: str) -> Object | None:
        """Return the spec of a trigger's TriggerAuthentication, if its manifest is there."""
        reference = trigger.authentication_ref
        if reference is None:
            return None
        is_of_cluster = reference.kind.startswith("Cluster")
        return self.authentications.get((reference.kind, "" if is_of_cluster else namespace, reference.name))

    def _rules(self, metric: Metric, trigger: Trigger, scaled: ScaledObject) -> Iterator[dict[str, Any]]:
        """Yield the MetricRule of a metric, if it needs one, and set the metric's name in the HPA.

        Raises:
            ValueError: the address of the server or the rule is invalid.
        """
        if metric.rule is None:
            return
        wanted = f"{scaled.metadata.name}-{trigger.name or trigger.type}"
        name = self._new_name("MetricRule", scaled.metadata.namespace, wanted)
        metric.spec["external"] = {"metric": {"name": name}, **metric.spec["external"]}
        spec = {"type": "External", "metric": name, **metric.rule}
        made = _object("milliscale.io/v1", "MetricRule", _metadata(name, scaled), spec)
        if error := read_object(made, servers={}, tenancy=Tenancy()).error:
            raise ValueError(error)
        if metric.server is not None:
            server = self.servers.name_of(metric.server)
            metric.problems += [problem.replace("<server>", server) for problem in metric.server.problems]
            if server:
                spec["prometheus"] = server
            if server in self.servers.closed:
                metric.problems.append(f"set prometheusServers.{server}.tenants: true in the rules file")
        yield made

    def _hpa(
        self, scaled: ScaledObject, metrics: list[Metric], activation: Activation, result: Migrated
    ) -> dict[str, Any]:
        """Return the HPA. Upstream: newHPAForScaledObject."""
        spec, target = scaled.spec, scaled.spec.scale_target_ref
        wanted = spec.advanced.horizontal_pod_autoscaler_config.name or scaled.metadata.name
        name = self._new_name("HorizontalPodAutoscaler", scaled.metadata.namespace, wanted)
        behavior = copy.deepcopy(_behavior(scaled))
        if activation.to_zero:
            if any(metric.rule is None for metric in metrics):
                why = "the HPA keeps a replica while that uses CPU or memory; KEDA ignores both for scaling to zero"
                result.notes.append(why)
            _delay_zero(scaled, activation, behavior, result)
        annotations = _annotations(scaled, behavior, result)
        metadata = {**_metadata(name, scaled), **({"annotations": annotations} if annotations else {})}
        made = {
            "scaleTargetRef": {
                "apiVersion": target.api_version or "apps/v1",
                "kind": target.kind or "Deployment",
                "name": target.name,
            },
            "minReplicas": 0 if activation.to_zero else max(spec.min_replica_count, 1),
            "maxReplicas": spec.max_replica_count,
            "metrics": [metric.spec for metric in metrics],
            **({"behavior": behavior} if behavior else {}),
        }
        return _object(self.hpa_version, "HorizontalPodAutoscaler", metadata, made)


def _object(api_version: str, kind: str, metadata: dict[str, Any], spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}


def _without_counterpart(scaled: ScaledObject) -> Iterator[str]:
    spec = scaled.spec
    if not spec.triggers:
        yield "it has no triggers"
    if spec.advanced.scaling_modifiers:
        yield "advanced.scalingModifiers: write the formula in PromQL"
    if spec.idle_replica_count:
        yield f"idleReplicaCount {spec.idle_replica_count}: an HPA has only 0"


def _activation(scaled: ScaledObject) -> Activation:
    """Return whether KEDA scales it to zero, when, and how many replicas it then starts with."""
    spec = scaled.spec
    least, types = spec.min_replica_count, {trigger.type for trigger in spec.triggers} - {"cpu", "memory"}
    if not types:  # triggers of resources are always active
        return Activation(to_zero=False, least=1)
    if spec.idle_replica_count == 0 and least > 1:
        return Activation(to_zero=True, least=least)
    if least > 0 and spec.idle_replica_count is None:
        return Activation(to_zero=False, least=1)
    # An HPA scales down after its window, and so to zero after the window and this time.
    hold = min(spec.cooldown_period - _window(scaled), _MAX_HOLD) if types == {"prometheus"} else 0
    return Activation(to_zero=True, least=1, hold_seconds=max(hold, 0))


def _window(scaled: ScaledObject) -> int:
    """Return how long the HPA waits before it scales down, in seconds."""
    window = _behavior(scaled).get("scaleDown", {}).get("stabilizationWindowSeconds")
    return window if isinstance(window, int) else _DEFAULT_WINDOW


def _behavior(scaled: ScaledObject) -> dict[str, dict[str, Any]]:
    return scaled.spec.advanced.horizontal_pod_autoscaler_config.behavior


def _delay_zero(
    scaled: ScaledObject, activation: Activation, behavior: dict[str, dict[str, Any]], result: Migrated
) -> None:
    """Let the window of scaling down be KEDA's cooldown period, unless the metrics wait for it themselves."""
    cooldown, window = scaled.spec.cooldown_period, _window(scaled)
    if cooldown < window:
        result.notes.append(f"cooldownPeriod {cooldown}: an HPA scales to zero after its window, {window} s")
    if cooldown <= window or activation.hold_seconds:
        return
    wanted = min(cooldown, _MAX_WINDOW)
    behavior.setdefault("scaleDown", {})["stabilizationWindowSeconds"] = wanted
    result.notes.append(
        f"cooldownPeriod {cooldown}: every scale-down waits {wanted} s; KEDA's HPA waits {window} s, except to zero"
    )


def _annotations(scaled: ScaledObject, behavior: dict[str, dict[str, Any]], result: Migrated) -> dict[str, str]:
    """Return our annotations for those of KEDA, and for its fallback."""
    given, annotations = scaled.metadata.annotations, {}
    for key, direction in (("paused-scale-in", "scaleDown"), ("paused-scale-out", "scaleUp")):
        if _is_set(given, key):
            behavior.setdefault(direction, {})["selectPolicy"] = "Disabled"
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
    if scaled.spec.advanced.restore_to_original_replica_count:
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
    try:
        return parse_bool(annotations.get(f"{_KEDA}{key}", "false"))
    except ValueError:
        return True


def _metadata(name: str, scaled: ScaledObject) -> dict[str, Any]:
    metadata = scaled.metadata
    labels = {key: value for key, value in metadata.labels.items() if key != _OWNER_LABEL}
    return {
        "name": name,
        **({"namespace": metadata.namespace} if metadata.namespace else {}),
        **({"labels": labels} if labels else {}),
    }
