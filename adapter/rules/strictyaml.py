"""YAML as a configuration file may use it: strict about mistakes, and small whatever a hostile author wrote.

A duplicate key, a second document, an unknown tag, an anchor that grows beyond all bounds when it is expanded, or one
that contains itself: each is one clear error with its line. Scalars stay the text that was written, so that
`as: yes` or `matches: 404` mean what they say, whatever YAML would make of them; whoever knows the wanted type
converts. A key whose value is null is as good as absent, as it is for Go's decoders; an entry of a list that is null
stays one, since it has its place there.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

import yaml
from yaml.composer import ComposerError

Tree = str | list["Tree | None"] | dict[str, "Tree"]

_MAX_BYTES = 1024 * 1024  # the most that fits into a ConfigMap
_MAX_NODES = 50_000
_MAX_DEPTH = 30

# The signs after the | of a block scalar, where a tab follows.
_INDICATORS = re.compile(r"(?:([+-])([1-9])?|([1-9])?([+-])?)\t")
_LINE_BREAKS = "\r\n\x85\u2028\u2029"
_TAG = "tag:yaml.org,2002:"
_PLAIN_TAGS = frozenset({"str", "int", "float", "bool", "timestamp", "value"})
_BOOLEANS = {
    spelt: value
    for value, words in ((True, ("true", "yes", "on", "y")), (False, ("false", "no", "off", "n")))
    for word in words
    for spelt in (word, word.capitalize(), word.upper())
}


class StrictYamlError(ValueError):
    """The text cannot be used; the message says where and why."""


def parse(text: str, *, booleans: Collection[tuple[str, str]] = ()) -> Tree | None:
    """The one document in a text, as dicts, lists and strings; None when there is nothing in it.

    Empty documents, such as the one that a `---` at the end begins, do not count.

    Args:
        text: the YAML.
        booleans: the keys of booleans, each after the key that it is under; between quotes there is none.

    Raises:
        StrictYamlError: it is no YAML, or not of the strict kind.
    """
    roots = _compose(text)
    if len(roots) > 1:
        raise _error(roots[1], "expected a single document in the stream, but found another")
    return _Reader(booleans).read(roots[0], depth=0) if roots else None


def parse_all(text: str, *, booleans: Collection[tuple[str, str]] = ()) -> list[Tree]:
    """All documents in a text; see `parse`."""
    reader = _Reader(booleans)
    return [reader.read(root, depth=0) for root in _compose(text)]


def _compose(text: str) -> list[yaml.Node]:
    if len(text.encode("utf-8", "surrogatepass")) > _MAX_BYTES:
        raise StrictYamlError(f"longer than {_MAX_BYTES} bytes")
    try:
        roots = list(yaml.compose_all(text, Loader=_Loader))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        what = ", ".join(filter(None, (error.context, error.problem))) or "this is not YAML"
        raise StrictYamlError(where + what) from error
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        # PyYAML itself trips over what is beyond all numbers: "\U7fffffff", or a %YAML version of 5000 digits.
        raise StrictYamlError(f"this is not YAML: {' '.join(str(error).split())}") from error
    return [root for root in roots if root is not None and not _is_null(root)]


def boolean(text: str) -> bool:
    """What YAML takes a plain word for.

    Raises:
        ValueError: it is not a boolean.
    """
    value = _BOOLEANS.get(text)
    if value is None:
        raise ValueError(f"expected true or false, got {text!r}")
    return value


class _Loader(yaml.SafeLoader):
    """Stops where something is nested too deep, instead of reading on: its scanner takes quadratic time over depth.

    The pure Python loader, because libyaml's overflows the C stack. Like libyaml, and Go's port of it, it takes tabs
    where they separate and do not indent: at the end of a line, before a comment, between words.
    """

    _depth = 0

    def scan_to_next_token(self) -> None:
        """Skip spaces, line breaks and comments, and tabs where no key could begin."""
        super().scan_to_next_token()
        while self.peek() == "\t" and (self.flow_level or not self.allow_simple_key):
            self._skip_blanks()
            super().scan_to_next_token()

    def scan_plain_spaces(self, indent: int, start_mark: Any) -> Any:
        """Read what is between the words of a plain scalar."""
        length = 0
        while self.peek(length) in " \t":
            length += 1
        blanks = self.prefix(length)
        if "\t" not in blanks:
            return super().scan_plain_spaces(indent, start_mark)
        self._skip_blanks()
        if self.peek() in _LINE_BREAKS:
            return super().scan_plain_spaces(indent, start_mark)
        return [blanks]

    def scan_block_scalar_indicators(self, start_mark: Any) -> Any:
        """Read the signs after the `|` or `>` of a block scalar: what becomes of its last line break, its indent."""
        found = _INDICATORS.match(self.prefix(3))
        if found is None:
            return super().scan_block_scalar_indicators(start_mark)
        self.forward(found.end() - 1)
        chomping, indent = found[1] or found[4], found[2] or found[3]
        return chomping and chomping == "+", indent and int(indent)

    def scan_block_scalar_ignored_line(self, start_mark: Any) -> None:
        """Read what follows the `|` or `>` of a block scalar."""
        self._skip_blanks()
        super().scan_block_scalar_ignored_line(start_mark)

    def _skip_blanks(self) -> None:
        while self.peek() in " \t":
            self.forward()

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Read a node and all that is in it."""
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            where = self.peek_event().start_mark  # type: ignore[no-untyped-call]  # the stubs say no more
            raise ComposerError(None, None, f"nested more than {_MAX_DEPTH} deep", where)
        node: yaml.Node | None = super().compose_node(parent, index)
        self._depth -= 1
        return node


