"""Shared by the chart's tests."""

import pytest

from tests.helm_engine import require_helm
from tests.manifests.conftest import overlays_can_be_rendered

__all__ = ["overlays_can_be_rendered"]


@pytest.fixture(autouse=True, scope="session")
def helm_is_available() -> None:
    """Skip where there is no wheel of Helm's engine."""
    require_helm()
