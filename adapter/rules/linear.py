"""Regular expressions matched in linear time, as RE2 does it: all ways through the expression at once.

`re` tries one way after another, and for some expressions there are more of them than can ever be tried: `(a|a)*` has
twice as many with each letter. Here (R. Cox, "Regular Expression Matching: the Virtual Machine Approach") the ways are
threads that step through the text together, in the order in which `re` would try them, and of two that come to the
same place only the first goes on. So a step costs no more than the program is long, and the match is the same.

That is slow where `re` is fast, so an expression also knows how many ways it has: see `ways`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["Choice", "Expression", "Group", "Leaf", "Program", "Repeat", "Sequence", "largest_repeat", "spelt", "ways"]

_MAX_INSTRUCTIONS = 10_000


@dataclass(frozen=True, slots=True)
class Leaf:
    """What `re` matches in one step: one character, or (not `consumes`) a place between two."""

    text: str
    consumes: bool = True


@dataclass(frozen=True, slots=True)
class Sequence:
    """One after the other."""

    parts: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """One of them; the first that does."""

    options: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """From `low` to `high` times, or for ever where that is None; as seldom as possible if `lazy`."""

    part: Expression
    low: int
    high: int | None
    lazy: bool


@dataclass(frozen=True, slots=True)
class Group:
    """A capturing group; the first has number 1."""

    part: Expression
    number: int


Expression = Leaf | Sequence | Choice | Repeat | Group


def spelt(expression: Expression) -> str:
    """The expression for `re`."""
    match expression:
        case Leaf(text):
            return text
        case Sequence(parts):
            return "".join(spelt(part) for part in parts)
        case Choice(options):
            return f"(?:{'|'.join(spelt(option) for option in options)})"
        case Group(part, _):
            return f"({spelt(part)})"
        case Repeat(part, low, high, lazy):
            return f"(?:{spelt(part)}){{{low},{'' if high is None else high}}}{'?' if lazy else ''}"


def ways(expression: Expression, length: int) -> float:
    """How many ways through an expression `re` may have to try from one place of a text of some length."""
    match expression:
        case Leaf():
            return 1.0
        case Sequence(parts):
            product = 1.0
            for part in parts:
                product *= ways(part, length)
            return product
        case Choice(options):
            return sum(ways(option, length) for option in options)
        case Group(part, _):
            return ways(part, length)
        case Repeat(part, low, high, _):
            each = ways(part, length)
            if each == 1.0:
                return float((length if high is None else high) - min(low, length) + 1)
            # Beyond these bounds it is only ever too many, and a float has to hold it.
            return (min(each, 1e4) + 1.0) ** min(length if high is None else high, 60)


def largest_repeat(expression: Expression) -> int:
    """The product of counted repeats in one another, where it is largest."""
    match expression:
        case Leaf():
            return 1
        case Sequence(parts) | Choice(parts):
            return max((largest_repeat(part) for part in parts), default=1)
        case Group(part, _):
            return largest_repeat(part)
        case Repeat(part, low, high, _):
            return largest_repeat(part) * max(low, high or 1, 1)


@dataclass(frozen=True, slots=True)
class _Test:
    """Go on if the leaf matches here."""

    leaf: re.Pattern[str]
    consumes: bool


@dataclass(frozen=True, slots=True)
class _Save:
    """Note the place as a beginning or end of a group."""

    slot: int


@dataclass(slots=True)
class _Fork:
    """Go on at each of these instructions, the first before the others."""

    targets: list[int]


class _Accept:
    """The whole has matched."""


_Instruction = _Test | _Save | _Fork | _Accept
_Slots = tuple[int, ...]
_Thread = tuple[int, _Slots]


class Program:
    """An expression, ready to be searched for."""

    def __init__(self, expression: Expression, *, groups: int) -> None:
        """`groups` is how many capturing groups it has.

        Raises:
            ValueError: it is too large.
        """
        self._slots: _Slots = (-1,) * (2 * groups + 2)
        self._code: list[_Instruction] = []
        self._compile(Group(expression, 0))
        self._code.append(_Accept())

    def search(self, text: str) -> tuple[str | None, ...] | None:
        """The leftmost match: the whole and its groups."""
        found: _Slots | None = None
        threads: list[_Thread] = []
        for at in range(len(text) + 1):
            if found is None:
                threads.append((0, self._slots))
            elif not threads:
                break
            following: list[_Thread] = []
            seen: set[int] = set()
            for thread in threads:
                accepted = self._follow(thread, text, at, seen, following)
                if accepted is not None:
                    found = accepted  # what comes after this thread is a worse match
                    break
            threads = following
        if found is None:
            return None
        return tuple(
            text[start:end] if start >= 0 and end >= 0 else None
            for start, end in zip(found[::2], found[1::2], strict=True)
        )

    def _follow(self, thread: _Thread, text: str, at: int, seen: set[int], following: list[_Thread]) -> _Slots | None:
        """Put into `following` where a thread can be after the next character; its groups if it ends here."""
        pending = [thread]
        while pending:
            pc, slots = pending.pop()
            if pc in seen:
                continue
            seen.add(pc)
            match self._code[pc]:
                case _Fork(targets):
                    pending += [(target, slots) for target in reversed(targets)]
                case _Save(slot):
                    pending.append((pc + 1, (*slots[:slot], at, *slots[slot + 1 :])))
                case _Test(leaf, consumes):
                    if leaf.match(text, at) is None:
                        continue
                    (following if consumes else pending).append((pc + 1, slots))
                case _:
                    return slots
        return None

    def _compile(self, expression: Expression) -> None:
        if len(self._code) > _MAX_INSTRUCTIONS:
            raise ValueError("expression too large")
        code = self._code
        match expression:
            case Leaf(text, consumes):
                if text:
                    code.append(_Test(re.compile(text, re.ASCII), consumes))
            case Sequence(parts):
                for part in parts:
                    self._compile(part)
            case Group(part, number):
                code.append(_Save(2 * number))
                self._compile(part)
                code.append(_Save(2 * number + 1))
            case Choice(options):
                fork = _Fork([])
                ends = []
                code.append(fork)
                for option in options:
                    fork.targets.append(len(code))
                    self._compile(option)
                    ends.append(_Fork([]))
                    code.append(ends[-1])
                for end in ends:
                    end.targets.append(len(code))
            case Repeat(part, low, high, lazy):
                self._repeat(part, low, high, lazy=lazy)

    def _repeat(self, part: Expression, low: int, high: int | None, *, lazy: bool) -> None:
        for _ in range(low):
            self._compile(part)
        start = len(self._code)
        forks = []
        for _ in range(1 if high is None else high - low):
            forks.append(_Fork([len(self._code) + 1]))
            self._code.append(forks[-1])
            self._compile(part)
        if high is None:
            self._code.append(_Fork([start]))
        for fork in forks:
            fork.targets.append(len(self._code))
            if lazy:
                fork.targets.reverse()
