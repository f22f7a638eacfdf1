"""Annotation overrides: valid values, refused values, and precedence."""

import pytest

from autoscaler.core.config import AnnotationOverrides, Config, Fallback, Mode, Pause, PodSelection, parse_annotations


@pytest.mark.parametrize(
    ("annotation", "text", "expected"),
    [
        ("mode", "act", AnnotationOverrides(mode=Mode.ACT)),
        ("mode", "dry-run", AnnotationOverrides(mode=Mode.DRY_RUN)),
        ("mode", "shadow", AnnotationOverrides(mode=Mode.SHADOW)),
        ("sync-period", "1s", AnnotationOverrides(sync_period=1.0)),
        ("sync-period", "1h", AnnotationOverrides(sync_period=3600.0)),
        ("sync-period", " 2m30s ", AnnotationOverrides(sync_period=150.0)),
        ("tolerance", "0", AnnotationOverrides(tolerance=0.0)),
        ("tolerance", "0.05", AnnotationOverrides(tolerance=0.05)),
        ("tolerance", "1", AnnotationOverrides(tolerance=1.0)),
        ("downscale-stabilization", "0s", AnnotationOverrides(downscale_stabilization_ms=0)),
        ("downscale-stabilization", "1h", AnnotationOverrides(downscale_stabilization_ms=3_600_000)),
        ("downscale-stabilization", "1m0.5s", AnnotationOverrides(downscale_stabilization_ms=60_500)),
        ("cpu-initialization-period", "24h", AnnotationOverrides(cpu_initialization_period_ms=86_400_000)),
        ("initial-readiness-delay", "10s", AnnotationOverrides(initial_readiness_delay_ms=10_000)),
        ("paused", "none", AnnotationOverrides()),
        ("paused", "all", AnnotationOverrides(paused=Pause.ALL)),
        ("paused", "scale-in", AnnotationOverrides(paused=Pause.SCALE_IN)),
        ("paused", "scale-out", AnnotationOverrides(paused=Pause.SCALE_OUT)),
        ("fallback-replicas", "6", AnnotationOverrides(fallback=Fallback(replicas=6, failure_threshold=3))),
        ("fallback-replicas", "1", AnnotationOverrides(fallback=Fallback(replicas=1))),
        ("fallback-replicas", "2147483647", AnnotationOverrides(fallback=Fallback(replicas=2**31 - 1))),
        ("pod-selection", "selector", AnnotationOverrides()),
        ("pod-selection", "owner", AnnotationOverrides(pod_selection=PodSelection.OWNER)),
        ("eager", "true", AnnotationOverrides(eager=True)),
        ("eager", "false", AnnotationOverrides(eager=False)),
    ],
)
def test_valid_annotations_are_parsed(annotation: str, text: str, expected: AnnotationOverrides) -> None:
    assert parse_annotations({f"milliscale.io/{annotation}": text}) == expected


def test_threshold_is_part_of_the_fallback() -> None:
    both = {"milliscale.io/fallback-replicas": "6", "milliscale.io/fallback-failure-threshold": "10"}
    assert parse_annotations(both).fallback == Fallback(replicas=6, failure_threshold=10)


@pytest.mark.parametrize(
    ("annotation", "text", "hint"),
    [
        ("mode", "observe", "write one of act, dry-run, shadow"),
        ("mode", "", "write one of act, dry-run, shadow"),
        ("sync-period", "0.9s", "write a duration from 1s to 1h0m0s, such as 30s or 1m30s"),
        ("sync-period", "61m", "write a duration from 1s to 1h0m0s, such as 30s or 1m30s"),
        ("sync-period", "15", "write a duration from 1s to 1h0m0s, such as 30s or 1m30s"),
        ("tolerance", "-0.1", "write a number from 0 to 1, such as 0.05"),
        ("tolerance", "1.01", "write a number from 0 to 1, such as 0.05"),
        ("tolerance", "nan", "write a number from 0 to 1, such as 0.05"),
        ("tolerance", "10%", "write a number from 0 to 1, such as 0.05"),
        ("tolerance", "0_1", "write a number from 0 to 1, such as 0.05"),
        ("downscale-stabilization", "-1s", "write a duration from 0s to 1h0m0s, such as 30s or 1m30s"),
        ("cpu-initialization-period", "25h", "write a duration from 0s to 24h0m0s, such as 30s or 1m30s"),
        ("initial-readiness-delay", "soon", "write a duration from 0s to 24h0m0s, such as 30s or 1m30s"),
        ("paused", "true", "write one of none, all, scale-in, scale-out"),
        ("fallback-replicas", "0", "write a whole number from 1 to 2147483647"),
        ("fallback-replicas", "9" * 5000, "write a whole number from 1 to 2147483647"),
        ("fallback-replicas", "٣", "write a whole number from 1 to 2147483647"),
        ("fallback-replicas", "2.5", "write a whole number from 1 to 2147483647"),
        ("pod-selection", "owners", "write one of selector, owner"),
        ("eager", "no" * 20, "write true or false"),
        ("eager", "yes", "write true or false"),
    ],
)
def test_invalid_value_is_ignored_and_reported(annotation: str, text: str, hint: str) -> None:
    overrides = parse_annotations({f"milliscale.io/{annotation}": text})
    shown = text if len(text) <= 40 else f"{text[:40]}..."
    assert overrides == AnnotationOverrides(
        problems=(f'annotation milliscale.io/{annotation}: "{shown}" is ignored: {hint}',)
    )


