"""Shared by the chart's tests."""

import pytest

from tests.manifests.conftest import overlays_can_be_rendered

__all__ = ["overlays_can_be_rendered"]


@pytest.fixture(autouse=True, scope="session")
def helm_is_available() -> None:
    """Skip where there is no wheel of Helm's engine."""
    pytest.importorskip("helm_python", reason="helm-python-sdk has wheels for x86-64 Linux only")
