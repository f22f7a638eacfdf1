"""Many names as one regular expression that is shorter than the list of them.

The names of a Deployment's pods have most of their letters in common: `web-5d9f-a|web-5d9f-b` is `web-5d9f-(a|b)`.
What comes out matches the same names and no other, as Prometheus matches: from the first letter to the last.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_METACHARACTERS = re.compile(r"[\\.+*?()|\[\]{}^$]")
# A group costs its two parentheses; one that saves no more is not worth reading.
_GROUP_COST = 2


def escaped(name: str) -> str:
    """A name as it is matched by a regular expression of Go's."""
    return _METACHARACTERS.sub(r"\\\g<0>", name)


def alternation(names: Iterable[str]) -> str:
    """One expression for all the names, common beginnings written once."""
    return "|".join(_alternatives(sorted(set(names)), 0))


def _alternatives(names: Sequence[str], start: int) -> list[str]:
    """The alternatives for sorted names, from a position on that all of them have in common."""
    out: list[str] = []
    first = 0
    while first < len(names):
        last = first + 1
        while last < len(names) and names[last][start : start + 1] == names[first][start : start + 1]:
            last += 1
        out += _group(names[first:last], start)
        first = last
    return out


def _group(names: Sequence[str], start: int) -> list[str]:
    """The alternatives for names that go on with the same letter."""
    if len(names) == 1:
        return [escaped(names[0][start:])]
    # Of sorted texts, what the first and the last begin with is what all begin with.
    first, last = names[0], names[-1]
    common = start
    while common < len(first) and first[common : common + 1] == last[common : common + 1]:
        common += 1
    prefix = escaped(first[start:common])
    inner = _alternatives(names, common)
    if len(prefix) * (len(inner) - 1) > _GROUP_COST:
        return [f"{prefix}({'|'.join(inner)})"]
    return [prefix + one for one in inner]
