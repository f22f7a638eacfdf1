"""Which of several autoscalers an HPA belongs to.

The number of an HPA's shard is the SHA-256 of `NAMESPACE/NAME`, its first eight bytes read as a big-endian number,
modulo the number of shards. It depends on nothing else and will not change, so all processes agree at all times, an HPA
made anew stays where it was, and one that moves between the two HPA APIs does, too. Anybody can compute it:

    printf default/web | sha256sum | cut -c1-16
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from autoscaler.core.model import HPAKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """One part of the HPAs; by default the only one, which is all of them."""

    index: int = 0
    count: int = 1

    @property
    def number(self) -> int | None:
        """The index, or None where there is only one shard."""
        return self.index if self.count > 1 else None

    def name(self, base: str) -> str:
        """What this shard's own object is called, where `base` is the name without sharding."""
        return base if self.number is None else f"{base}-{self.number}"

    def base(self, name: str) -> str:
        """The name without sharding of what is called `name` with it."""
        return name if self.number is None else name.removesuffix(f"-{self.number}")

    def owns(self, key: HPAKey) -> bool:
        """Whether an HPA is in this shard."""
        return self.count == 1 or shard_number(key.namespace, key.name, count=self.count) == self.index


def shard_number(namespace: str, name: str, *, count: int) -> int:
    """The shard of an HPA, from 0 to count - 1."""
    digest = hashlib.sha256(f"{namespace}/{name}".encode()).digest()
    return int.from_bytes(digest[:8], "big") % count


def ordinal(pod_name: str) -> int | None:
    """The number that a StatefulSet gives to its pod, at the end of the name; None: it has none."""
    found = re.search(r"-(0|[1-9][0-9]{0,8})\Z", pod_name)
    return None if found is None else int(found[1])
