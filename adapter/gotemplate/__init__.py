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

from adapter.gotemplate.parser import Template
from adapter.gotemplate.program import TemplateError, Value

__all__ = ["Template", "TemplateError", "Value"]
