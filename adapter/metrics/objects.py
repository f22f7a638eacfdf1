"""The objects that a selector matches: those of `*` in a request's path, and the pods and nodes of a list.

Only their metadata is requested, from the API server's watch cache.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import quote

from kube.api.client import KubeClient, KubeError
from kube.api.listing import list_objects
from kube.api.mapping import ResourceInfo
from kube.api.status import StatusError, internal_error, service_unavailable
from kube.values.selectors import LabelSelector

_log = logging.getLogger(__name__)

_METADATA_ONLY = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
_FAILED = "unable to list matching resources"


@dataclass(frozen=True, slots=True)
class ObjectMetadata:
    """An object's namespace ("" if it is cluster-scoped), name and labels."""

    namespace: str
    name: str
    labels: Mapping[str, str]


class ObjectNames(Protocol):
    """Finds the names of objects."""

    async def names(self, info: ResourceInfo, namespace: str, selector: LabelSelector) -> list[str]:
        """Return the sorted names of the objects that a selector matches; `namespace` is "" for cluster-scoped ones."""


class ObjectSource(Protocol):
    """Finds objects; see ListedObjects.objects."""

    async def objects(
        self, info: ResourceInfo, *, namespace: str, selector: LabelSelector, name: str = ""
    ) -> list[ObjectMetadata]:
        """Return the objects, sorted by namespace and name; `namespace` is "" for all of them, `name` for any."""


class ListedObjects:
    """Lists the objects for each request; adapter.metrics.watched_objects has them in memory."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client

    async def names(self, info: ResourceInfo, namespace: str, selector: LabelSelector) -> list[str]:
        """Return the sorted names of the objects that a selector matches.

        Raises:
            StatusError: 500 when the list request is forbidden or refused, 503 when the API server cannot be reached.
        """
        return [found.name for found in await self.objects(info, namespace=namespace, selector=selector)]

    async def objects(
        self, info: ResourceInfo, *, namespace: str, selector: LabelSelector, name: str = ""
    ) -> list[ObjectMetadata]:
        """Return the objects that a selector matches, sorted by namespace and name.

        Args:
            info: the objects' resource.
            namespace: the objects' namespace; "" for cluster-scoped objects, and for all namespaces.
            selector: selects objects.
            name: selects a single object, unless it is "". It is read with a list request, so that the right `list` is
            enough.

        Raises:
            StatusError: as for `names`.
        """
        query = {"resourceVersion": "0"}
        if not selector.empty:
            query["labelSelector"] = str(selector)
        if name:
            query["fieldSelector"] = f"metadata.name={name}"
        try:
            listed = await list_objects(
                self._client, info.path(namespace=quote(namespace, safe="")), metadata_of, query, accept=_METADATA_ONLY
            )
        except KubeError as error:
            raise service_unavailable(f"{_FAILED}: the API server cannot be reached") from error
        except StatusError as error:
            _log.info("listing %s: %s", info.group_resource, error)
            raise _refused(info, error) from error
        return sorted(listed.items, key=lambda one: (one.namespace, one.name))


def metadata_of(item: object) -> ObjectMetadata | None:
    """Decode the metadata of an object's JSON; None for anything else."""
    metadata = item.get("metadata") if isinstance(item, dict) else None
    name = metadata.get("name") if isinstance(metadata, dict) else None
    if not isinstance(metadata, dict) or not isinstance(name, str) or not name:
        return None
    namespace, labels = metadata.get("namespace"), metadata.get("labels")
    return ObjectMetadata(
        namespace if isinstance(namespace, str) else "",
        name,
        {str(key): str(value) for key, value in labels.items()} if isinstance(labels, dict) else {},
    )


def _refused(info: ResourceInfo, error: StatusError) -> StatusError:
    if error.code != 403:
        return internal_error(_FAILED)
    return internal_error(
        f'{_FAILED}: the adapter lacks the right to list resource "{info.plural}" in API group "{info.group}"'
    )
