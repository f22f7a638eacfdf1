"""The vendored plotly.js is the published file, with its licence."""

import hashlib
from importlib.resources import files

from kube.web import plotly


def test_script_is_the_file_of_the_npm_package() -> None:
    script = plotly.plotly_js()
    assert hashlib.sha256(script.encode()).hexdigest() == plotly.SHA256
    assert f"plotly.js (basic - minified) v{plotly.VERSION}\n" in script


def test_script_comes_with_its_licence() -> None:
    assert "MIT License" in files(plotly).joinpath("LICENSE").read_text()
