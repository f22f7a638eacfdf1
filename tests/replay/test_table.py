"""The table: figures of specs and reality side by side."""

import io
import re
from dataclasses import replace

import msgspec
import pytest

from replay.output.comparison import Comparison, notes, rows
from replay.output.table import print_table
from replay.results import Summary
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


def test_every_figure_of_the_summary_has_a_row() -> None:
    labels = [each.label.strip() for each in rows(compare("70"))]
    assert labels == [
        "replicas: min",
        "replicas: mean",
        "replicas: max",
        "pod-hours",
        "scale events",
        "flaps",
        "seconds in overload",
        "requests in overload",
        "of all requests",
        "seconds at maxReplicas",
        "seconds without metrics",
    ]
    assert len(labels) == len(Summary.__struct_fields__) - 1, "all but the length"


def test_figures_are_those_of_the_summary() -> None:
    comparison = compare("70")
    summary = comparison.replays[0].summary
    cells = [each.cells[0].text for each in rows(comparison)]
    assert cells[:4] == [
        str(summary.min_replicas),
        f"{summary.mean_replicas:.2f}",
        str(summary.max_replicas),
        f"{summary.pod_hours:.1f}",
    ]
    assert cells[-1] == "120"


@pytest.mark.parametrize(
    ("base", "own", "change", "better"),
    [
        (100.0, 88.0, "-12%", True),
        (100.0, 131.0, "+31%", False),
        (100.0, 100.2, "=", None),
        (1.0, 40.0, "x40", False),
        (0.0, 40.0, "", None),
        (None, 40.0, "", None),
        (40.0, None, "", None),
    ],
)
def test_figures_are_compared_with_the_first_column(
    base: float | None, own: float | None, change: str, better: bool | None
) -> None:
    comparison = compare("70", "90")
    comparison = with_summary(comparison, 0, overload_seconds=base)
    comparison = with_summary(comparison, 1, overload_seconds=own)
    first, second = row(comparison, "seconds in overload")
    assert first[1:] == ("", None)
    assert second[1:] == (change, better)


def test_reality_is_the_first_column_and_has_no_figures_of_a_spec() -> None:
    comparison = compare("70", reality=True)
    assert [each.name for each in comparison.columns] == ["reality", "shop/web-70"]
    assert [cell[0] for cell in row(comparison, "seconds at maxReplicas")] == ["-", "600"]
    assert row(comparison, "pod-hours")[0][0] == "18.0"
    assert row(comparison, "pod-hours")[1][1].endswith("%")


def test_output_to_a_file_is_plain_and_not_wrapped() -> None:
    text = printed(compare(*map(str, range(50, 100, 5)), reality=True))
    assert "\x1b" not in text
    (head,) = [line for line in text.splitlines() if "reality" in line and "shop" in line]
    assert len(re.findall(r"shop/web-\d+", head)) == 10
    assert re.search(r"pod-hours +18\.0 +\d+\.\d \([-+]\d+%\)", text)


def test_a_terminal_gets_colors() -> None:
    comparison = with_summary(compare("70", "90"), 1, pod_hours=1.0)
    assert "\x1b[32m" in printed(comparison, Terminal())


def test_names_cannot_move_the_cursor() -> None:
    text = printed(compare("70", name="a\x1b[2Jb\r[red]c[/red]"))
    assert "\x1b" not in text
    assert "\r" not in text
    assert "a?[2Jb?[red]c[/red]-70" in text


def test_notes_tell_time_gaps_and_assumptions() -> None:
    text = " ".join(notes(compare("70")))
    assert "From 2026-05-28 20:26:40 to 2026-05-28 21:26:40 UTC, a reconciliation every 15s." in text
    assert "shop/web-70: a metric has no value from 2026-05-28 21:06:40 for 2m0s." in text
    assert "a new pod is ready after 30s" in text
    assert "one ready pod can serve 100 of rps" in text
    assert "eality" not in text


def test_notes_say_that_overload_is_not_known_without_a_capacity() -> None:
    comparison = compare("70")
    comparison = replace(comparison, settings=replace(comparison.settings, capacity={}))
    assert any("not known without a capacity" in note for note in notes(comparison))


def test_many_gaps_are_counted() -> None:
    comparison = compare("70")
    replayed = replace(comparison.replays[0], gaps=[(minute * 60_000, minute * 60_000 + 15_000) for minute in range(9)])
    (note,) = [each for each in notes(replace(comparison, replays=[replayed])) if "no value" in each]
    assert note.endswith(", and 6 more.")
