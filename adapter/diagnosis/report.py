"""The findings of `check` and `explain` as data, in the form of their JSON."""

from __future__ import annotations

import enum

import msgspec

from kube.web.explanation import Example


class Severity(enum.Enum):
    """An error can never work as written. A warning may be intended, or depend on the present series.

    An advice is about a rule that works, and could work better.
    """

    ERROR = "error"
    WARNING = "warning"
    ADVICE = "advice"


class _Json(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    pass


class Finding(_Json, frozen=True):
    """A mistake, or a possible one."""

    severity: Severity
    """Error, warning or advice."""
    code: str
    """The kind of finding, for tools, such as "overlap"; docs/rules-check.md lists them."""
    where: str
    """The path in the rules file, such as "rules[2].seriesFilters[0].is"; for objects, the object and the path in it:
    "MetricRule shop/queue: spec.query"."""
    message: str
    """What is wrong, and what to change."""
    about: str = ""
    """The rule's seriesQuery, or the metric of a short rule; "" outside of rules."""

    @property
    def rule(self) -> str:
        """The rule's key, such as "rules[2]" or "MetricRule shop/queue", or a section of the file."""
        return self.where.partition(self._separator)[0]

    @property
    def path(self) -> str:
        """The path in the rule or object; "" if the finding is about all of it."""
        return self.where.partition(self._separator)[2]

    @property
    def _separator(self) -> str:
        return ": " if " " in self.where else "."  # names of objects can have dots


def error(code: str, where: str, message: str) -> Finding:
    """Return a finding of severity error."""
    return Finding(severity=Severity.ERROR, code=code, where=where, message=message)


def warning(code: str, where: str, message: str) -> Finding:
    """Return a finding of severity warning."""
    return Finding(severity=Severity.WARNING, code=code, where=where, message=message)


def advice(code: str, where: str, message: str) -> Finding:
    """Return a finding of severity advice."""
    return Finding(severity=Severity.ADVICE, code=code, where=where, message=message)


class MetricReport(_Json, frozen=True):
    """A metric of a rule."""

    metric: str
    """Such as "pods/packets_per_second"; for external metrics the name alone."""
    series: str
    """The name of the series, "" for a short rule."""
    hidden_by: str = ""
    """The later rule that makes the same metric and takes precedence, or ""."""
    merges: bool = False
    """Requests for different objects can share one query."""
    example: Example | None = None
    """Its value for an example object; None if it was not requested."""


class SeriesReport(_Json, frozen=True):
    """A series that a rule's seriesQuery finds, with its metric's name in the API, or the key that excludes it."""

    name: str
    left_out_by: str = ""
    metric: str = ""
    labels: dict[str, str] = {}
    """{label: resource}, for labels that map to resources of the cluster."""
    unknown: dict[str, str] = {}
    """{label: resource}, for labels that map to resources that the cluster does not have."""
    other_labels: tuple[str, ...] = ()
    """The labels that map to no resource."""


class RuleReport(_Json, frozen=True):
    """A rule ("rules[2]") with its series and metrics, or the reason why its series could not be listed.

    `about` is its seriesQuery, or the metric of a short rule. `listed`: its series are known, or it is a short rule.
    """

    rule: str
    about: str
    failure: str = ""
    listed: bool = True
    series: tuple[SeriesReport, ...] = ()
    metrics: tuple[MetricReport, ...] = ()


class ObjectReport(_Json, frozen=True):
    """An object with rules, such as a MetricRule."""

    kind: str
    namespace: str
    """Its namespace; "" for a cluster-scoped one."""
    name: str
    reason: str
    """The word "Ready" if its metrics are served, else why not; docs/metric-rules.md lists them."""
    message: str = ""
    """The reason in a sentence; "" for Ready."""
    metrics: tuple[str, ...] = ()
    """The names of its metrics."""


class Report(_Json, frozen=True):
    """The result of `check`, with findings in the order of the file, and the rules if Prometheus was queried.

    `found` is where the rules were found, if the file is not a rules file itself. `objects` are those that a running
    adapter reads rules from.
    """

    asked_prometheus: bool
    findings: tuple[Finding, ...]
    rules: tuple[RuleReport, ...] = ()
    found: str = ""
    objects: tuple[ObjectReport, ...] = ()

    def has(self, severity: Severity) -> bool:
        """Return whether there is a finding of this severity."""
        return any(finding.severity is severity for finding in self.findings)
