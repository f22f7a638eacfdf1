"""Label selectors: `app=web,tier in (front,back),!legacy`.

Parsing, matching, canonical form and errors are those of Kubernetes 1.36; `LabelWords` has the wording of an older one.
A selector is a text (query parameters, the scale subresource) or a metav1.LabelSelector (an HPA's metrics, workloads).
Upstream: labels.Parse, metav1.LabelSelectorAsSelector
"""

import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgspec

from kube.values import fields, names
from kube.values.names import LABEL_WORDS, LabelWords

_TOKEN = re.compile(r"[ \t\r\n]*(?:(!=|==|[=!(),<>])|([^ \t\r\n=!(),<>]+)|\Z)")
_INTEGER = re.compile(r"[+-]?[0-9]{1,1000}")


class SelectorError(ValueError):
    """Invalid label selector; with Kubernetes' message."""


class Operator(enum.Enum):
    """The operator of a requirement. Upstream: selection.Operator."""

    EQUALS = "="
    DOUBLE_EQUALS = "=="
    NOT_EQUALS = "!="
    IN = "in"
    NOT_IN = "notin"
    EXISTS = "exists"
    DOES_NOT_EXIST = "!"
    GREATER_THAN = "gt"
    LESS_THAN = "lt"


_BINARY_OPERATORS = {
    "=": Operator.EQUALS,
    "==": Operator.DOUBLE_EQUALS,
    "!=": Operator.NOT_EQUALS,
    "in": Operator.IN,
    "notin": Operator.NOT_IN,
    ">": Operator.GREATER_THAN,
    "<": Operator.LESS_THAN,
}
_SIGNS = {operator: sign for sign, operator in _BINARY_OPERATORS.items()}
_OBJECT_OPERATORS = {
    "In": Operator.IN,
    "NotIn": Operator.NOT_IN,
    "Exists": Operator.EXISTS,
    "DoesNotExist": Operator.DOES_NOT_EXIST,
}


class _Expression(msgspec.Struct):
    key: str | None = None
    operator: str | None = None
    values: list[str] | None = None


class _ObjectSelector(msgspec.Struct, rename="camel"):
    """A metav1.LabelSelector."""

    match_labels: dict[str, str] | None = None
    match_expressions: list[_Expression] | None = None


@dataclass(frozen=True, slots=True)
class Requirement:
    """A condition on one label; `values` are sorted and distinct."""

    key: str
    operator: Operator
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether labels meet it. An absent label meets `!=`, `notin` and `!`."""
        value = labels.get(self.key)
        match self.operator:
            case Operator.EXISTS:
                return value is not None
            case Operator.DOES_NOT_EXIST:
                return value is None
            case Operator.NOT_EQUALS | Operator.NOT_IN:
                return value is None or value not in self.values
            case Operator.GREATER_THAN | Operator.LESS_THAN:
                return value is not None and self._compares(value)
            case _:
                return value is not None and value in self.values

    def _compares(self, value: str) -> bool:
        actual, bound = _parse_int64(value), _parse_int64(self.values[0])
        if actual is None or bound is None:
            return False
        return actual > bound if self.operator is Operator.GREATER_THAN else actual < bound

    def __str__(self) -> str:
        match self.operator:
            case Operator.EXISTS:
                return self.key
            case Operator.DOES_NOT_EXIST:
                return f"!{self.key}"
            case Operator.IN | Operator.NOT_IN:
                return f"{self.key} {self.operator.value} ({','.join(self.values)})"
            case _:
                return f"{self.key}{_SIGNS[self.operator]}{self.values[0]}"


@dataclass(frozen=True)
class LabelSelector:
    """A conjunction of requirements, sorted by key. Without any it selects everything."""

    requirements: tuple[Requirement, ...] = ()
    """All must be met."""
    nothing: bool = False
    """It selects nothing, like an absent metav1.LabelSelector."""

    @classmethod
    def parse(cls, text: str, *, words: LabelWords = LABEL_WORDS) -> "LabelSelector":
        """Parse a selector.

        Raises:
            SelectorError: with Kubernetes' message, in `words` about labels.
        """
        return cls(_sorted(_Parser(text, words).parse()))

    @classmethod
    def from_object(cls, selector: Mapping[str, Any] | None) -> "LabelSelector":
        """Convert a metav1.LabelSelector. None selects nothing, `{}` everything.

        Raises:
            SelectorError: with Kubernetes' message.
        """
        if selector is None:
            return cls(nothing=True)
        try:
            given = msgspec.convert(selector, _ObjectSelector)
        except msgspec.ValidationError as error:
            raise SelectorError(f"a label selector cannot be read: {error}") from None
        labels = sorted((given.match_labels or {}).items())
        requirements = [_checked(key, Operator.EQUALS, [value]) for key, value in labels]
        for one in given.match_expressions or ():
            operator = _OBJECT_OPERATORS.get(one.operator or "")
            if operator is None:
                raise SelectorError(f"{fields.quote(one.operator or '')} is not a valid label selector operator")
            requirements.append(_checked(one.key or "", operator, one.values or []))
        return cls(_sorted(requirements))

    @property
    def empty(self) -> bool:
        """True if it selects everything."""
        return not self.requirements and not self.nothing

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether an object with these labels is selected."""
        return not self.nothing and all(requirement.matches(labels) for requirement in self.requirements)

    def __str__(self) -> str:
        return self._text

    @cached_property
    def _text(self) -> str:
        return ",".join(map(str, self.requirements))


