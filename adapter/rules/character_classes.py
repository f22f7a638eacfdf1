r"""The characters that a class of RE2 takes, as ranges of code points.

`\d`, `\s` and `\w` are Perl's, `[:alpha:]` and its like are POSIX'; in Go both take ASCII characters alone, and
`\s` has no vertical tab. Classes of Unicode (`\p{Greek}`) are not offered.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

__all__ = ["LAST", "PERL_CLASSES", "POSIX_CLASSES", "Range", "complement", "spelt_class"]

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
