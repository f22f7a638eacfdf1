"""Shared by the tests of the documentation."""

from tests.manifests.conftest import overlays_can_be_rendered

__all__ = ["overlays_can_be_rendered"]
