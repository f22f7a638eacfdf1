"""`check` and `explain`: what the rules make of the series in Prometheus, and why a metric is missing.

    check, explain   the two reports; /debug of a running adapter returns the same ones
    lint, query_lint, series_names   findings about the rules file alone, and about its PromQL
    rule_results     what each rule makes of the listed series
    probe            the values of example objects
    report           the reports as data, which is also their JSON

Nothing here decides anything about metrics: the catalog has them, and the classes that serve requests their values.
"""

from __future__ import annotations

from adapter.diagnosis.report import Explanation, Finding, Report

__all__ = ["Explanation", "Finding", "Report"]
