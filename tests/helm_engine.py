"""Helm's engine for tests, which is only for x86-64 Linux."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tools import render_chart
from tools.render_chart import CHART, ChartError, load_helm

IMAGE = {"image": {"repository": "milliscale"}}
"""The value without which the chart renders nothing."""


def require_helm() -> None:
    """Skip the test if there is no engine for this platform."""
    try:
        load_helm()
    except ChartError as error:
        pytest.skip(str(error))


def render(
    values: Mapping[str, Any], *, release: str = "milliscale", namespace: str = "milliscale", chart: Path = CHART
) -> dict[str, str]:
    """Render the chart with the values, and with an image's repository unless they have one."""
    image = {**IMAGE["image"], **values.get("image", {})}
    return render_chart.render({**values, "image": image}, release=release, namespace=namespace, chart=chart)
