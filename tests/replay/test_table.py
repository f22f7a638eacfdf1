"""The table: figures of specs and reality side by side."""

import io
import re
from dataclasses import replace

import msgspec
import pytest

from replay.output.comparison import Comparison, duration, notes, rows, verdicts
from replay.output.table import print_table
from replay.simulation import Settings, replay_hpa
from tests.replay.builders import load_of, make_hpa, pods_metric, series_of
from tests.replay.comparisons import compare


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def printed(comparison: Comparison, file: io.StringIO | None = None) -> str:
    file = io.StringIO() if file is None else file
    print_table(comparison, file)
    return file.getvalue()


def with_summary(comparison: Comparison, index: int, **figures: float | None) -> Comparison:
    """Replace figures of one replay."""
    replays = list(comparison.replays)
    replays[index] = replace(replays[index], summary=msgspec.structs.replace(replays[index].summary, **figures))
    return replace(comparison, replays=replays)


def row(comparison: Comparison, label: str) -> list[tuple[str, str, bool | None]]:
    (found,) = [each for each in rows(comparison) if each.label.strip() == label]
    return [(cell.text, cell.change, cell.better) for cell in found.cells]


@pytest.mark.parametrize(
    ("base", "own", "change", "better"),
    [
        (100.0, 88.0, "-12%", True),
        (100.0, 131.0, "+31%", False),
        (100.0, 100.2, "=", None),
        (1.0, 40.0, "x40", False),
        (0.0, 40.0, "", None),
    ],
)
def test_figures_are_compared_with_the_first_column(base: float, own: float, change: str, better: bool | None) -> None:
    comparison = compare("70", "90")
    comparison = with_summary(comparison, 0, pod_hours=base)
    comparison = with_summary(comparison, 1, pod_hours=own)
    first, second = row(comparison, "pod-hours")
    assert first[1:] == ("", None)
    assert second[1:] == (change, better)


