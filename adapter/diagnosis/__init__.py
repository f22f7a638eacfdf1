"""What the rules make of what is there, and why not more: `check`, `explain`, and /debug on the running server.

    lint        what is wrong with a rules file by itself
    queries     what is wrong with its queries, by their syntax trees
    examine     what each rule made of the series that the catalog has listed
    probe       what a metric's query is for an example object, and what comes of it
    checking    all of these, for all rules
    explaining  why one metric is there, or is not
    report      the findings as data: what the others return, and what is JSON for tools

Nothing here decides anything about metrics: which there are says the catalog, made of the same inventory, and values
come from the classes that answer requests. The findings are the same wherever they are asked for.
"""

from __future__ import annotations

from adapter.diagnosis.report import Explanation, Finding, Report

__all__ = ["Explanation", "Finding", "Report"]
