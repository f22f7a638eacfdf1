"""Keep processes that divide the HPAs differently from acting at the same time.

An HPA belongs to one shard of two and to another one of three, so while `--shards` is changed two processes could own
it. The Lease of a shard only keeps two processes of the same shard apart. So each Lease also records how many shards
its holder counts, and a process does not act while another shard's Lease is alive that records another number, or none.

Whether a Lease is alive is judged as in leader election: by how long ago, by this process' own clock, it was seen to
change. Times in it are not compared with anything.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from autoscaler.loop.shards import Shard
from kube.client import KubeClient
from kube.election import ElectionSettings, boot_clock
from kube.status import StatusError

_log = logging.getLogger(__name__)

SHARDS_ANNOTATION: Final = "milliscale.io/shards"
"""On a Lease: its holder's --shards."""

_FORBIDDEN: Final = 403
_PAGE: Final = 500


@dataclass(frozen=True, slots=True)
class _Seen:
    """A Lease as it was last seen, and since when."""

    spec: Mapping[str, Any]
    since: float


class ShardLeases:
    """The Leases of the other shards.

    Args:
        client: the connection, which has to be allowed to list Leases.
        settings: the Lease of this process.
        base: what the Leases' names begin with: the whole name of one without sharding.
        shard: this process' part.
        clock: a time in seconds that only goes forward.
    """

    def __init__(
        self,
        client: KubeClient,
        settings: ElectionSettings,
        *,
        base: str,
        shard: Shard,
        clock: Callable[[], float] = boot_clock,
    ) -> None:
        self._client = client
        self._settings = settings
        self._shard = shard
        self._names = re.compile(rf"{re.escape(base)}(-(0|[1-9][0-9]*))?")
        self._clock = clock
        self._seen: dict[str, _Seen] = {}
        self._problem: str | None = None
        self._asked_at = float("-inf")

    @property
    def annotations(self) -> dict[str, str]:
        """What this process writes into its Lease."""
        return {SHARDS_ANNOTATION: str(self._shard.count)}

    @property
    def problem(self) -> str | None:
        """Why this process waits; None: it does not, or it has not tried to act lately."""
        tries = self._clock() - self._asked_at <= self._settings.lease_duration
        return self._problem if tries else None

    async def may_take(self) -> bool:
        """Whether no Lease is alive whose holder divides the HPAs differently.

        Raises:
            KubeError: the Leases could not be listed.
            StatusError: the same.
        """
        asked_at = self._asked_at = self._clock()
        try:
            leases = await self._list()
        except StatusError as error:
            if error.code != _FORBIDDEN:
                raise
            return self._without_the_right(error)
        problem = None
        for lease in leases:
            problem = self._judge(lease, asked_at) or problem
        gone = self._seen.keys() - {_name(lease) for lease in leases}
        for name in gone:
            del self._seen[name]
        self._report(problem)
        return problem is None

    def _judge(self, lease: Mapping[str, Any], now: float) -> str | None:
        """Why this process must wait for the holder of a Lease; None: it need not."""
        name, spec = _name(lease), lease.get("spec")
        spec = spec if isinstance(spec, dict) else {}
        if name == self._settings.name or not self._names.fullmatch(name):
            return None
        seen = self._seen.get(name)
        if seen is None or seen.spec != spec:
            # Not `now`: it may have changed since this was asked for.
            seen = self._seen[name] = _Seen(spec, self._clock())
        holder, duration = spec.get("holderIdentity"), spec.get("leaseDurationSeconds")
        if not isinstance(holder, str) or not holder:
            return None
        seconds = float(duration) if isinstance(duration, int) and duration > 0 else self._settings.lease_duration
        if seen.since + seconds <= now:
            return None
        count = _annotations(lease).get(SHARDS_ANNOTATION)
        if count == str(self._shard.count):
            return None
        counts = "an unknown number of shards" if count is None else f"--shards={count}"
        where = f"{self._settings.namespace}/{name}"
        return f"lease {where} is held by {holder} with {counts}, and this process has --shards={self._shard.count}"

    def _without_the_right(self, error: StatusError) -> bool:
        if self._shard.count > 1:
            self._report(f"the leases of other shards cannot be listed: {error}")
            return False
        # Most have one shard, and had no need of this right in earlier releases.
        self._report(None)
        _log.debug("not known whether others divide the HPAs into shards: %s", error)
        return True

    def _report(self, problem: str | None) -> None:
        if problem is not None and problem != self._problem:
            _log.warning("waiting before acting: %s", problem)
        self._problem = problem

    async def _list(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        query: dict[str, str | int] = {"limit": _PAGE}
        while True:
            page = await self._client.get(self._settings.collection, query, timeout=self._settings.request_seconds)
            items = page.get("items")
            found += [each for each in items if isinstance(each, dict)] if isinstance(items, list) else []
            metadata = page.get("metadata")
            token = metadata.get("continue") if isinstance(metadata, dict) else None
            if not token:
                return found
            query["continue"] = str(token)


def _name(lease: Mapping[str, Any]) -> str:
    metadata = lease.get("metadata")
    return str(metadata.get("name", "")) if isinstance(metadata, dict) else ""


def _annotations(lease: Mapping[str, Any]) -> Mapping[str, Any]:
    metadata = lease.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    return annotations if isinstance(annotations, dict) else {}
