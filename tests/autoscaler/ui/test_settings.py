"""The settings of an HPA, and where each is from."""

from msgspec.structs import replace

from autoscaler.core.config import Config, parse_annotations
from autoscaler.core.model import HPA, Behavior, ScaleDownRules, ScaleUpRules, ScalingPolicy
from autoscaler.ui.hpa_page import settings
from tests.autoscaler.simulated_cluster import hpa, quantity


def texts(hpa: HPA) -> dict[str, str]:
    return dict(settings(hpa, Config(), 15.0))


def test_settings_of_a_plain_hpa_are_those_of_the_flags() -> None:
    assert texts(hpa(minimum=2, maximum=7)) == {
        "bounds": "2 to 7",
        "tolerance": "0.1 down (flag), 0.1 up (flag)",
        "scale up": "without behavior, a sync at most doubles the replicas, or goes to 4",
        "scale down": "stabilization window 5m0s (flag)",
        "sync period": "15s (flag)",
    }


def test_annotations_override_flags() -> None:
    annotations = {
        "milliscale.io/tolerance": "0.05",
        "milliscale.io/downscale-stabilization": "1m",
        "milliscale.io/sync-period": "5s",
        "milliscale.io/paused": "scale-in",
        "milliscale.io/fallback-replicas": "4",
        "milliscale.io/pod-selection": "owner",
    }
    found = texts(replace(hpa(), overrides=parse_annotations(annotations)))
    assert found["tolerance"] == "0.05 down (annotation), 0.05 up (annotation)"
    assert found["scale down"] == "stabilization window 1m0s (annotation)"
    assert found["sync period"] == "5s (annotation)"
    assert found["paused"] == "scale-in (annotation)"
    assert found["fallback"] == "at least 4 replicas after 3 syncs with a failed metric (annotation)"
    assert found["pods"] == "selected by owner (annotation)"


def test_behavior_overrides_both() -> None:
    down = ScaleDownRules(policies=(ScalingPolicy("Pods", 1, 60),), tolerance=quantity(30))
    up = ScaleUpRules(select_policy="Min", stabilization_window_seconds=30)
    found = texts(
        replace(hpa(behavior=Behavior(up, down)), overrides=parse_annotations({"milliscale.io/tolerance": "0.2"}))
    )
    assert found["tolerance"] == "0.03 down (behavior), 0.2 up (annotation)"
    assert found["scale up"] == "at most 4 pods per 15s or 100% per 15s, the smaller; stabilization window 30s"
    assert found["scale down"] == "at most 1 pod per 1m0s; stabilization window 5m0s (flag)"


def test_disabled_direction_is_named() -> None:
    disabled = ScaleDownRules(select_policy="Disabled")
    assert texts(hpa(behavior=Behavior(ScaleUpRules(), disabled)))["scale down"] == "disabled"
