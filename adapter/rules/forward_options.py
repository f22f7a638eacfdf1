"""`forwardExternal`: where another adapter is, and what it is shown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from adapter.upstream import ServerAccess


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardOptions(ServerAccess):
    """How another adapter is reached; see ServerAccess for the rest. `timeout` is in seconds."""

    what: ClassVar[str] = "the other adapter"
    one: ClassVar[str] = "another adapter"
    schemes: ClassVar[tuple[str, ...]] = ("https",)

    timeout: float = 10.0
