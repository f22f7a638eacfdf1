"""Long tables in pages."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

_T = TypeVar("_T")

ROWS: Final = 100
"""Of a page."""


@dataclass(frozen=True, slots=True)
class Paged(Generic[_T]):
    """A page of the rows that contain `text`; the first page is 1."""

    rows: Sequence[_T]
    text: str
    page: int
    pages: int
    fitting: int
    total: int


def paged(fitting: Sequence[_T], *, total: int, text: str, page: int, rows: int = ROWS) -> Paged[_T]:
    """Return a page of the rows that fit, of a total; the last one if there are fewer pages."""
    pages = max(math.ceil(len(fitting) / rows), 1)
    page = min(max(page, 1), pages)
    return Paged(fitting[(page - 1) * rows : page * rows], text, page, pages, len(fitting), total)
