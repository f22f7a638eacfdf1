"""The defaults of an HPA's spec in Kubernetes 1.36.

`minReplicas` 1, 80 % of the requested CPU without metrics, and the rate limits of `behavior`, if there is one, for each
field by itself. The window of scaleDown stays unset: it is a flag of the controller
(--horizontal-pod-autoscaler-downscale-stabilization).

Upstream: v2.SetDefaults_HorizontalPodAutoscaler, v2.GenerateHPAScaleUpRules.
"""

from collections.abc import Mapping
from typing import Any

from msgspec import UNSET, UnsetType

from autoscaler.objects.apitypes import (
    Behavior,
    MetricSpec,
    MetricTarget,
    ResourceMetricSource,
    ScalingPolicy,
    ScalingRules,
    Spec,
    decode_hpa,
    encode_spec,
)


def default_hpa(obj: Mapping[str, Any]) -> dict[str, Any]:
    """Return a new object whose `spec` has the defaults, canonical quantities and known fields only.

    Everything but the spec is that of the given object.

    Raises:
        ParseError: a field has the wrong type, or a text is no quantity.
    """
    spec = decode_hpa(obj).spec
    set_defaults(spec)
    return {**obj, "spec": encode_spec(spec)}


def set_defaults(spec: Spec) -> None:
    """Fill in the defaults, in place."""
    if spec.min_replicas is UNSET:
        spec.min_replicas = 1
    if not spec.metrics:
        target = MetricTarget(type="Utilization", average_utilization=80)
        spec.metrics = [MetricSpec(type="Resource", resource=ResourceMetricSource(name="cpu", target=target))]
    if not isinstance(spec.behavior, UnsetType):
        _set_behavior_defaults(spec.behavior)


def _set_behavior_defaults(behavior: Behavior) -> None:
    behavior.scale_up = up = behavior.scale_up or ScalingRules()
    behavior.scale_down = down = behavior.scale_down or ScalingRules()
    if up.stabilization_window_seconds is UNSET:
        up.stabilization_window_seconds = 0
    if up.policies is UNSET:
        up.policies = [
            ScalingPolicy(type="Pods", value=4, period_seconds=15),
            ScalingPolicy(type="Percent", value=100, period_seconds=15),
        ]
    if down.policies is UNSET:
        down.policies = [ScalingPolicy(type="Percent", value=100, period_seconds=15)]
    for rules in (up, down):
        if rules.select_policy is UNSET:
            rules.select_policy = "Max"