class _Reader:
    """Turns nodes into plain values, counting what aliases expand to."""

    def __init__(self, booleans: Collection[tuple[str, str]]) -> None:
        self._booleans = booleans
        self._nodes = 0

    def read(self, node: yaml.Node, *, depth: int, under: str = "") -> Tree:
        """What a node says; `under` is the key whose value it is."""
        self._nodes += 1
        if self._nodes > _MAX_NODES:
            raise _error(node, f"more than {_MAX_NODES} values, aliases expanded")
        if depth > _MAX_DEPTH:
            raise _error(node, f"nested more than {_MAX_DEPTH} deep, or an alias that contains itself")
        if isinstance(node, yaml.MappingNode) and node.tag == f"{_TAG}map":
            return self._mapping(node, depth=depth, under=under)
        if isinstance(node, yaml.SequenceNode) and node.tag == f"{_TAG}seq":
            return [None if _is_null(entry) else self.read(entry, depth=depth + 1) for entry in node.value]
        if isinstance(node, yaml.ScalarNode) and node.tag.removeprefix(_TAG) in _PLAIN_TAGS:
            return _text(node)
        raise _error(node, f"the tag {node.tag} has no place here")

    def _mapping(self, node: yaml.MappingNode, *, depth: int, under: str) -> dict[str, Tree]:
        merged: dict[str, Tree] = {}
        own: dict[str, Tree] = {}
        seen: set[str] = set()
        for key, value in node.value:
            if key.tag == f"{_TAG}merge":
                merged = {**self._merge(value, depth=depth, under=under), **merged}
                continue
            if not isinstance(key, yaml.ScalarNode):
                raise _error(key, "a key must be a plain word")
            word = _text(key)
            if word in seen:
                raise _error(key, f'duplicate key "{word}"')
            seen.add(word)
            if (under, word) in self._booleans and _is_quoted(value) and value.value in _BOOLEANS:
                raise _error(value, f"{word} takes true or false, and between quotes that is text")
            if not _is_null(value):
                own[word] = self.read(value, depth=depth + 1, under=word)
        return {**merged, **own}

    def _merge(self, value: yaml.Node, *, depth: int, under: str) -> dict[str, Tree]:
        """`<<: *other`, or a list of them, where the earlier wins."""
        sources = value.value if isinstance(value, yaml.SequenceNode) else [value]
        merged: dict[str, Tree] = {}
        for source in sources:
            if not isinstance(source, yaml.MappingNode):
                raise _error(source, "<<: takes a mapping or a list of mappings")
            read = self.read(source, depth=depth + 1, under=under)
            merged = {**(read if isinstance(read, dict) else {}), **merged}
        return merged


def _is_null(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.tag == f"{_TAG}null"


def _is_quoted(node: yaml.Node) -> bool:
    """Whether it is text for its quotes; a tag before them can make it something else."""
    return isinstance(node, yaml.ScalarNode) and bool(node.style) and node.tag == f"{_TAG}str"


def _text(node: yaml.ScalarNode) -> str:
    """What a scalar says. An escape can spell half a surrogate pair, which no file, log or request can carry."""
    text = str(node.value)
    if any("\ud800" <= char <= "\udfff" for char in text):
        raise _error(node, f"{text!r} has half a character: write it out instead of escaping it")
    return text


def _error(node: yaml.Node, why: str) -> StrictYamlError:
    return StrictYamlError(f"line {node.start_mark.line + 1}, column {node.start_mark.column + 1}: {why}")
