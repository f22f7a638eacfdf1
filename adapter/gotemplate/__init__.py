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
from dataclasses import dataclass

from adapter.gotemplate.nodes import Node, TemplateError, Value
from adapter.gotemplate.parser import parse
from adapter.gotemplate.render import render
from adapter.gotemplate.uses import only_writes

__all__ = ["Template", "TemplateError", "Value"]


@dataclass(frozen=True, slots=True)
class Template:
    """A template that has been read and checked.

    Attributes:
        source: its text, as written.
    """

    source: str
    _nodes: tuple[Node, ...]

    @classmethod
    def parse(cls, source: str, *, fields: Iterable[str]) -> Template:
        """Read a template whose data has exactly these fields.

        Raises:
            TemplateError: with the action that is wrong, and why.
        """
        return cls(source, parse(source, frozenset(fields)))

    def render(self, data: Mapping[str, Value]) -> str:
        """Fill it in.

        Raises:
            TemplateError: what is only known with the data, such as an index out of range.
        """
        return render(self._nodes, data)

    def only_writes(self, field: str) -> bool:
        """Tell whether a field is only written as it is, so that nothing else of the text depends on it."""
        return only_writes(self._nodes, field)