EVERYTHING = LabelSelector()
"""Selects all objects."""


class _Parser:
    """Recursive descent over the tokens; `""` is the end of the text.

    `in` and `notin` are operators in the place of an operator only; elsewhere they are keys or values.
    """

    def __init__(self, text: str, words: LabelWords) -> None:
        self._words = words
        self._tokens = [match[1] or match[2] or "" for match in _TOKEN.finditer(text)]
        self._position = 0

    def parse(self) -> list[Requirement]:
        requirements: list[Requirement] = []
        if not self._next_is("!") and not self._next_is_word() and self._peek():
            raise SelectorError(f"found '{self._peek()}', expected: !, identifier, or 'end of string'")
        while self._peek():
            try:
                requirements.append(self._requirement())
            except SelectorError as error:
                raise SelectorError(f"unable to parse requirement: {error}") from None
            end = self._take()
            if not end:
                break
            if end != ",":
                raise SelectorError(f"found '{end}', expected: ',' or 'end of string'")
            if not self._next_is("!") and not self._next_is_word():
                raise SelectorError(f"found '{self._peek()}', expected: identifier after ','")
        return requirements

    def _requirement(self) -> Requirement:
        absent = self._next_is("!")
        if absent:
            self._take()
        key = self._take()
        if not _is_word(key):
            raise SelectorError(f"found '{key}', expected: identifier")
        if errors := names.qualified_name_errors(key, words=self._words):
            raise SelectorError(fields.invalid("<nil>", key, "; ".join(errors)))
        if absent:
            return Requirement(key, Operator.DOES_NOT_EXIST)
        if self._peek() in ("", ","):
            return Requirement(key, Operator.EXISTS)
        sign = self._take()
        operator = _BINARY_OPERATORS.get(sign)
        if operator is None:
            raise SelectorError(f"found '{sign}', expected: in, notin, =, ==, !=, gt, lt")
        values = self._values() if operator in (Operator.IN, Operator.NOT_IN) else [self._exact_value()]
        return _checked(key, operator, values, words=self._words)

    def _exact_value(self) -> str:
        if self._peek() in ("", ","):
            return ""
        value = self._take()
        if not _is_word(value):
            raise SelectorError(f"found '{value}', expected: identifier")
        return value

    def _values(self) -> list[str]:
        start = self._take()
        if start != "(":
            raise SelectorError(f"found '{start}' expected: '('")
        if not self._next_is_word() and self._peek() not in (",", ")"):
            raise SelectorError(f"found '{self._peek()}', expected: ',', ')' or identifier")
        if self._next_is(")"):
            self._take()
            return [""]
        values = self._listed_values()
        self._take()
        return values

    def _listed_values(self) -> list[str]:
        """Parse the values before the closing parenthesis.

        A missing value is the empty string: `(a,)`, `(,a)`, `(a,,b)`. But `(a,,)` is an error, because Kubernetes
        consumes two commas at once and then expects another value.
        """
        values: list[str] = []
        while True:
            item = self._take()
            if _is_word(item):
                values.append(item)
                if self._next_is(")"):
                    return values
                if not self._next_is(","):
                    raise SelectorError(f"found '{self._peek()}', expected: ',' or ')'")
            elif item == ",":
                if not values or self._peek() in (",", ")"):
                    values.append("")
                if self._next_is(")"):
                    return values
                if self._next_is(","):
                    self._take()
            else:
                raise SelectorError(f"found '{item}', expected: ',', or identifier")

    def _peek(self) -> str:
        return self._tokens[self._position]

    def _take(self) -> str:
        token = self._tokens[self._position]
        self._position += 1
        return token

    def _next_is(self, sign: str) -> bool:
        return self._peek() == sign

    def _next_is_word(self) -> bool:
        return _is_word(self._peek())


def _is_word(token: str) -> bool:
    return bool(token) and token[0] not in "=!(),<>"


def _checked(key: str, operator: Operator, values: list[str], *, words: LabelWords = LABEL_WORDS) -> Requirement:
    """Validate a requirement; all errors are in one exception."""
    errors = []
    if found := names.qualified_name_errors(key, words=words):
        errors.append(fields.invalid("key", key, "; ".join(found)))
    if operator in (Operator.IN, Operator.NOT_IN) and not values:
        errors.append(fields.invalid("values", None, "for 'in', 'notin' operators, values set can't be empty"))
    if operator in (Operator.EXISTS, Operator.DOES_NOT_EXIST) and values:
        errors.append(fields.invalid("values", values, "values set must be empty for exists and does not exist"))
    distinct = sorted(set(values))
    if operator in (Operator.GREATER_THAN, Operator.LESS_THAN) and _parse_int64(distinct[0]) is None:
        errors.append(
            fields.invalid("values[0]", distinct[0], "for 'Gt', 'Lt' operators, the value must be an integer")
        )
    for index, value in enumerate(distinct):
        if found := names.label_value_errors(value, words=words):
            errors.append(fields.invalid(f"values[{index}][{key}]", value, "; ".join(found)))
    if errors:
        raise SelectorError(fields.aggregate(errors))
    return Requirement(key, operator, tuple(distinct))


def _sorted(requirements: list[Requirement]) -> tuple[Requirement, ...]:
    return tuple(sorted(requirements, key=lambda requirement: requirement.key))


def _parse_int64(text: str) -> int | None:
    if not _INTEGER.fullmatch(text):
        return None
    number = int(text)
    return number if -(2**63) <= number < 2**63 else None
