r"""The characters that a class of RE2 takes, as ranges of code points.

`\d`, `\s` and `\w` are Perl's, `[:alpha:]` and its like are POSIX'; in Go both take ASCII characters alone, and
`\s` has no vertical tab. Unicode's are its general categories (`\pL`, `\p{Lu}`); its scripts (`\p{Greek}`), which Go
has, too, are unknown to Python and not offered.
"""

from __future__ import annotations

import functools
import itertools
import unicodedata
from collections.abc import Iterable, Mapping

__all__ = ["LAST", "PERL_CLASSES", "POSIX_CLASSES", "Range", "complement", "spelt_class", "unicode_class"]

LAST = 0x10FFFF
"""The last code point."""

Range = tuple[int, int]
"""Code points, from the first to the last."""

_DIGIT: tuple[Range, ...] = ((0x30, 0x39),)
_SPACE: tuple[Range, ...] = ((0x09, 0x0A), (0x0C, 0x0D), (0x20, 0x20))  # without \v, unlike Python
_WORD: tuple[Range, ...] = ((0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A))

PERL_CLASSES: Mapping[str, tuple[Range, ...]] = {"d": _DIGIT, "s": _SPACE, "w": _WORD}
POSIX_CLASSES: Mapping[str, tuple[Range, ...]] = {
    "alnum": ((0x30, 0x39), (0x41, 0x5A), (0x61, 0x7A)),
    "alpha": ((0x41, 0x5A), (0x61, 0x7A)),
    "ascii": ((0x00, 0x7F),),
    "blank": ((0x09, 0x09), (0x20, 0x20)),
    "cntrl": ((0x00, 0x1F), (0x7F, 0x7F)),
    "digit": _DIGIT,
    "graph": ((0x21, 0x7E),),
    "lower": ((0x61, 0x7A),),
    "print": ((0x20, 0x7E),),
    "punct": ((0x21, 0x2F), (0x3A, 0x40), (0x5B, 0x60), (0x7B, 0x7E)),
    "space": ((0x09, 0x0D), (0x20, 0x20)),
    "upper": ((0x41, 0x5A),),
    "word": _WORD,
    "xdigit": ((0x30, 0x39), (0x41, 0x46), (0x61, 0x66)),
}


def unicode_class(name: str) -> tuple[Range, ...] | None:
    """The characters of a general category, such as `Lu`, or of a group of them, such as `L`; None for other names."""
    categories = _categories()
    match name:
        case "Any":
            return ((0, LAST),)
        case "ASCII":
            return POSIX_CLASSES["ascii"]
        case "Assigned":
            return complement(categories["Cn"])
        case "LC":
            members: tuple[str, ...] = ("Lu", "Ll", "Lt")
        case _:
            members = tuple(one for one in categories if name in (one, one[0]))
    ranges = [one for member in members for one in categories[member]]
    # Twice turned round, they are in order, and those that touch are one.
    return complement(complement(ranges)) if ranges else None


@functools.cache
def _categories() -> Mapping[str, tuple[Range, ...]]:
    """Every code point by its category; it takes some tenths of a second to look at them all."""
    ranges: dict[str, list[Range]] = {}
    for category, some in itertools.groupby(range(LAST + 1), lambda code: unicodedata.category(chr(code))):
        codes = list(some)
        ranges.setdefault(category, []).append((codes[0], codes[-1]))
    return {category: tuple(found) for category, found in ranges.items()}


def complement(ranges: Iterable[Range]) -> tuple[Range, ...]:
    """Every code point that is in none of these."""
    out: list[Range] = []
    free = 0
    for low, high in sorted(ranges):
        if low > free:
            out.append((free, low - 1))
        free = max(free, high + 1)
    if free <= LAST:
        out.append((free, LAST))
    return tuple(out)


def spelt_class(ranges: Iterable[Range]) -> str:
    """A class in Python's syntax; of no ranges, what matches nothing at all."""
    taken = "".join(f"\\U{low:08x}-\\U{high:08x}" for low, high in ranges)
    return f"[{taken}]" if taken else r"(?!)"
