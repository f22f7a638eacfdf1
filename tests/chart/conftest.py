"""Shared by the chart's tests."""

import pytest

from tests.manifests.conftest import overlays_can_be_rendered
from tools.render_chart import ChartError, load_helm

__all__ = ["overlays_can_be_rendered"]


@pytest.fixture(autouse=True, scope="session")
def helm_is_available() -> None:
    """Skip where there is no wheel of Helm's engine."""
    try:
        load_helm()
    except ChartError as error:
        pytest.skip(str(error))
