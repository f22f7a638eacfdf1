"""Findings as data, in the form in which they are JSON."""

from __future__ import annotations

import enum

import msgspec


class Severity(enum.Enum):
    """An error is what can never be as it is written; a warning may be meant, or depend on what runs just now."""

    ERROR = "error"
    WARNING = "warning"


class _Json(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    pass


class Finding(_Json, frozen=True):
    """Something that is wrong, or may be.

    Attributes:
        severity: how bad it is.
        code: what it is, for tools, such as "overlap".
        where: the place in the rules file, such as "rules[2].seriesFilters[0].is".
        message: what is wrong, and what to change.
        about: the rule's seriesQuery, or the metric of a short rule; "" where it is about no single rule of those.
    """

    severity: Severity
    code: str
    where: str
    message: str
    about: str = ""

    @property
    def rule(self) -> str:
        """The rule that it is about: "rules[2]", or the section of the file."""
        return self.where.partition(".")[0]


class Value(_Json, frozen=True):
    """A value as the API writes it: of an object ("namespace/name"), or of a series, with its labels."""

    of: str
    value: str


class Example(_Json, frozen=True):
    """A metric of one object, asked for as an HPA would ask.

    Attributes:
        of: the object, or the namespace of an external metric; "" where there is none to be found.
        queries: the PromQL that was sent.
        values: what came back.
        problem: why nothing came back; "" when something did.
        impossible: no object can have the name that the label has.
    """

    of: str = ""
    queries: tuple[str, ...] = ()
    values: tuple[Value, ...] = ()
    problem: str = ""
    impossible: bool = False


class MetricReport(_Json, frozen=True):
    """A metric that a rule makes.

    Attributes:
        metric: such as "pods/packets_per_second"; for external metrics the name alone.
        series: the name of the series, "" for a short rule.
        hidden_by: the rule that makes the same metric and wins; "" if none does.
        merges: requests for different objects can become one query.
        example: what it is for an example object; None where that was not asked.
    """

    metric: str
    series: str
    hidden_by: str = ""
    merges: bool = False
    example: Example | None = None


class SeriesReport(_Json, frozen=True):
    """A series that a rule's seriesQuery finds.

    Attributes:
        name: its name.
        left_out_by: the key of the rule that leaves it out, or "".
        metric: what it is called in the API, or "".
        labels: its labels that name resources by the rule, with those of the cluster; "" for none.
        unknown: of these labels, those whose resource the cluster does not have, with its name.
        other_labels: its labels that the rule says nothing of.
    """

    name: str
    left_out_by: str = ""
    metric: str = ""
    labels: dict[str, str] = {}
    unknown: dict[str, str] = {}
    other_labels: tuple[str, ...] = ()


class RuleReport(_Json, frozen=True):
    """A rule, and what it made.

    Attributes:
        rule: its place in the file: "rules[2]".
        about: its seriesQuery, or the metric of a short rule.
        failure: why its series could not be listed, or "".
        listed: whether its series are known; a short rule has none.
        series: the series.
        metrics: the metrics.
    """

    rule: str
    about: str
    failure: str = ""
    listed: bool = True
    series: tuple[SeriesReport, ...] = ()
    metrics: tuple[MetricReport, ...] = ()


class Report(_Json, frozen=True):
    """All rules.

    Attributes:
        asked_prometheus: whether series and values were looked for.
        findings: what is wrong, or may be.
        rules: what the rules made.
        found: where in the file the rules are, where that is not the rules file itself; else "".
    """

    asked_prometheus: bool
    findings: tuple[Finding, ...]
    rules: tuple[RuleReport, ...] = ()
    found: str = ""

    def has(self, severity: Severity) -> bool:
        """Tell whether there is a finding of this kind."""
        return any(finding.severity is severity for finding in self.findings)


class Explanation(_Json, frozen=True):
    """One metric.

    Attributes:
        target: what was asked for: "pods/packets_per_second", "external/queue_depth".
        rule: the rule that makes it, or "".
        series: the series that it is made of, or "".
        forwarded_to: the address of the adapter of forwardExternal, where that one has the value and no rule; or "".
        hidden: rules that make it, too, and lose.
        example: what it is for the objects that were asked for; None when there is no such metric.
        reasons: why it is not there, or has no value.
        suggestions: metrics that may have been meant.
    """

    target: str
    rule: str = ""
    series: str = ""
    forwarded_to: str = ""
    hidden: tuple[str, ...] = ()
    example: Example | None = None
    reasons: tuple[str, ...] = ()
    suggestions: tuple[str, ...] = ()

    @property
    def has_value(self) -> bool:
        """Whether there is a value."""
        return self.example is not None and bool(self.example.values)
