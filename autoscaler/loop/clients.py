"""The rate-limited clients of the controller.

`--kube-api-qps` and `--kube-api-burst` limit the requests for scales, statuses and events together, and those to each
metrics API separately: slow metrics APIs do not use up the budget for scaling. Writes of scales go before all other
requests that wait; the others are served by namespace, round robin. Without these flags the limits grow with the number
of HPAs (`autoscaler.loop.options`).

Requests in flight to a metrics API are limited, too: kube-apiserver holds a seat of the controller's priority level for
each, so one namespace with many slow metrics could delay all requests of the controller there.

Evaluations of eager HPAs (`autoscaler.loop.eager`) have slots of their own, and let all other requests of the bucket go
first. They can use up its burst, so then a sync waits for the next token.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from kube.aio.fairness import FairSemaphore
from kube.api.client import KubeClient
from kube.controller.flowcontrol import ThrottledClient, TokenBucket

# So many namespaces may have one request in flight each beyond the limit.
_SPARE = 256


class ThrottledClients:
    """The clients, with a bucket for scales, statuses and events, and one for each metrics API.

    Args:
        rate_limit: returns (qps, burst) of each bucket for a number of HPAs.
        in_flight: returns how many requests to each metrics API may be in flight for a number of HPAs. A namespace that
            has none in flight need not wait.
        metrics_seconds: limit of a request for metrics, with all its retries.
        may_write, on_error: as of ThrottledClient.
    """

    def __init__(
        self,
        client: KubeClient,
        *,
        rate_limit: Callable[[int], tuple[float, int]],
        in_flight: Callable[[int], int],
        metrics_seconds: float,
        may_write: Callable[[], bool],
        on_error: Callable[[str, int | None], None],
    ) -> None:
        self._rate_limit = rate_limit
        self._in_flight = in_flight
        qps, burst = rate_limit(0)
        self._buckets = [TokenBucket(qps=qps, burst=burst) for _ in range(4)]
        # For syncs and, from the fourth on, for eager evaluations.
        self._slots = [FairSemaphore(in_flight(0), spare=_SPARE) for _ in range(6)]
        throttled = partial(ThrottledClient, client, may_write=may_write, on_error=on_error)
        self.objects = throttled(self._buckets[0])
        self.resource_metrics, self.custom_metrics, self.external_metrics = (
            throttled(bucket, slots=slots, get_seconds=metrics_seconds)
            for bucket, slots in zip(self._buckets[1:], self._slots[:3], strict=True)
        )
        self.eager = [
            throttled(bucket, slots=slots, get_seconds=metrics_seconds, last=True)
            for bucket, slots in zip(self._buckets[1:], self._slots[3:], strict=True)
        ]
        self.scales = throttled(self._buckets[0], writes_first=True)
        self.unlimited = throttled(TokenBucket(qps=0, burst=1))

    def resize(self, hpas: int) -> None:
        """Change the limits to those for a number of HPAs."""
        qps, burst = self._rate_limit(hpas)
        for bucket in self._buckets:
            bucket.resize(qps=qps, burst=burst)
        for slots in self._slots:
            slots.resize(self._in_flight(hpas))