@pytest.mark.parametrize(
    ("base", "own", "text", "change", "better"),
    [
        (0.0, 40.0, "40s", "+40s", False),
        (900.0, 150.0, "2m30s", "-12m30s", True),
        (3.0, 0.5, "0", "-2s", None),  # less than a thousandth of the hour
        (5.0, 5.0, "5s", "", None),
        (None, 40.0, "40s", "", None),
        (40.0, None, "-", "", None),
    ],
)
def test_times_differ_by_times_and_count_from_a_thousandth_on(
    base: float | None, own: float | None, text: str, change: str, better: bool | None
) -> None:
    comparison = compare("70", "90")
    comparison = with_summary(comparison, 0, overload_seconds=base)
    comparison = with_summary(comparison, 1, overload_seconds=own)
    assert row(comparison, "time in overload")[1] == (text, change, better)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0"), (59.6, "1m"), (150, "2m30s"), (3600, "1h"), (27_661, "7h41m"), (261_660, "3d1h"), (950_400, "11d")],
)
def test_durations_have_two_units(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_overloads_with_short_breaks_are_one_moment_and_ten_are_shown() -> None:
    def values(pause: int) -> list[float]:
        return ([100.0] * pause + [900.0] * 3) * 12

    (short,) = compare("90", load=load_of(rps=values(20))).replays
    assert len(short.worst) == 1
    assert short.worst[0].overload_ms == 1000 * (short.summary.overload_seconds or 0)
    (long,) = compare("90", load=load_of(rps=values(60))).replays
    assert len(long.overloads) > 10
    assert len(long.worst) == 10
    missing = [each.missing_pod_seconds for each in long.worst]
    assert missing == sorted(missing, reverse=True)


def test_worst_moments_are_those_with_the_most_overload_not_the_longest_or_last() -> None:
    peaks = [value for height in range(1000, 400, -50) for value in [20.0] * 60 + [height + 0.0] * 2]
    settings = Settings(capacity={"rps": 10.0})
    replayed = replay_hpa(
        make_hpa(min_replicas=5, max_replicas=5), load_of(rps=[*peaks, *[20.0] * 60, *[60.0] * 40]), settings
    )
    assert [round(each.missing_pod_seconds) for each in replayed.worst] == [
        30 * (height // 10 - 5) for height in range(1000, 500, -50)
    ]


def test_decision_of_a_moment_is_the_one_when_most_pods_were_missing_however_long_steps_are() -> None:
    """Pods start at first; at maxReplicas, one is missing for longer."""
    load, settings = load_of(rps=[20.0, 100.0], step_ms=600_000), Settings(capacity={"rps": 10.0})
    hpa = make_hpa(pods_metric(average="10"), min_replicas=2, max_replicas=9)
    [moment] = replay_hpa(hpa, load, settings).worst
    assert moment.decision.now_ms == load.start_ms + 600_000


def test_verdict_is_on_the_first_hpa_also_where_reality_is_recorded() -> None:
    assert " pod-hours than shop/web-70 in 1h" in verdicts(compare("70", "90", reality=True))[0]


def test_verdict_doubts_that_the_spec_is_the_cause_where_no_settings_explain_reality() -> None:
    explained, spec_only = compare("70", reality=True), compare("70")
    settings = replace(explained.settings, explains_reality=False)
    doubt = "; the spec may not be the cause, since no usual settings of a controller explain reality."
    assert verdicts(replace(explained, settings=settings)) == [verdicts(explained)[0].removesuffix(".") + doubt]
    assert verdicts(replace(spec_only, settings=settings)) == verdicts(spec_only)


def test_reality_is_the_first_column_and_has_no_figures_of_a_spec() -> None:
    comparison = compare("70", reality=True)
    assert [each.name for each in comparison.columns] == ["reality", "shop/web-70"]
    assert [cell[0] for cell in row(comparison, "time at maxReplicas")] == ["-", "10m"]
    assert row(comparison, "pod-hours")[0][0] == "18.0"
    assert row(comparison, "pod-hours")[1][1].endswith("%")


def test_reality_of_a_part_of_the_time_is_not_compared() -> None:
    comparison = compare("70", reality=True)
    assert comparison.reality is not None
    summary = msgspec.structs.replace(comparison.reality.summary, seconds=1800.0)
    comparison = replace(comparison, reality=replace(comparison.reality, summary=summary))
    assert verdicts(comparison)[0].startswith(
        f"shop/web-70 needs {row(comparison, 'pod-hours')[1][0]} pod-hours in 1h; "
    )
    assert [row(comparison, label)[1][1] for label in ("pod-hours", "time in overload")] == ["", ""]
    assert notes(comparison)[-1].startswith("Reality is recorded for 30m of 1h only")


def test_verdict_on_a_first_hpa_without_pods_has_no_share() -> None:
    comparison = with_summary(compare("70", "90"), 0, pod_hours=0.0)
    hours = comparison.replays[1].summary.pod_hours
    assert verdicts(comparison)[0].startswith(f"shop/web-90 needs {hours:.1f} pod-hours instead of 0 of shop/web-70 in")


def test_verdict_names_no_rise_that_its_times_do_not_show() -> None:
    comparison = with_summary(compare("70", "90"), 0, overload_seconds=90.0)
    comparison = with_summary(comparison, 1, overload_seconds=90.4)
    assert "overload stays at 1m30s" in verdicts(comparison)[0]


def test_notes_have_the_sync_period_of_the_annotation() -> None:
    comparison = compare("70", "90")
    annotated = make_hpa(pods_metric(average="90"), annotations={"milliscale.io/sync-period": "1m"})
    comparison = replace(comparison, hpas=[comparison.hpas[0], annotated])
    assert notes(comparison)[0].endswith(" UTC, a reconciliation every 15s or 1m0s.")


def test_output_to_a_file_is_plain_and_not_wrapped() -> None:
    text = printed(compare(*map(str, range(50, 100, 5)), reality=True))
    assert "\x1b" not in text
    (head,) = [line for line in text.splitlines() if line.strip().startswith("reality") and "shop" in line]
    assert len(re.findall(r"shop/web-\d+", head)) == 10
    assert re.search(r"pod-hours +18\.0 +\d+\.\d \([-+]\d+%\)", text)


def test_a_terminal_gets_colors() -> None:
    comparison = with_summary(compare("70", "90"), 1, pod_hours=1.0)
    assert "\x1b[32m" in printed(comparison, Terminal())


def test_names_cannot_move_the_cursor() -> None:
    text = printed(compare("70", name="a\x1b[2Jb\r[red]c[/red]"))
    assert "\x1b" not in text
    assert "\r" not in text
    assert "a\ufffd[2Jb\ufffd[red]c[/red]-70" in text


def test_notes_tell_time_gaps_and_assumptions() -> None:
    text = " ".join(notes(compare("70")))
    assert "From 2026-05-28 20:26:40 to 2026-05-28 21:26:40 UTC, a reconciliation every 15s." in text
    assert "shop/web-70: a metric has no value from 2026-05-28 21:06:40 for 2m0s." in text
    assert "a new pod is ready after 30s" in text
    assert "one ready pod can serve 100 of rps" in text
    assert "eality" not in text


def test_capacity_that_reality_showed_is_a_bound_but_not_that_of_a_moment_or_before_a_scale_up() -> None:
    rps = [800.0] * 60 + [900.0] * 100 + [2000.0] + [900.0] * 79
    rps[10] = 5000.0
    rps[50:60] = [1500.0] * 10
    load = replace(load_of(rps=rps), replicas=series_of([10.0] * 60 + [12.0] * 180))
    comparison = compare("70", load=load)
    comparison = replace(comparison, settings=replace(comparison.settings, capacity={}))
    text = " ".join(notes(comparison))
    assert "One ready pod can serve at least 80 of rps, which reality carried on Thu 2026-05-28 20:" in text
    assert text.endswith(" Reality is the recorded number of replicas.")
    small = replace(comparison, hpas=[make_hpa(pods_metric(average="81"))])
    assert "One ready pod can serve" not in " ".join(notes(small))


def test_annotations_that_have_no_effect_are_named() -> None:
    comparison = compare("70")
    wrong = make_hpa(annotations={"milliscale.io/sync-period": "-3s"})
    text = " ".join(notes(replace(comparison, hpas=[wrong])))
    assert 'shop/web-70: annotation milliscale.io/sync-period: "-3s" is ignored: ' in text


def test_many_gaps_are_counted() -> None:
    comparison = compare("70")
    replayed = replace(comparison.replays[0], gaps=[(minute * 60_000, minute * 60_000 + 15_000) for minute in range(9)])
    (note,) = [each for each in notes(replace(comparison, replays=[replayed])) if "no value" in each]
    assert note.endswith(", and 6 more.")