@pytest.mark.parametrize("text", ["1h0m1s", "24h", "2400000h"])
def test_window_is_limited_to_the_apis_maximum(text: str) -> None:
    """As an hour rather than not at all: the flag's five minutes would scale down sooner than the user wants."""
    problem = f'annotation milliscale.io/downscale-stabilization: "{text}" counts as 1h0m0s, the longest window that'
    overrides = parse_annotations({"milliscale.io/downscale-stabilization": text})
    assert overrides == AnnotationOverrides(
        downscale_stabilization_ms=3_600_000, problems=(f"{problem} the API allows",)
    )


@pytest.mark.parametrize("process", Mode)
@pytest.mark.parametrize("annotation", Mode)
def test_mode_allows_modes_that_write_less(process: Mode, annotation: Mode) -> None:
    writes = {Mode.SHADOW: 0, Mode.DRY_RUN: 1, Mode.ACT: 2}
    assert process.allows(annotation) == (writes[annotation] <= writes[process])


def test_invalid_annotation_does_not_affect_others() -> None:
    overrides = parse_annotations({"milliscale.io/tolerance": "much", "milliscale.io/paused": "all"})
    assert overrides.paused is Pause.ALL
    assert overrides.tolerance is None
    assert len(overrides.problems) == 1


def test_invalid_threshold_leaves_the_default() -> None:
    overrides = parse_annotations(
        {"milliscale.io/fallback-replicas": "6", "milliscale.io/fallback-failure-threshold": "often"}
    )
    assert overrides.fallback == Fallback(replicas=6, failure_threshold=3)
    assert len(overrides.problems) == 1


def test_threshold_without_fallback_is_reported() -> None:
    overrides = parse_annotations({"milliscale.io/fallback-failure-threshold": "3"})
    problem = (
        "annotation milliscale.io/fallback-failure-threshold is ignored: it needs milliscale.io/fallback-replicas"
        " beside it"
    )
    assert overrides == AnnotationOverrides(problems=(problem,))


def test_thousands_of_unknown_names_are_reported_in_six_lines() -> None:
    problems = parse_annotations({f"milliscale.io/x{number}": "" for number in range(5_000)}).problems
    assert len(problems) == 6
    assert problems[-1] == "4995 further annotations milliscale.io/... are unknown and ignored"
    assert len(parse_annotations({f"milliscale.io/x{number}": "" for number in range(5)}).problems) == 5


def test_unknown_name_is_reported_with_the_known_ones() -> None:
    (problem,) = parse_annotations({"milliscale.io/tolerence": "0.1"}).problems
    assert problem.startswith("annotation milliscale.io/tolerence is unknown and ignored; known: mode, sync-period, ")


def test_other_prefixes_are_ignored() -> None:
    others = {"kubectl.kubernetes.io/last-applied-configuration": "{}", "example.org/paused": "all", "paused": "all"}
    assert parse_annotations(others) == AnnotationOverrides()


def test_annotation_overrides_its_flag() -> None:
    overrides = AnnotationOverrides(
        tolerance=0.0,
        downscale_stabilization_ms=0,
        cpu_initialization_period_ms=0,
        initial_readiness_delay_ms=0,
        paused=Pause.SCALE_IN,
        fallback=Fallback(replicas=2),
        pod_selection=PodSelection.OWNER,
    )
    assert overrides.apply_to(Config(scale_to_zero=False)) == Config(
        tolerance=0.0,
        downscale_stabilization_ms=0,
        cpu_initialization_period_ms=0,
        initial_readiness_delay_ms=0,
        scale_to_zero=False,
        paused=Pause.SCALE_IN,
        fallback=Fallback(replicas=2),
        pod_selection=PodSelection.OWNER,
    )
