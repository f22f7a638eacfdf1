"""Writing an HPA's status.

It is written as Kubernetes' own controller writes it, to the API that the HPA was read from: PUT of the whole object to
its status subresource, on top of the version that the decision was made from. There the API server ignores the spec but
takes the metadata, so labels and annotations have to go back as they came.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from autoscaler.core.apis import KIND
from autoscaler.core.present import status_json
from autoscaler.objects.targets import targets_line
from autoscaler.objects.watched import TrackedHPA
from kube.client import KubeError
from kube.status import StatusError

if TYPE_CHECKING:
    from autoscaler.core.model import Status
    from autoscaler.loop.throttle import ThrottledClient
    from autoscaler.objects.watched import RefusedHPA

__all__ = ["StatusWriteError", "StatusWriter"]


class StatusWriteError(Exception):
    """The status could not be written; the text is the API server's."""


class StatusWriter:
    """Writes statuses."""

    def __init__(self, client: ThrottledClient) -> None:
        self._client = client

    async def write(self, tracked: TrackedHPA | RefusedHPA, status: Status) -> None:
        """Replace an HPA's status.

        Raises:
            StatusWriteError: it could not be written, also because the HPA has changed since it was read.
        """
        api = tracked.api
        path = api.path(tracked.hpa.namespace, tracked.hpa.name, subresource="status")
        stored = status_json(status)
        if isinstance(tracked, TrackedHPA) and not api.built_in:
            stored["targets"] = targets_line(tracked.metrics, stored.get("currentMetrics", ()))
        metadata = msgspec.Raw(tracked.metadata)
        body = {"apiVersion": api.api_version, "kind": KIND, "metadata": metadata, "status": stored}
        try:
            await self._client.put(path, body)
        except (StatusError, KubeError) as error:
            raise StatusWriteError(str(error)) from error
