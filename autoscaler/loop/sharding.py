"""Divide the objects of a controller among several processes, each of which acts on one shard.

The number of an object's shard is the SHA-256 of `NAMESPACE/NAME`, its first eight bytes read as a big-endian number,
modulo the number of shards. It depends on nothing else and will not change, so all processes agree at all times:

    printf default/web | sha256sum | cut -c1-16

While `--shards` is changed, an object could belong to two processes, of which each holds the Lease of its own shard. So
each Lease also records the number of shards that its holder runs with, and a process does not act while the Lease of
another shard is held with another number, or with none.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from autoscaler.objects.decoding import convert
from kube.api.client import KubeClient, KubeUnreachable
from kube.api.objects import ParseError
from kube.api.status import StatusError
from kube.controller.election import ElectionSettings
from kube.process.runtime import boot_clock

_log = logging.getLogger(__name__)

SHARDS_ANNOTATION: Final = "milliscale.io/shards"
"""Annotation of a Lease: the --shards of its holder."""

_FORBIDDEN: Final = 403


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """One part of the objects; by default the only one, which has all of them."""

    index: int = 0
    count: int = 1

    def name(self, base: str) -> str:
        """The name of this shard's own Lease or ConfigMap: `base`, with the index if there are several shards."""
        return base if self.count == 1 else f"{base}-{self.index}"

    def base(self, name: str) -> str:
        """The reverse of `name()`."""
        return name if self.count == 1 else name.removesuffix(f"-{self.index}")

    def owns(self, namespace: str, name: str) -> bool:
        """True if an object is in this shard."""
        return self.count == 1 or shard_number(namespace, name, count=self.count) == self.index


def shard_number(namespace: str, name: str, *, count: int) -> int:
    """The shard of an object, from 0 to count - 1."""
    digest = hashlib.sha256(f"{namespace}/{name}".encode()).digest()
    return int.from_bytes(digest[:8], "big") % count


def pod_ordinal(pod_name: str) -> int | None:
    """The ordinal of a StatefulSet's pod, at the end of its name; None: the name has none."""
    found = re.search(r"-(0|[1-9][0-9]{0,8})\Z", pod_name)
    return None if found is None else int(found[1])


class _Metadata(msgspec.Struct):
    name: str = ""
    annotations: dict[str, str] | None = None


class _Lease(msgspec.Struct):
    metadata: _Metadata
    spec: dict[str, Any] | None = None


class _LeaseList(msgspec.Struct):
    items: list[_Lease] | None = None


class ShardLeases:
    """Compares the number of shards with the holders of the other shards' Leases.

    A Lease has expired when it has not changed for its duration by this process' own clock, as in leader election.

    Args:
        client: the connection, which has to be allowed to list Leases.
        settings: the Lease of this process.
        shard: the shard of this process.
        clock: a time in seconds that only goes forward.
    """

    def __init__(
        self,
        client: KubeClient,
        settings: ElectionSettings,
        *,
        shard: Shard,
        clock: Callable[[], float] = boot_clock,
    ) -> None:
        self._client = client
        self._settings = settings
        self._shard = shard
        self._names = re.compile(rf"{re.escape(shard.base(settings.name))}(-(0|[1-9][0-9]*))?")
        self._clock = clock
        # A Lease's spec, and since when, by this process' clock, it has been the same.
        self._observed: dict[str, tuple[dict[str, Any] | None, float]] = {}
        self._problem: str | None = None
        self._checked_at = float("-inf")

    @property
    def annotations(self) -> dict[str, str]:
        """The annotations of this process' Lease."""
        return {SHARDS_ANNOTATION: str(self._shard.count)}

    @property
    def problem(self) -> str | None:
        """Why this process must not take its Lease; None: it may, or it has not tried to lately."""
        is_trying = self._clock() - self._checked_at <= self._settings.lease_duration
        return self._problem if is_trying else None

    async def may_take(self) -> bool:
        """True if no Lease is held with another number of shards.

        Raises:
            KubeError: the Leases could not be listed.
            StatusError: the same.
        """
        now = self._checked_at = self._clock()
        try:
            page = await self._client.get(self._settings.collection, timeout=self._settings.request_seconds)
        except StatusError as error:
            if error.code != _FORBIDDEN:
                raise
            if self._shard.count > 1:
                self._report(f"the leases of other shards cannot be listed: {error}")
                return False
            # A single shard had no need of this right in earlier releases.
            self._report(None)
            _log.debug("cannot check the number of shards of other processes: %s", error)
            return True
        try:
            leases = convert(page, _LeaseList, "LeaseList").items or []
        except ParseError as error:
            raise KubeUnreachable(f"the API server's response is no list of leases: {error}") from error
        problems = [self._conflict(lease, now) for lease in leases]
        for name in self._observed.keys() - {lease.metadata.name for lease in leases}:
            del self._observed[name]
        self._report(next(filter(None, problems), None))
        return self._problem is None

    def _conflict(self, lease: _Lease, now: float) -> str | None:
        """Why this process must wait until a Lease expires; None: it need not."""
        name, spec = lease.metadata.name, lease.spec or {}
        if name == self._settings.name or not self._names.fullmatch(name):
            return None
        if name not in self._observed or self._observed[name][0] != spec:
            # Not `now`: it may have changed after the request was sent.
            self._observed[name] = spec, self._clock()
        holder = spec.get("holderIdentity")
        duration = spec.get("leaseDurationSeconds")
        seconds = duration if isinstance(duration, int) and duration > 0 else self._settings.lease_duration
        if not holder or self._observed[name][1] + seconds <= now:
            return None
        count = (lease.metadata.annotations or {}).get(SHARDS_ANNOTATION)
        if count == str(self._shard.count):
            return None
        other = "an unknown number of shards" if count is None else f"--shards={count}"
        where = f"{self._settings.namespace}/{name}"
        return f"lease {where} is held by {holder} with {other}, and this process has --shards={self._shard.count}"

    def _report(self, problem: str | None) -> None:
        if problem is not None and problem != self._problem:
            _log.warning("waiting before acting: %s", problem)
        self._problem = problem
