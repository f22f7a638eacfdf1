"""The rate-limited clients of the controller.

`--kube-api-qps` and `--kube-api-burst` limit the requests for scales, statuses and events together, and those to each
metrics API separately: slow metrics APIs do not use up the budget for scaling. Writes of scales go before all other
requests that wait; the others go in the order of arrival. Without these flags the limits grow with the number of HPAs
(`autoscaler.loop.options`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from kube.client import KubeClient
from kube.flowcontrol import ThrottledClient, TokenBucket


class ThrottledClients:
    """The clients, with a bucket for scales, statuses and events, and one for each metrics API.

    Args:
        rate_limit: returns (qps, burst) of each bucket for a number of HPAs.
        may_write, on_error: as of ThrottledClient.
    """

    def __init__(
        self,
        client: KubeClient,
        *,
        rate_limit: Callable[[int], tuple[float, int]],
        may_write: Callable[[], bool],
        on_error: Callable[[str, int | None], None],
    ) -> None:
        self._rate_limit = rate_limit
        qps, burst = rate_limit(0)
        self._buckets = [TokenBucket(qps=qps, burst=burst) for _ in range(4)]
        throttled = partial(ThrottledClient, client, may_write=may_write, on_error=on_error)
        self.objects, self.resource_metrics, self.custom_metrics, self.external_metrics = map(throttled, self._buckets)
        self.scales = throttled(self._buckets[0], writes_first=True)
        self.unlimited = throttled(TokenBucket(qps=0, burst=1))

    def resize(self, hpas: int) -> None:
        """Change the limits to those for a number of HPAs."""
        qps, burst = self._rate_limit(hpas)
        for bucket in self._buckets:
            bucket.resize(qps=qps, burst=burst)
