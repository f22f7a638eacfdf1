"""The colors of base.css: WCAG's contrast AA, in light and dark."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest

CSS = files("kube.web").joinpath("static", "base.css").read_text()
_PROPERTY = re.compile(r"--([a-z-]+): (#[0-9a-f]{6});")


def colors(scheme: str) -> dict[str, str]:
    light, dark = CSS.split("@media (prefers-color-scheme: dark)", 1)
    found = dict(_PROPERTY.findall(light))
    return found if scheme == "light" else found | dict(_PROPERTY.findall(dark))


def luminance(color: str) -> float:
    """WCAG's relative luminance of #rrggbb."""
    parts = [int(color[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    lighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(
    ("text", "backgrounds"),
    [
        ("fg", ["bg", "surface", "hover", "ok-soft", "warn-soft", "bad-soft", "neutral-soft", "accent-soft"]),
        ("muted", ["bg", "surface", "hover"]),
        ("accent", ["bg", "surface", "hover", "accent-soft", "ok-soft", "warn-soft", "bad-soft"]),
        ("ok", ["bg", "surface", "hover", "ok-soft"]),
        ("warn", ["bg", "surface", "hover", "warn-soft"]),
        ("bad", ["bg", "surface", "hover", "bad-soft"]),
        ("on-accent", ["accent"]),
    ],
)
def test_text_has_a_contrast_of_4_5(scheme: str, text: str, backgrounds: list[str]) -> None:
    palette = colors(scheme)
    for background in backgrounds:
        assert contrast(palette[text], palette[background]) >= 4.5, background


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_borders_of_controls_and_bars_have_a_contrast_of_3(scheme: str) -> None:
    palette = colors(scheme)
    assert contrast(palette["line-strong"], palette["surface"]) >= 3
    for fill in ("accent", "ok", "warn", "bad", "fg"):
        assert contrast(palette[fill], palette["line"]) >= 3, fill


def test_dark_changes_every_color() -> None:
    light, dark = colors("light"), colors("dark")
    assert [name for name in light if light[name] == dark[name]] == []
