"""Strict YAML without YAML's types: mappings, lists and the text of every scalar.

libyaml parses the text. Go's yaml.v2 is a port of libyaml, so both accept the same files. A duplicate key, an unknown
tag, an anchor that contains itself or expands beyond all bounds is an error with its line. Scalars stay text, so `as:
yes` and `matches: 404` are strings; the schema converts the other types. A key whose value is null is dropped, as for
Go's decoders; a null in a list stays.
"""

from __future__ import annotations

from typing import Any

import yaml

Tree = str | list["Tree | None"] | dict[str, "Tree"]

_MAX_BYTES = 1024 * 1024  # the maximum size of a ConfigMap
_MAX_NODES = 50_000
_MAX_DEPTH = 30
# Without libyaml, tabs after a value or before a comment are errors.
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_OPEN_QUOTE = ("while scanning a quoted scalar", "found unexpected end of stream")
_TAG = "tag:yaml.org,2002:"
_SCALAR_TAGS = frozenset(f"{_TAG}{kind}" for kind in ("str", "int", "float", "bool", "timestamp", "value"))


class RulesError(ValueError):
    """A rules file cannot be used. The message is one line: file, path in the file, and what to change."""


def parse(text: str, *, source: str) -> list[Tree]:
    """Return the documents of a text, without empty ones such as that after a final `---`.

    Raises:
        RulesError: it is not strict YAML; `source` names the text.
    """
    if len(text.encode("utf-8", "surrogatepass")) > _MAX_BYTES:
        raise RulesError(f"{source}: longer than {_MAX_BYTES} bytes")
    try:
        _check_size(text)
        reader = _Reader()
        roots = [reader.read(root, depth=1) for root in yaml.compose_all(text, Loader=_Loader) if root is not None]
    except yaml.MarkedYAMLError as error:
        is_quote = (error.context, error.problem) == _OPEN_QUOTE
        mark = error.context_mark if is_quote else error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        what = ", ".join(filter(None, (error.context, error.problem))) or "this is not YAML"
        if mark and text[mark.index : mark.index + 1] == "\t":
            what = "a tab, which YAML does not take as indentation: write spaces"
        if is_quote:
            what = "the quote that begins here does not end"
        raise RulesError(f"{source}: {where}{what}") from error
    except (yaml.YAMLError, UnicodeError) as error:
        raise RulesError(f"{source}: this is not YAML: {' '.join(str(error).split())}") from error
    return [root for root in roots if root is not None]


def _check_size(text: str) -> None:
    """Raise an error for too many or too deeply nested values, before they are composed."""
    depth = 0
    for count, event in enumerate(yaml.parse(text, Loader=_Loader)):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _MAX_DEPTH:
            raise _error(event, f"nested more than {_MAX_DEPTH} deep")
        if count > 2 * _MAX_NODES:  # collections have two events
            raise _error(event, f"more than {_MAX_NODES} values")


class _Reader:
    """Turns nodes into trees, counting what aliases expand to."""

    def __init__(self) -> None:
        self._nodes = 0

    def read(self, node: yaml.Node, *, depth: int) -> Tree | None:
        self._nodes += 1
        if self._nodes > _MAX_NODES:
            raise _error(node, f"more than {_MAX_NODES} values, aliases expanded")
        if depth > _MAX_DEPTH:
            raise _error(node, f"nested more than {_MAX_DEPTH} deep, or an alias that contains itself")
        if node.tag == f"{_TAG}null":
            return None
        if isinstance(node, yaml.ScalarNode) and node.tag in _SCALAR_TAGS:
            return str(node.value)
        if isinstance(node, yaml.MappingNode) and node.tag == f"{_TAG}map":
            return self._mapping(node, depth)
        if isinstance(node, yaml.SequenceNode) and node.tag == f"{_TAG}seq":
            return [self.read(entry, depth=depth + 1) for entry in node.value]
        raise _error(node, f"the tag {node.tag} is not supported")

    def _mapping(self, node: yaml.MappingNode, depth: int) -> dict[str, Tree]:
        merged: dict[str, Tree] = {}
        own: dict[str, Tree] = {}
        seen: set[str] = set()
        for key, value in node.value:
            tree = self.read(value, depth=depth + 1)
            if key.tag == f"{_TAG}merge":
                merged = {**_merged(value, tree), **merged}
                continue
            if not isinstance(key, yaml.ScalarNode):
                raise _error(key, "a key must be a plain word")
            if key.value in seen:
                raise _error(key, f'duplicate key "{key.value}"')
            seen.add(key.value)
            if tree is not None:
                own[key.value] = tree
        return {**merged, **own}


def _merged(node: yaml.Node, tree: Tree | None) -> dict[str, Tree]:
    """Return the keys of `<<: *other`, or of a list of mappings, where the earlier wins."""
    merged: dict[str, Tree] = {}
    for source in tree if isinstance(tree, list) else [tree]:
        if not isinstance(source, dict):
            raise _error(node, "<<: takes a mapping or a list of mappings")
        merged = {**source, **merged}
    return merged


def _error(at: Any, why: str) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=why, problem_mark=at.start_mark)
