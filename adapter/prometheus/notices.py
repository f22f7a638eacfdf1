"""What a response says beside its result: warnings, and whether it is partial, without what could not be read.

Prometheus marks what its engine says with "PromQL". Any other warning is about what could not be read: of a store, of a
server for remote read, or beyond a limit. VictoriaMetrics has `isPartial` instead.
"""

from __future__ import annotations

import re
from typing import Literal, TypeAlias

import msgspec

PartialResponses: TypeAlias = Literal["fail", "allow"]
"""Whether a partial response is a failure."""

_OF_THE_ENGINE = re.compile(r"PromQL (?:warning|info): |[0-9]+ more (?:warning|info) annotations omitted$")


class Notices(msgspec.Struct, rename="camel"):
    """The warnings and notes of a response; others in its place are malformed."""

    warnings: list[str] | None = None
    infos: list[str] | None = None
    is_partial: bool | None = None

    @property
    def partial(self) -> str:
        """Why the response is partial; "" if it is complete."""
        if self.is_partial:
            return "isPartial is true"
        return next((text for text in self.warnings or () if not _OF_THE_ENGINE.match(text)), "")

    @property
    def notes(self) -> tuple[str, ...]:
        """The warnings and notes."""
        return (*(self.warnings or ()), *(self.infos or ()))

    def alone(self) -> Notices:
        """Return the notices without the response."""
        return Notices(self.warnings, self.infos, self.is_partial)
