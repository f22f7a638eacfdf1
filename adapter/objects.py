"""The names of the objects that a selector matches: what `*` in a request's path stands for.

Only names are wanted, so only metadata is asked for, from the API server's watch cache.
"""

from __future__ import annotations

import logging
from typing import Protocol
from urllib.parse import quote

from kube.client import KubeClient, KubeError
from kube.mapping import ResourceInfo
from kube.selectors import LabelSelector
from kube.status import StatusError, internal_error, service_unavailable

__all__ = ["ListedObjects", "ObjectNames"]

_log = logging.getLogger(__name__)

_METADATA_ONLY = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
_FAILED = "unable to list matching resources"


class ObjectNames(Protocol):
    """Where names of objects come from."""

    async def names(self, info: ResourceInfo, namespace: str, selector: LabelSelector) -> list[str]:
        """The sorted names of a resource's objects that a selector matches; `namespace` is "" at the root."""


class ListedObjects:
    """Lists the objects anew for each request."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client

    async def names(self, info: ResourceInfo, namespace: str, selector: LabelSelector) -> list[str]:
        """The sorted names of a resource's objects that a selector matches.

        Raises:
            StatusError: 500 when the adapter may not list them or the list is refused, 503 when nobody answers.
        """
        query = {"resourceVersion": "0"}
        if not selector.empty:
            query["labelSelector"] = str(selector)
        try:
            answer = await self._client.get(
                info.path(namespace=quote(namespace, safe="")), query, accept=_METADATA_ONLY
            )
        except KubeError as error:
            raise service_unavailable(f"{_FAILED}: the API server cannot be reached") from error
        except StatusError as error:
            _log.info("listing %s: %s", info.group_resource, error)
            raise _refused(info, error) from error
        items = answer.get("items")
        metadata = [item.get("metadata") for item in items or () if isinstance(item, dict)]
        names = [entry.get("name") for entry in metadata if isinstance(entry, dict)]
        return sorted(name for name in names if isinstance(name, str) and name)


def _refused(info: ResourceInfo, error: StatusError) -> StatusError:
    if error.code != 403:
        return internal_error(_FAILED)
    return internal_error(
        f'{_FAILED}: the adapter lacks the right to list resource "{info.plural}" in API group "{info.group}"'
    )
