"""Render a rule's template as PromQL with the selectors of a request.

Label matchers have prometheus-adapter's order: metric selector (sorted by key), namespace, object. So a cache in front
of Prometheus sees the same queries. Two differences are deliberate: object names are escaped in regular expressions, so
that "." matches itself; and values from clients are escaped for any quotes around them, in `.LabelValuesByName` too, so
that a name cannot change the query.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from adapter.catalog.inventory import CustomSource, ExternalSource
from adapter.gotemplate import Template, TemplateError
from adapter.promql import label_text
from kube.values.fields import quote
from kube.values.selectors import EVERYTHING, LabelSelector, Operator, Requirement

_ANY = ".+"
# Most values need no escaping; this check is faster than a replacement for each value.
_PLAIN = re.compile(r"[A-Za-z0-9_.:|/ -]*")
_METACHARACTERS = re.compile(r"[\\.+*?()|\[\]{}^$]")
# A group adds two parentheses, so it is used only if it saves more characters.
_GROUP_COST = 2

_MATCHERS = {
    Operator.EQUALS: "=",
    Operator.DOUBLE_EQUALS: "=",
    Operator.NOT_EQUALS: "!=",
    Operator.IN: "=~",
    Operator.NOT_IN: "!~",
    Operator.EXISTS: "!=",
    Operator.DOES_NOT_EXIST: "=",
}


class QueryError(ValueError):
    """A rule's template makes no query for this request."""


class SelectorNotSupported(ValueError):
    """PromQL cannot express the metric selector; the message is for the client."""


def custom_query(
    template: Template,
    source: CustomSource,
    *,
    names: Sequence[str] | None,
    namespace: str | None,
    selector: LabelSelector = EVERYTHING,
    compact: bool = False,
    by_namespace: bool = False,
    pattern: str = _ANY,
) -> str:
    """Return the query for a metric of some objects.

    Args:
        template: the rule's metricsQuery.
        source: the series and labels.
        names: the objects, one or more; None for all that match `pattern`.
        namespace: the objects' namespace; None for all; "" for cluster-scoped objects, which have no such matcher.
        selector: the metricLabelSelector of the request.
        compact: write several names as an expression with common prefixes factored out.
        by_namespace: group by the namespace, too.
        pattern: a regular expression of names.

    Raises:
        SelectorNotSupported: PromQL cannot express the metric selector.
        QueryError: the template fails with this data, or makes an empty query.
    """
    terms = _Terms(selector)
    terms.add_namespace(source.namespace_label, namespace)
    if names is None:
        terms.add(source.resource_label, "=~", pattern)
    elif len(names) == 1:
        terms.add(source.resource_label, "=", names[0])
    else:
        terms.add(source.resource_label, "=~", alternation(names) if compact else _any_of(names))
    more = (source.namespace_label,) if by_namespace else ()
    return terms.fill(template, source.series, (source.resource_label, *source.group_by, *more))


def external_query(
    template: Template, source: ExternalSource, *, namespace: str | None, selector: LabelSelector = EVERYTHING
) -> str:
    """Return the query for an external metric; `namespace` is "" for a rule that is not namespaced, None for all.

    Raises:
        SelectorNotSupported, QueryError: as for custom_query.
    """
    terms = _Terms(selector)
    terms.add_namespace(source.namespace_label, namespace)
    return terms.fill(template, source.series, ())


class _Terms:
    """The label matchers of one query, in their order."""

    def __init__(self, selector: LabelSelector) -> None:
        self._matchers: list[str] = []
        self._values: dict[str, str] = {}
        for requirement in selector.requirements:
            self.add(requirement.key, _matcher(requirement), "|".join(requirement.values))

    def add(self, label: str, matcher: str, value: str) -> None:
        plain = _PLAIN.fullmatch(value) is not None
        name = label_text(label)
        self._matchers.append(f'{name}{matcher}"{value}"' if plain else f"{name}{matcher}{quote(value)}")
        self._values[label] = value if plain else _for_any_quotes(value)

    def add_namespace(self, label: str, namespace: str | None) -> None:
        if namespace is None:
            self.add(label, "=~", _ANY)
        elif namespace and label:  # a rule of a namespace need not have the label
            self.add(label, "=", namespace)

    def fill(self, template: Template, series: str, labels: tuple[str, ...]) -> str:
        group_by = tuple(map(label_text, labels))
        try:
            query = template.render(
                {
                    "Series": series,
                    "LabelMatchers": ",".join(self._matchers),
                    "LabelValuesByName": self._values,
                    "GroupBy": ",".join(group_by),
                    "GroupBySlice": group_by,
                }
            )
        except TemplateError as error:
            raise QueryError(f"metricsQuery: {error}") from error
        if not query.strip():
            raise QueryError("metricsQuery makes an empty query")
        return query


def _for_any_quotes(value: str) -> str:
    """Escape a value so that it cannot end the template's quotes around it: double, single or backquotes."""
    escaped_value = quote(value)[1:-1].replace('\\"', r"\x22")
    return escaped_value.replace("'", r"\x27").replace("`", r"\x60")


def _matcher(requirement: Requirement) -> str:
    if label_text(requirement.key) != requirement.key:
        raise SelectorNotSupported(
            f"{quote(requirement.key)} in the metric selector is not supported: the name of a label there consists of"
            " letters, digits and '_', and does not start with a digit"
        )
    matcher = _MATCHERS.get(requirement.operator)
    if matcher is None:
        sign = ">" if requirement.operator is Operator.GREATER_THAN else "<"
        raise SelectorNotSupported(
            f'"{sign}" in the metric selector is not supported: Prometheus selectors have no such operator'
        )
    return matcher


def _any_of(names: Sequence[str]) -> str:
    # Most names need no escaping: one search over all of them is faster than one for each.
    escapes = _METACHARACTERS.search("\n".join(names)) is not None
    return "|".join(map(_escaped, names) if escapes else names)


def _escaped(name: str) -> str:
    """Escape a name for Go's regular expressions."""
    return _METACHARACTERS.sub(r"\\\g<0>", name)


def alternation(names: Iterable[str]) -> str:
    """Return one regular expression for the names, with common prefixes factored out."""
    return "|".join(_alternatives(sorted(set(names)), 0))


def _alternatives(names: Sequence[str], start: int) -> list[str]:
    """Return the alternatives for sorted names with a common prefix of `start` characters."""
    out: list[str] = []
    first = 0
    while first < len(names):
        last = first + 1
        while last < len(names) and names[last][start : start + 1] == names[first][start : start + 1]:
            last += 1
        out += _group(names[first:last], start)
        first = last
    return out


def _group(names: Sequence[str], start: int) -> list[str]:
    """Return the alternatives for names whose next character is the same."""
    if len(names) == 1:
        return [_escaped(names[0][start:])]
    # The common prefix of the first and the last of sorted texts is common to all of them.
    first, last = names[0], names[-1]
    common = start
    while common < len(first) and first[common : common + 1] == last[common : common + 1]:
        common += 1
    prefix = _escaped(first[start:common])
    inner = _alternatives(names, common)
    if len(prefix) * (len(inner) - 1) > _GROUP_COST:
        return [f"{prefix}({'|'.join(inner)})"]
    return [prefix + one for one in inner]
