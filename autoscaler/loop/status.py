"""Writing an HPA's status.

It is written as Kubernetes' own controller writes it, to the API that the HPA was read from: PUT of the whole object to
its status subresource, on top of the version that the decision was made from. There the API server ignores the spec but
takes the metadata, so labels and annotations have to go back as they came.

Most statuses only have newer metric values than the stored one. No decision depends on these: what decisions read of a
stored status is its last scale, with the counts of replicas, and its conditions. So where the budget for requests is
short such a status waits longest, and is given up when the HPA's next step is due, which has newer values. These then
wait at the place where the old ones stood, so that every HPA's turn comes.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

import msgspec

from autoscaler.core.model import KIND, HPAKey, Status
from autoscaler.core.status import status_json
from autoscaler.loop.throttle import Superseded, ThrottledClient, Urgency
from autoscaler.objects.hpa import RefusedHPA, TrackedHPA
from autoscaler.objects.targets import targets_line
from kube.client import KubeError
from kube.status import StatusError


class StatusWriteError(Exception):
    """The status could not be written; the text is the API server's."""


class StatusWriter:
    """Writes statuses."""

    def __init__(self, client: ThrottledClient) -> None:
        self._client = client
        # Where those stood that were given up.
        self._places: dict[HPAKey, int] = {}

    @property
    def free(self) -> bool:
        """Whether a status that is written now need not wait for its turn."""
        return self._client.free

    async def write(
        self, tracked: TrackedHPA | RefusedHPA, status: Status, *, superseded: asyncio.Future[None] | None = None
    ) -> bool:
        """Replace an HPA's status; False: that was given up.

        Args:
            tracked: the HPA.
            status: its new status.
            superseded: done when a status that only has newer metric values need not be written any more.

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
            if is_news(tracked.hpa.status, status):
                await self._client.put(path, body)
            else:
                place = self._places.get(tracked.hpa.key)
                await self._client.put(path, body, urgency=Urgency.ROUTINE, unless=superseded, place=place)
        except Superseded as error:
            self._places[tracked.hpa.key] = error.place
            return False
        except (StatusError, KubeError) as error:
            raise StatusWriteError(str(error)) from error
        self.forget(tracked.hpa.key)
        return True

    def forget(self, key: HPAKey) -> None:
        """An HPA is gone, or has no status that was given up."""
        self._places.pop(key, None)


def is_news(old: Status, new: Status) -> bool:
    """Whether a status says something that no later one would say again: more than metric values, or other words."""
    return _essence(old) != _essence(new)


def _essence(status: Status) -> Status:
    conditions = tuple(replace(each, message="") for each in status.conditions)
    return replace(status, current_metrics=(), conditions=conditions)
