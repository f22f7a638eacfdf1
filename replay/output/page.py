"""`--html`: one page with table and charts, which needs nothing else: plotly.js and the data are part of it.

The data is compressed, because the sentences of thousands of decisions repeat themselves.
"""

from __future__ import annotations

import base64
import gzip
import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from string import Template
from typing import Any

import msgspec

from kube.web.plotly import plotly_js
from replay.output.comparison import Cell, Comparison, notes, rows, verdicts, worst_moments
from replay.output.figure import comparison_figure


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A further part of the page: what `tune` found."""

    title: str
    notes: Sequence[str] = ()
    header: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    """The table's, without markup."""
    figure: Mapping[str, Any] | None = None
    """A figure of plotly.js: {data, layout}; its texts are `replay.output.figure.escaped`."""


def comparison_page(comparison: Comparison, *, title: str = "", sections: Sequence[Section] = ()) -> str:
    """Return the page; its title is `Replay of ...` if none is given."""
    figures = [comparison_figure(comparison), *(section.figure for section in sections if section.figure is not None)]
    data = base64.b64encode(gzip.compress(msgspec.json.encode(figures), mtime=0)).decode()
    template = Template(files(__package__).joinpath("page.html").read_text(encoding="utf-8"))
    names = ", ".join(each.name for each in comparison.replays)
    return template.substitute(
        title=html.escape(title or f"Replay of {names}"),
        verdict="\n".join(f"<p><strong>{html.escape(each)}</strong></p>" for each in verdicts(comparison)),
        table=_table(
            ("", *(each.name for each in comparison.columns)),
            [[html.escape(row.label), *map(_cell, row.cells)] for row in rows(comparison)],
        ),
        notes=_items(notes(comparison)),
        sections="\n".join(map(_section, [*_worst(comparison), *sections])),
        data=data,
        plotly=plotly_js(),
    )


def _worst(comparison: Comparison) -> list[Section]:
    return [
        Section(title=title, header=("time", "decision"), rows=moments) for title, moments in worst_moments(comparison)
    ]


def _section(section: Section) -> str:
    parts = [f"<h2>{html.escape(section.title)}</h2>"]
    if section.rows:
        table = _table(section.header, [list(map(html.escape, row)) for row in section.rows])
        parts.append(f'<div class="table"><table>\n{table}\n</table></div>')
    if section.figure is not None:
        parts.append('<div class="figure"></div>')
    if section.notes:
        parts.append(f"<ul>\n{_items(section.notes)}\n</ul>")
    return "\n".join(parts)


def _items(texts: Sequence[str]) -> str:
    return "\n".join(f"<li>{html.escape(text)}</li>" for text in texts)


def _table(header: Sequence[str], table_rows: Sequence[Sequence[str]]) -> str:
    """Return the inside of a table, of rows of HTML."""
    head = "".join(f"<th>{html.escape(each)}</th>" for each in header)
    body = "\n".join(
        f"<tr><th>{first}</th>{''.join(f'<td>{each}</td>' for each in rest)}</tr>" for first, *rest in table_rows
    )
    return f"<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>"


def _cell(cell: Cell) -> str:
    if not cell.change:
        return cell.text
    kind = {True: "better", False: "worse", None: "same"}[cell.better]
    return f'{cell.text} <span class="{kind}">{cell.change}</span>'
