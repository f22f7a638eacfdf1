"""API objects as the server handles them: plain JSON, never changed once stored.

An API server passes objects of many kinds through and looks into few of their fields, so they stay JSON here; these
helpers are the few looks that every part takes. What is in the storage is shared by all readers: whoever wants to
change an object copies it first (`copy_of`).
"""

from __future__ import annotations

import copy
import datetime
from typing import Any, TypeAlias

Object: TypeAlias = dict[str, Any]


def child(obj: Object, *path: str) -> Object:
    """The JSON object at `path`; an empty one where there is none, or something else."""
    value: Any = obj
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def name_of(obj: Object) -> str:
    """metadata.name, or ""."""
    return str(child(obj, "metadata").get("name") or "")


def namespace_of(obj: Object) -> str:
    """metadata.namespace, or "" for what is cluster-scoped."""
    return str(child(obj, "metadata").get("namespace") or "")


def uid_of(obj: Object) -> str:
    """metadata.uid, or ""."""
    return str(child(obj, "metadata").get("uid") or "")


def labels_of(obj: Object) -> dict[str, str]:
    """metadata.labels."""
    return child(obj, "metadata", "labels")


def copy_of(obj: Object) -> Object:
    """A deep copy, to be changed."""
    return copy.deepcopy(obj)


def text_time(moment: datetime.datetime) -> str:
    """metav1.Time: whole seconds, in UTC."""
    return moment.astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
