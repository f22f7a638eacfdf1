"""The table of `kubectl milliscale status`."""

from typing import Any

import pytest

from autoscaler.core.model import HPA
from autoscaler.objects.hpa import track_hpa
from kubectl_milliscale.status import document, row_of, sparkline, status_of, table

NOW = 1_767_225_600.0  # 2026-01-01T00:00:00Z
HEALTHY = (
    ("AbleToScale", "True", "ReadyForNewScale", "recommended size matches current size"),
    ("ScalingActive", "True", "ValidMetricFound", ""),
    ("ScalingLimited", "False", "DesiredWithinRange", ""),
)


def hpa(*, name: str = "web", annotations: dict[str, str] | None = None, **changes: Any) -> HPA:
    """Return an HPA on packets_per_second; `changes` are fields of its status, or `spec` or `conditions`."""
    conditions = changes.pop("conditions", HEALTHY)
    spec = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
        "minReplicas": 1,
        "maxReplicas": 8,
        "metrics": [
            {
                "type": "Pods",
                "pods": {
                    "metric": {"name": "packets_per_second"},
                    "target": {"type": "AverageValue", "averageValue": "100"},
                },
            }
        ],
    }
    current = {
        "type": "Pods",
        "pods": {"metric": {"name": "packets_per_second"}, "current": {"averageValue": "62500m"}},
    }
    status = {
        "currentReplicas": 3,
        "desiredReplicas": 3,
        "lastScaleTime": "2025-12-31T23:59:15Z",
        "currentMetrics": [current],
        "conditions": [
            {
                "type": type_,
                "status": state,
                "reason": reason,
                "message": message,
                "lastTransitionTime": "2025-12-31T23:00:00Z",
            }
            for type_, state, reason, message in conditions
        ],
    }
    found = track_hpa(
        {
            "apiVersion": "autoscaling/v2",
            "kind": "HorizontalPodAutoscaler",
            "metadata": {"namespace": "shop", "name": name, "annotations": annotations or {}},
            "spec": changes.pop("spec", spec),
            "status": {**status, **changes},
        }
    )
    assert found is not None
    return found


def text(*hpas: HPA, width: int = 200, wide: bool = False, all_namespaces: bool = False) -> list[str]:
    """Return the lines of the table."""
    decisions = {each.key: [1, 2, 3] for each in hpas}
    shown = table(hpas, decisions, all_namespaces=all_namespaces, wide=wide, width=width, now=NOW)
    lines = [line.plain for line in shown]
    assert all(len(line) <= width for line in lines)
    return lines


@pytest.mark.parametrize(
    ("counts", "bars"),
    [
        ([], ""),
        ([3, 3, 3], "▁▁▁"),
        ([1, 2], "▁█"),
        ([1, 2, 3, 4, 5, 6, 7, 8], "▁▂▃▄▅▆▇█"),
        ([0, 1000, 500], "▁█▅"),
        ([2, None, 4], "▁·█"),
        ([None, None], "··"),
    ],
)
def test_sparkline_is_between_the_lowest_and_the_highest_count(counts: list[int | None], bars: str) -> None:
    assert sparkline(counts) == bars


def test_row_has_metrics_replicas_decisions_and_status() -> None:
    heading, row = text(hpa(desiredReplicas=5))
    assert heading.split("  ")[0] == "NAME"
    assert row.split() == [
        *("web", "Deployment/web", "62.5", "/", "100", "per", "pod", "(packets_per_second)"),
        *("1", "8", "3", "->", "5", "▁▅█", "45s", "ReadyForNewScale"),
    ]


@pytest.mark.parametrize(
    ("conditions", "shown"),
    [
        ((*HEALTHY[:2], ("ScalingLimited", "True", "TooManyReplicas", "at the limit")), "TooManyReplicas"),
        ((HEALTHY[0], ("ScalingActive", "False", "FailedGetPodsMetric", "no metrics")), "FailedGetPodsMetric"),
        (
            (
                ("AbleToScale", "False", "FailedGetScale", "no target"),
                ("ScalingLimited", "True", "TooManyReplicas", ""),
            ),
            "FailedGetScale",
        ),
        ((HEALTHY[0], ("ScalingActive", "False", "ScalingDisabled", "scaled to 0")), "ScalingDisabled"),
    ],
)
def test_status_is_the_reason_of_the_worst_condition(conditions: Any, shown: str) -> None:
    assert status_of(row_of(hpa(conditions=conditions)))[0] == shown


