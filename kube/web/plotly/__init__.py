"""plotly.js, which draws the charts of the pages, in its basic bundle: scatter, bar and pie.

plotly-basic.min.js and LICENSE are files of the npm package plotly.js-basic-dist-min, unchanged. To update: copy them
from what `npm pack plotly.js-basic-dist-min` downloads, set VERSION and SHA256, and run tests/browser.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Final

PACKAGE: Final = "plotly.js-basic-dist-min"
VERSION: Final = "4.1.1"
SHA256: Final = "99784e3abfb07b142a15e521a439e6d9addceadb3f79553fd24c72774f0649ba"
"""Of plotly-basic.min.js."""


def plotly_js() -> str:
    """Return the script; it defines `Plotly`."""
    return files(__package__).joinpath("plotly-basic.min.js").read_text(encoding="utf-8")
