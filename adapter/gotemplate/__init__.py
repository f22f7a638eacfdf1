"""The part of Go's text/template that rules files use, between `<<` and `>>`.

A rule's metricsQuery and resources.template are Go templates. Most only insert `.Series`, `.LabelMatchers` and
`.GroupBy`; some index, range, compare and format. Supported are fields, variables, if, else, range, with, and, or, not,
eq, ne, lt, le, gt, ge, index, len, printf with %s, %v, %d and %q, pipelines, parentheses, strings, decimal integers,
comments and trimming of white space.

Go finds most mistakes when a template runs. Here a template is checked when it is loaded: a function, field, variable
or construct that does not exist or is not supported is a TemplateError that names it. Nothing here knows of rules or
PromQL.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from adapter.gotemplate.functions import TemplateError, Value
from adapter.gotemplate.parser import parse

__all__ = ["Template", "TemplateError", "Value"]


class Template:
    """A template that has been parsed and checked.

    Attributes:
        source: its text.
    """

    __slots__ = ("_program", "source")

    def __init__(self, source: str, *, fields: Collection[str]) -> None:
        """Parse a template whose data has exactly these fields.

        Raises:
            TemplateError: with the action that is wrong, and why.
        """
        self.source = source
        self._program = parse(source, fields)

    def __eq__(self, other: object) -> bool:
        """Compare the sources."""
        return isinstance(other, Template) and self.source == other.source

    def __hash__(self) -> int:
        """Hash the source."""
        return hash(self.source)

    def render(self, data: Mapping[str, Value]) -> str:
        """Return the text for this data.

        Raises:
            TemplateError: an error that depends on the data, such as an index out of range.
        """
        return self._program.render(data)

    def only_writes(self, field: str) -> bool:
        """Return True if a field is only inserted, so that nothing else in the text depends on it."""
        return field not in self._program.examined
