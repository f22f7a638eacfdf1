"""Strict YAML without YAML's types: mappings, lists and the text of every scalar.

libyaml does the parsing, of which Go's yaml.v2 is a port, so that both take the same files. A duplicate key, an unknown
tag, an anchor that contains itself or expands beyond all bounds is an error with its line. Scalars stay text, so that
`as: yes` and `matches: 404` mean what they say; the schema knows the types. A key whose value is null is dropped, as
for Go's decoders; a null in a list stays.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml

Tree = str | list["Tree | None"] | dict[str, "Tree"]

_MAX_BYTES = 1024 * 1024  # the most that fits into a ConfigMap
_MAX_NODES = 50_000
_MAX_DEPTH = 30
# Without libyaml, tabs after a value or before a comment are errors.
_Loader: Any = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
_TAG = "tag:yaml.org,2002:"
_SCALAR_TAGS = frozenset(f"{_TAG}{kind}" for kind in ("str", "int", "float", "bool", "timestamp", "null"))
_NULLS = frozenset({"", "~", "null", "Null", "NULL"})


class StrictYamlError(ValueError):
    """The text cannot be used; the message says where and why."""


def parse(text: str) -> list[Tree]:
    """Return the documents of a text, without empty ones such as that after a final `---`.

    Raises:
        StrictYamlError: it is not YAML, or not of the strict kind.
    """
    if len(text.encode("utf-8", "surrogatepass")) > _MAX_BYTES:
        raise StrictYamlError(f"longer than {_MAX_BYTES} bytes")
    try:
        return list(_Composer(yaml.parse(text, Loader=_Loader)).documents())
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        what = ", ".join(filter(None, (error.context, error.problem))) or "this is not YAML"
        raise StrictYamlError(where + what) from error
    except (yaml.YAMLError, UnicodeError) as error:
        raise StrictYamlError(f"this is not YAML: {' '.join(str(error).split())}") from error


@dataclass(frozen=True, slots=True)
class _Anchored:
    """The value of an anchor, with the number of nodes in it and its depth."""

    tree: Tree | None
    nodes: int
    depth: int


class _Composer:
    """Builds trees from parser events, and counts what aliases expand to."""

    def __init__(self, events: Iterator[yaml.Event]) -> None:
        self._events = events
        self._anchors: dict[str, _Anchored] = {}
        self._nodes = 0
        self._deepest = 0

    def documents(self) -> Iterator[Tree]:
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                self._anchors.clear()
                tree = self._node(next(self._events), depth=1)
                if tree is not None:
                    yield tree

    def _node(self, event: Any, *, depth: int) -> Tree | None:
        before, outer = self._nodes, self._deepest
        self._deepest = depth
        if isinstance(event, yaml.AliasEvent):
            tree = self._alias(event, depth)
        else:
            self._count(event, 1, depth)
            self._anchors.pop(event.anchor, None)
            tree = self._content(event, depth)
            if event.anchor:
                self._anchors[event.anchor] = _Anchored(tree, self._nodes - before, self._deepest - depth)
        self._deepest = max(outer, self._deepest)
        return tree

    def _alias(self, event: Any, depth: int) -> Tree | None:
        anchored = self._anchors.get(event.anchor)
        if anchored is None:
            raise _error(event, f"there is no complete value with the anchor {event.anchor}")
        self._deepest = depth + anchored.depth
        self._count(event, anchored.nodes, self._deepest)
        return anchored.tree

    def _content(self, event: Any, depth: int) -> Tree | None:
        tag = None if event.tag == "!" else event.tag
        if isinstance(event, yaml.ScalarEvent) and (tag is None or tag in _SCALAR_TAGS):
            if tag == f"{_TAG}null" or (event.implicit[0] and event.value in _NULLS):
                return None
            return str(event.value)
        if isinstance(event, yaml.MappingStartEvent) and tag in (None, f"{_TAG}map"):
            return self._mapping(depth)
        if isinstance(event, yaml.SequenceStartEvent) and tag in (None, f"{_TAG}seq"):
            entries = iter(self._next, None)
            return [self._node(entry, depth=depth + 1) for entry in entries]
        raise _error(event, f"the tag {tag} is not supported")

    def _next(self) -> yaml.Event | None:
        """The next event of a collection; None at its end."""
        event = next(self._events)
        return None if isinstance(event, yaml.CollectionEndEvent) else event

    def _mapping(self, depth: int) -> dict[str, Tree]:
        merged: dict[str, Tree] = {}
        own: dict[str, Tree] = {}
        seen: set[str] = set()
        for event in iter(self._next, None):
            if isinstance(event, yaml.ScalarEvent) and event.implicit[0] and event.value == "<<":
                merged = {**self._merge(depth), **merged}
                continue
            key = self._node(event, depth=depth)
            if not isinstance(key, str):
                raise _error(event, "a key must be a plain word")
            if key in seen:
                raise _error(event, f'duplicate key "{key}"')
            seen.add(key)
            value = self._node(next(self._events), depth=depth + 1)
            if value is not None:
                own[key] = value
        return {**merged, **own}

    def _merge(self, depth: int) -> dict[str, Tree]:
        """The keys of `<<: *other`, or of a list of mappings, where the earlier wins."""
        event = next(self._events)
        value = self._node(event, depth=depth + 1)
        merged: dict[str, Tree] = {}
        for source in value if isinstance(value, list) else [value]:
            if not isinstance(source, dict):
                raise _error(event, "<<: takes a mapping or a list of mappings")
            merged = {**source, **merged}
        return merged

    def _count(self, event: Any, nodes: int, depth: int) -> None:
        self._nodes += nodes
        if self._nodes > _MAX_NODES:
            raise _error(event, f"more than {_MAX_NODES} values, aliases expanded")
        if depth > _MAX_DEPTH:
            raise _error(event, f"nested more than {_MAX_DEPTH} deep")


def _error(event: Any, why: str) -> StrictYamlError:
    return StrictYamlError(f"line {event.start_mark.line + 1}, column {event.start_mark.column + 1}: {why}")
