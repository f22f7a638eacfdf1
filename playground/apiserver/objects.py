"""API objects as plain JSON, and access to common fields.

Objects in the storage are shared by all readers and never changed; copy one first (`copy_of`).
"""

from __future__ import annotations

import copy
import datetime
from typing import Any, TypeAlias

Object: TypeAlias = dict[str, Any]


def child(obj: Object, *path: str) -> Object:
    """Return the JSON object at `path`; an empty one if there is none."""
    value: Any = obj
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def name_of(obj: Object) -> str:
    """Return metadata.name, or ""."""
    return str(child(obj, "metadata").get("name") or "")


def namespace_of(obj: Object) -> str:
    """Return metadata.namespace, or "" for cluster-scoped objects."""
    return str(child(obj, "metadata").get("namespace") or "")


def uid_of(obj: Object) -> str:
    """Return metadata.uid, or ""."""
    return str(child(obj, "metadata").get("uid") or "")


def labels_of(obj: Object) -> dict[str, str]:
    """Return metadata.labels."""
    return child(obj, "metadata", "labels")


def copy_of(obj: Object) -> Object:
    """Return a deep copy."""
    return copy.deepcopy(obj)


def text_time(moment: datetime.datetime) -> str:
    """Return a metav1.Time: whole seconds, in UTC."""
    return moment.astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
