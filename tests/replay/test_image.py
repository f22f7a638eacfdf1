"""The picture of a comparison: an SVG that is the same in every run."""

import re
from pathlib import Path

import pytest

from tests.replay.comparisons import compare
from tests.replay.image import figure, write_image


def test_svg_is_reproducible_and_has_texts(tmp_path: Path) -> None:
    comparison = compare("70", "90", reality=True)
    for name in ("one.svg", "two.svg"):
        write_image(comparison, tmp_path / name)
    text = (tmp_path / "one.svg").read_text()
    assert text == (tmp_path / "two.svg").read_text()
    assert not re.search(r"<dc:date>|Matplotlib", text)
    assert ">shop/web-90<" in text
    edges = [edge for axes in figure(comparison).axes for edge in axes.get_position().bounds]
    assert edges == pytest.approx([round(edge, 4) for edge in edges], abs=1e-12)


def test_picture_shows_load_replicas_and_overload() -> None:
    comparison = compare("70", "98", reality=True)
    load, replicas, rows = figure(comparison).axes
    assert len(load.lines) == 3, "the load, and the target of each spec"
    assert [line.get_label() for line in replicas.lines] == ["reality", "shop/web-70", "shop/web-98"]
    assert [label.get_text() for label in rows.get_yticklabels()] == ["reality", "shop/web-70", "shop/web-98"]
    gaps = [len(each.get_paths()) for each in rows.collections[1::2]]
    assert gaps == [0, 1, 1]
    assert rows.get_xlabel() == "time (UTC)"


def test_names_are_not_formulas(tmp_path: Path) -> None:
    write_image(compare("70", name="$\\frac{ & <b>"), tmp_path / "replay.svg")
    assert "$\\frac{ &amp; &lt;b&gt;-70" in (tmp_path / "replay.svg").read_text()
