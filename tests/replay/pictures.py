"""The pictures of docs/replay.md. `make pictures` draws them again."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Final

import yaml

from replay.compare import compare
from replay.csv_source import read_csv
from replay.hpa_files import parse_hpa_document
from replay.output.comparison import Comparison
from replay.output.image import write_image
from replay.simulation import Settings, capacity_of

ROOT: Final = Path(__file__).resolve().parents[2]
FOLDER: Final = ROOT / "docs" / "img"
TRACES: Final = ROOT / "tests" / "data" / "traces"
PAGE: Final = (ROOT / "docs" / "replay.md").read_text(encoding="utf-8")
FILES: Final = dict(zip(("hpa.yaml", "proposed.yaml"), re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL), strict=False))
"""The HPAs of the page's example."""


def example() -> Comparison:
    """Return the example at the beginning of the page."""
    files = [parse_hpa_document(yaml.safe_load(text), name) for name, text in FILES.items()]
    metrics = [spec.source for file in files for spec in file.hpa.spec.metrics]
    load = read_csv(
        TRACES / "ms_db_app.csv.gz", metrics, from_ms=_ms("2018-04-25T04:00:00Z"), to_ms=_ms("2018-04-25T12:00:00Z")
    )
    return compare(files, load, Settings(capacity=capacity_of([files[0].hpa], load, {"": 100.0})))


PICTURES: Final[Mapping[str, Callable[[Path], None]]] = {
    "replay.svg": lambda path: write_image(example(), path),
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
