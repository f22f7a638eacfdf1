"""The pictures of docs/replay.md. `make pictures` draws them again."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import yaml

from replay.csv_source import read_csv
from replay.hpa_files import parse_hpa_document
from replay.output.charts import COLORS
from replay.output.comparison import Comparison, compare
from replay.output.names import named
from replay.results import Summary
from replay.simulation import Settings, capacity_of, replay_hpa
from replay.tune.fields import Candidate
from replay.tune.specs import candidate_object
from tests.replay.image import write_image

ROOT: Final = Path(__file__).resolve().parents[2]
FOLDER: Final = ROOT / "docs" / "img"
TRACES: Final = ROOT / "tests" / "data" / "traces"
PAGE: Final = (ROOT / "docs" / "replay.md").read_text(encoding="utf-8")
FILES: Final = dict(zip(("hpa.yaml", "proposed.yaml"), re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL), strict=False))
"""The HPAs of the page's example."""
_SHAPES: Final[Mapping[str, Candidate]] = {
    "default behavior": {},
    "tolerances 0.03": {"scaleUp.tolerance": 0.03, "scaleDown.tolerance": 0.03},
}
_TARGETS: Final = (65, 70, 75, 80, 85, 90, 95)


def example() -> Comparison:
    """Return the example at the beginning of the page."""
    files = [parse_hpa_document(yaml.safe_load(text), name) for name, text in FILES.items()]
    metrics = [spec.source for file in files for spec in file.hpa.spec.metrics]
    load = read_csv(
        TRACES / "ms_db_app.csv.gz", metrics, from_ms=_ms("2018-04-25T04:00:00Z"), to_ms=_ms("2018-04-25T12:00:00Z")
    )
    return compare(
        named([file.hpa for file in files]), load, Settings(capacity=capacity_of([files[0].hpa], {"": 100.0}))
    )


def trade_off() -> dict[str, list[tuple[int, Summary]]]:
    """Return {other fields: (target, figures) of each} of some specs on hours with jumps of the load."""
    document = yaml.safe_load(FILES["hpa.yaml"])
    given = parse_hpa_document(document, "hpa.yaml")
    load = read_csv(
        TRACES / "ms_db_app.csv.gz",
        [spec.source for spec in given.hpa.spec.metrics],
        from_ms=_ms("2018-04-25T05:00:00Z"),
        to_ms=_ms("2018-04-25T09:00:00Z"),
    )
    settings = Settings(capacity=capacity_of([given.hpa], {"": 100.0}))
    curves: dict[str, list[tuple[int, Summary]]] = {}
    for name, shape in _SHAPES.items():
        curves[name] = []
        for target in _TARGETS:
            changed = candidate_object(document, given.hpa, load, settings, {**shape, "target": float(target)})
            hpa = parse_hpa_document(changed, name).hpa
            curves[name].append((target, replay_hpa(hpa, load, settings, sentences=False).summary))
    return curves


def write_trade_off(path: Path) -> None:
    """Draw pod-hours against overload, with the target of each point."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    style: dict[Any, Any] = {
        "svg.fonttype": "none",
        "svg.hashsalt": "milliscale",
        "font.size": 9.0,
        "legend.frameon": False,
    }
    with mpl.rc_context({**mpl.rcParamsDefault, **style, "backend": "agg"}):
        picture = Figure(figsize=(7, 3.6))
        picture.subplots_adjust(left=0.1, right=0.97, bottom=0.14, top=0.95)
        axes = picture.add_subplot()
        for (name, points), color, shift in zip(trade_off().items(), COLORS, ((5, 4), (-20, -10)), strict=False):
            x = [round(100 * (figures.overload_ratio or 0.0), 4) for _, figures in points]
            y = [round(figures.pod_hours, 1) for _, figures in points]
            axes.plot(x, y, marker="o", markersize=4, linewidth=1.1, color=color, label=name)
            for index, (target, _) in enumerate(points):
                axes.annotate(f"{target}%", (x[index], y[index]), xytext=shift, textcoords="offset points", color=color)
        axes.margins(0.08)
        axes.set_xlabel("requests in overload, % of all")
        axes.set_ylabel("pod-hours")
        axes.grid(color="#d8dee4")
        axes.legend(loc="upper right")
        picture.savefig(path, format="svg", metadata={"Date": None, "Creator": None})


PICTURES: Final[Mapping[str, Callable[[Path], None]]] = {
    "replay.svg": lambda path: write_image(example(), path),
    "trade-off.svg": write_trade_off,
}
"""{file in docs/img: what draws it}."""


def _ms(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)


def main() -> None:
    """Draw all pictures."""
    FOLDER.mkdir(exist_ok=True)
    for name, draw in PICTURES.items():
        draw(FOLDER / name)
        sys.stdout.write(f"{FOLDER / name}\n")


if __name__ == "__main__":
    main()
