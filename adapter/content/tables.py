"""Tables of metrics.k8s.io: what `kubectl get pods.metrics.k8s.io` shows, in the columns that metrics-server has.

A client that wants one says so in Accept (`as=Table`), and in the parameter `includeObject` how much of each object
stands beside its row. Of an empty list there is a table of no rows, where metrics-server's has no columns either.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from adapter.content.encoding import Conversion
from adapter.content.resource_documents import (
    ListMeta,
    NodeMetrics,
    ObjectMeta,
    PodMetrics,
    document_of,
    usage_texts,
)
from adapter.metrics.usage import NodeUsage, PodUsage

TABLE_FORMS = tuple(Conversion("Table", "meta.k8s.io", version) for version in ("v1", "v1beta1"))
"""The forms of tables that a client may request."""

INCLUDED = ("Metadata", "Object", "None")
"""Values of `includeObject`: how much of the object a row includes. The first is the default."""


_Document = PodMetrics | NodeMetrics


class _Column(msgspec.Struct, frozen=True):
    name: str
    type: str = "string"
    format: str = ""
    description: str = ""
    priority: int = 0


class _Partial(msgspec.Struct, frozen=True, rename="camel"):
    """A PartialObjectMetadata."""

    kind: str
    api_version: str
    metadata: ObjectMeta


class _Row(msgspec.Struct, frozen=True):
    cells: tuple[str, ...]
    object: _Partial | _Document | None


class Table(msgspec.Struct, frozen=True, rename="camel"):
    """A meta.k8s.io Table."""

    kind: str
    api_version: str
    metadata: ListMeta
    column_definitions: tuple[_Column, ...]
    rows: tuple[_Row, ...]


_COLUMNS = (
    _Column("Name", format="name", description="Name of the resource"),
    _Column("cpu", format="quantity"),
    _Column("memory", format="quantity"),
    _Column("Window", format="duration"),
)


def usage_table(usages: Iterable[PodUsage | NodeUsage], form: Conversion, *, include: str) -> Table:
    """Return a row for each pod or node, for a pod with what its containers use together.

    Args:
        usages: the pods or nodes.
        form: one of TABLE_FORMS.
        include: one of INCLUDED.
    """
    api_version = f"{form.group}/{form.version}"

    def beside(document: _Document) -> _Document | _Partial | None:
        if include == "Object":
            return document
        return None if include == "None" else _Partial("PartialObjectMetadata", api_version, document.metadata)

    rows = []
    for usage in usages:
        document, texts = document_of(usage), usage_texts(usage.usage)
        cells = (usage.name, texts["cpu"], texts["memory"], document.window)
        rows.append(_Row(cells, beside(document)))
    return Table(form.kind, api_version, ListMeta(), _COLUMNS, tuple(rows))