def test_status_of_a_paused_an_unreconciled_and_an_invalid_hpa() -> None:
    paused = row_of(hpa(annotations={"milliscale.io/paused": "all"}))
    assert status_of(paused)[:2] == ("Paused", "warn")
    assert status_of(row_of(hpa(conditions=()))) == ("", "", "not reconciled yet")
    invalid = row_of(hpa(spec={"maxReplicas": "many"}))
    assert status_of(invalid)[:2] == ("Invalid", "bad")
    assert "maxReplicas" in status_of(invalid)[2]


def test_narrow_terminal_shows_values_and_leaves_out_columns() -> None:
    heading, row = text(hpa(), width=70)
    assert "REFERENCE" not in heading
    assert "62.5 / 100 per pod" in row
    assert row.endswith("ReadyForNewScale")
    narrow, row = text(hpa(), width=45)
    assert narrow.split() == ["NAME", "REPLICAS", "DECISIONS", "STATUS"]
    assert row.split() == ["web", "3", "▁▅█", "ReadyForNewScale"]


def test_wide_table_has_mode_and_message() -> None:
    heading, row = text(hpa(), wide=True, all_namespaces=True)
    assert heading.split()[0] == "NAMESPACE"
    assert heading.split()[-2:] == ["MODE", "MESSAGE"]
    assert row.endswith("act   recommended size matches current size")


def test_lines_of_a_pipe_are_as_long_as_they_are() -> None:
    rows = [hpa(name=name) for name in ("web", "p" * 300)]
    heading, short, long = (line.plain for line in table(rows, {}, all_namespaces=True, wide=False, now=NOW))
    assert heading.index("REFERENCE") == short.index("Deployment/web") == long.index("Deployment/p") > 300


def test_names_are_not_markup() -> None:
    _, row = text(hpa(conditions=(("AbleToScale", "False", "[bold]Failed[/bold]", ""),)))
    assert row.endswith("[bold]Failed[/bold]")


def test_control_characters_do_not_reach_the_terminal() -> None:
    _, row = text(hpa(conditions=(("AbleToScale", "False", "Failed", "\x1b[2J\n\x9bevil"),)), wide=True)
    assert row.endswith("act   \N{REPLACEMENT CHARACTER}[2J \N{REPLACEMENT CHARACTER}evil")


@pytest.mark.parametrize(
    ("time", "since"),
    [
        (None, "-"),
        ("2026-01-01T00:00:10Z", "0s"),
        ("2025-12-31T23:58:01Z", "119s"),
        ("2025-12-31T23:57:57Z", "2m3s"),
        ("2025-12-31T23:00:00Z", "60m"),
        ("2025-12-31T20:00:00Z", "4h"),
        ("2025-12-25T00:00:00Z", "7d"),
    ],
)
def test_last_scale_is_an_age_as_kubectl_writes_it(time: str | None, since: str) -> None:
    _, row = text(hpa(lastScaleTime=time))
    assert row.split()[-2] == since


def test_document_has_numbers_and_conditions() -> None:
    (found,) = document([hpa()], {hpa().key: [1, None]})["hpas"]
    conditions = found.pop("conditions")
    assert conditions[0] == dict(zip(("type", "status", "reason", "message"), HEALTHY[0], strict=True))
    assert [one["type"] for one in conditions] == ["AbleToScale", "ScalingActive", "ScalingLimited"]
    assert found == {
        "apiVersion": "autoscaling/v2",
        "namespace": "shop",
        "name": "web",
        "target": "Deployment/web",
        "problem": "",
        "minReplicas": 1,
        "maxReplicas": 8,
        "currentReplicas": 3,
        "desiredReplicas": 3,
        "lastScaleTime": "2025-12-31T23:59:15Z",
        "metrics": [{"name": "packets_per_second", "current": "62.5", "target": "100 per pod"}],
        "decisions": [1, None],
    }
