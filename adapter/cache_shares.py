"""Which entries a full cache evicts, so that no namespace evicts those of others.

All namespaces' own rules together have a part of the cache. If it is full, the oldest entry of the namespace that has
the most is evicted. If the whole cache is full, the oldest entry of the rules for all namespaces is, the owner "".
"""

from __future__ import annotations

from typing import Generic, TypeVar

K = TypeVar("K")


class CacheShares(Generic[K]):
    """The sizes of a cache's entries, by owner: a namespace, or "" for the rules for all namespaces."""

    def __init__(self, max_size: int, *, of_namespaces: int) -> None:
        """`max_size` is of all entries, `of_namespaces` that of all namespaces together."""
        self._max_size = max_size
        self._of_namespaces = of_namespaces
        self._entries: dict[str, dict[K, int]] = {}
        self._sizes: dict[str, int] = {}
        self.size = 0

    def largest(self, owner: str) -> int:
        """Return the largest size that an entry of an owner can have."""
        return self._of_namespaces // 4 if owner else self._max_size

    def size_of(self, owner: str) -> int:
        """Return the size of an owner's entries."""
        return self._sizes.get(owner, 0)

    def add(self, owner: str, key: K, size: int) -> None:
        """Add an entry, or count one as used now, with another size."""
        self.discard(owner, key)
        self._entries.setdefault(owner, {})[key] = size
        self._sizes[owner] = self._sizes.get(owner, 0) + size
        self.size += size

    def discard(self, owner: str, key: K) -> None:
        """Remove an entry, if it is there."""
        size = self._entries.get(owner, {}).pop(key, None)
        if size is None:
            return
        self.size -= size
        self._sizes[owner] -= size
        if not self._entries[owner]:
            del self._entries[owner], self._sizes[owner]

    def to_evict(self, owner: str, size: int) -> K | None:
        """Return the entry to evict before one of this size is added; None: there is room."""
        common = self._sizes.get("", 0)
        if owner and self.size - common + size > self._of_namespaces:
            having = {one: each for one, each in self._sizes.items() if one}
        elif self.size + size > self._max_size:
            having = {"": common} if common else self._sizes
        else:
            return None
        # The owner's share includes the new entry; without another entry of its own, it is not the one to evict.
        sizes = {one: each + (size if one == owner else 0) for one, each in having.items()}
        return next(iter(self._entries[max(sizes, key=sizes.__getitem__)])) if sizes else None
