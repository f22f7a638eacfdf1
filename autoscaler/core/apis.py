"""The APIs whose HorizontalPodAutoscalers are reconciled: Kubernetes' own, and ours of the same schema.

An HPA of `autoscaling/v2` does not say which controller is responsible for it, so Kubernetes' controller takes every
one of them, and two loops on one HPA overwrite each other. One of `milliscale.io/v1` is nobody else's. That is why both
kinds are told apart everywhere: each has a watch of its own, a status is written back where the HPA came from, and two
HPAs of the same name, one in each API, never share a memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

KIND: Final = "HorizontalPodAutoscaler"
"""In both APIs."""
_RESOURCE: Final = "horizontalpodautoscalers"


@dataclass(frozen=True, slots=True, kw_only=True)
class HPAApi:
    """One of the APIs."""

    name: str
    """What the command line calls it."""
    group: str
    version: str
    built_in: bool
    """Whether every API server serves it, and completes and checks what clients send as Kubernetes does."""

    @property
    def api_version(self) -> str:
        """As objects spell it."""
        return f"{self.group}/{self.version}"

    @property
    def collection(self) -> str:
        """The path of the HPAs of all namespaces."""
        return f"/apis/{self.api_version}/{_RESOURCE}"

    def path(self, namespace: str, name: str = "", *, subresource: str = "") -> str:
        """The path of a namespace's HPAs, of one, or of a subresource of it; names may hold any characters."""
        parts = [f"/apis/{self.api_version}/namespaces", namespace and quote(namespace, safe=""), _RESOURCE]
        return "/".join([*parts, *filter(None, (quote(name, safe=""), subresource))])


KUBERNETES: Final = HPAApi(name="kubernetes", group="autoscaling", version="v2", built_in=True)
MILLISCALE: Final = HPAApi(name="milliscale", group="milliscale.io", version="v1", built_in=False)
HPA_APIS: Final = (KUBERNETES, MILLISCALE)
"""All of them."""
