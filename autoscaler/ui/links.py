"""The URLs of the pages."""

from __future__ import annotations

from urllib.parse import quote, urlencode

from autoscaler.core.model import KUBERNETES, HPAKey


def hpa_url(key: HPAKey, *segments: str, **query: str) -> str:
    """Return the URL of an HPA's page, or of one below it; parameters that are empty are left out."""
    path = "/".join(quote(each, safe="") for each in (key.namespace, key.name, *segments))
    group = "" if key.group == KUBERNETES.group else key.group
    parameters = urlencode({name: value for name, value in {"group": group, **query}.items() if value})
    return f"/hpas/{path}?{parameters}" if parameters else f"/hpas/{path}"
