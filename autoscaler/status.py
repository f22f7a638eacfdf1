"""Writing an HPA's status.

It is written as Kubernetes' own controller writes it: PUT of the whole object to its status subresource, on top of the
version that the decision was made from. There the API server ignores the spec but takes the metadata, so labels and
annotations have to go back as they came.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

from autoscaler.present import status_json
from kube.client import KubeError
from kube.status import StatusError

if TYPE_CHECKING:
    from autoscaler.model import Status
    from autoscaler.throttle import ThrottledClient
    from autoscaler.watched import TrackedHPA

__all__ = ["StatusWriteError", "StatusWriter"]


class StatusWriteError(Exception):
    """The status could not be written; the text is the API server's."""


class StatusWriter:
    """Writes statuses."""

    def __init__(self, client: ThrottledClient) -> None:
        self._client = client

    async def write(self, tracked: TrackedHPA, status: Status) -> None:
        """Replace an HPA's status.

        Raises:
            StatusWriteError: it could not be written, also because the HPA has changed since it was read.
        """
        namespace, name = quote(tracked.hpa.namespace, safe=""), quote(tracked.hpa.name, safe="")
        path = f"/apis/autoscaling/v2/namespaces/{namespace}/horizontalpodautoscalers/{name}/status"
        body = {
            "apiVersion": "autoscaling/v2",
            "kind": "HorizontalPodAutoscaler",
            "metadata": tracked.metadata,
            "status": status_json(status),
        }
        try:
            await self._client.put(path, body)
        except (StatusError, KubeError) as error:
            raise StatusWriteError(str(error)) from error
