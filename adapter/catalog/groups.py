"""The API groups that are served, and their versions, the preferred one first."""

from __future__ import annotations

CUSTOM_GROUP = "custom.metrics.k8s.io"
CUSTOM_VERSIONS = ("v1beta1", "v1beta2")
EXTERNAL_GROUP = "external.metrics.k8s.io"
EXTERNAL_VERSIONS = ("v1beta1",)
RESOURCE_GROUP = "metrics.k8s.io"
RESOURCE_VERSIONS = ("v1beta1",)
