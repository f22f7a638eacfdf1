"""A tree of settings as Markdown, with the docstrings of its fields, which only the source has."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

from kube.values.durations import format_duration
from kube.values.quantity import Format, Quantity
from tools.reference.markdown import prose, table


def settings_tables(tree: Any) -> str:
    """Return a section with a table for each group of a tree."""
    sections = []
    for group in fields(tree):
        values = getattr(tree, group.name)
        documented = dict(_docstrings(type(values)))
        rows = []
        for each in fields(values):
            path = f"{group.name}.{each.name}"
            default = setting_text(path, getattr(values, each.name))
            rows.append((f"`{path}`", f"`{default}`", prose(documented[each.name])))
        title = inspect.cleandoc(type(values).__doc__ or "")
        sections.append(f"## {group.name}\n\n{prose(title)}\n\n{table(('setting', 'default', 'meaning'), rows)}")
    return "".join(sections)


def setting_text(path: str, value: float) -> str:
    """Return a value as it is given on the command line."""
    if path.endswith("_seconds"):
        return format_duration(value)
    return str(Quantity(int(value), 0, Format.BINARY_SI)) if path.endswith("_bytes") else f"{value:g}"


def _docstrings(kind: type) -> Iterator[tuple[str, str]]:
    """Yield (name, docstring) of each field that has one."""
    body = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
    assert isinstance(body, ast.ClassDef)
    for statement, following in zip(body.body, body.body[1:], strict=False):
        match statement, following:
            case (ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text)))):
                yield name, " ".join(text.split())
