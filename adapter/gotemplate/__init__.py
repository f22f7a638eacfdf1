"""The part of Go's text/template that rules files use, between `<<` and `>>`.

A rule's metricsQuery and resources.template are Go templates. Most only put `.Series`, `.LabelMatchers` and `.GroupBy`
in their places; some index, range, compare and format. All of that is here: fields, variables, index, slice, len,
range, if, else, with, break, continue, comparison and logic functions, print, printf, println, pipelines, parentheses,
comments and trimming of white space. Nested templates (define, template, block) and the escaping functions of HTML
and URLs are not.

Go finds most mistakes when a template runs. Here a template is checked when it is loaded: a function, field, variable
or construct that does not exist is a TemplateError that names it, before the first request. `lexer` cuts text into
tokens, `literals` reads the constants among them, `parser` makes `nodes` of them, `render` fills them in, `functions`
holds the built-in ones, and `uses` tells what a template does with a field.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from adapter.gotemplate.nodes import TemplateError, Value
from adapter.gotemplate.parser import parse
from adapter.gotemplate.render import render
from adapter.gotemplate.uses import only_writes

__all__ = ["Template", "TemplateError", "Value"]


class Template:
    """A template that has been parsed and checked.

    Attributes:
        source: its text.
    """

    __slots__ = ("_nodes", "source")

    def __init__(self, source: str, *, fields: Iterable[str]) -> None:
        """Parse a template whose data has exactly these fields.

        Raises:
            TemplateError: with the action that is wrong, and why.
        """
        self.source = source
        self._nodes = parse(source, frozenset(fields))

    def __eq__(self, other: object) -> bool:
        """Compare the sources."""
        return isinstance(other, Template) and self.source == other.source

    def __hash__(self) -> int:
        """Hash the source."""
        return hash(self.source)

    def render(self, data: Mapping[str, Value]) -> str:
        """Fill it in.

        Raises:
            TemplateError: what is only known with the data, such as an index out of range.
        """
        return render(self._nodes, data)

    def only_writes(self, field: str) -> bool:
        """Tell whether a field is only written as it is, so that nothing else of the text depends on it."""
        return only_writes(self._nodes, field)
