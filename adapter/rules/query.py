"""PromQL from a rule's template: fills its fields with the selectors of a request.

Label matchers have prometheus-adapter's order: metric selector (sorted by key), namespace, object. So a cache in front
of Prometheus sees the same queries. Two differences are deliberate: object names are escaped in regular expressions, so
that "." matches itself; and values from clients are escaped for any quotes around them, in `.LabelValuesByName` too, so
that a name cannot change the query.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from adapter.gotemplate import Template, TemplateError
from adapter.rules.schema_types import is_label_name
from kube.fields import quote
from kube.selectors import LabelSelector, Operator, Requirement

QUERY_FIELDS = ("Series", "LabelMatchers", "LabelValuesByName", "GroupBy", "GroupBySlice")
"""The fields of a metricsQuery."""

# Most values need no escaping, so long lists of pods need no scan of each character.
_PLAIN = re.compile(r"[A-Za-z0-9_.:|/ -]*")
_METACHARACTERS = re.compile(r"[\\.+*?()|\[\]{}^$]")
# A group costs two parentheses. It is used only if it saves more characters.
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
    *,
    series: str,
    resource_label: str,
    names: Sequence[str],
    pattern: str | None = None,
    namespace_label: str = "",
    namespace: str = "",
    namespace_pattern: bool = False,
    metric_selector: LabelSelector,
    group_by: tuple[str, ...] = (),
) -> str:
    """Return the query for a metric of some objects.

    Args:
        template: the rule's metricsQuery.
        series: the name of the series.
        resource_label: the label with the objects' names.
        names: the objects, one or more.
        pattern: a regular expression to use instead of the names.
        namespace_label: the label with the namespace.
        namespace: the objects' namespace; "" for cluster-scoped objects, which have no such matcher.
        namespace_pattern: `namespace` is a regular expression.
        metric_selector: the metricLabelSelector of the request.
        group_by: labels to group by, beside the objects' names.

    Raises:
        SelectorNotSupported: PromQL cannot express the metric selector.
        QueryError: the template fails with this data, or makes an empty query.
    """
    terms = _Terms(metric_selector)
    if namespace:
        terms.add(namespace_label, "=~" if namespace_pattern else "=", namespace)
    if pattern is not None:
        terms.add(resource_label, "=~", pattern)
    elif len(names) == 1:
        terms.add(resource_label, "=", names[0])
    else:
        terms.add(resource_label, "=~", "|".join(map(_escaped, names)))
    return terms.fill(template, series=series, group_by=(resource_label, *group_by))


def external_query(
    template: Template,
    *,
    series: str,
    namespace_label: str = "",
    namespace: str = "",
    namespace_pattern: bool = False,
    metric_selector: LabelSelector,
) -> str:
    """Return the query for an external metric; `namespace` is "" for a rule that is not namespaced.

    With `namespace_pattern`, `namespace` is a regular expression.

    Raises:
        SelectorNotSupported, QueryError: as for custom_query.
    """
    terms = _Terms(metric_selector)
    if namespace:
        terms.add(namespace_label, "=~" if namespace_pattern else "=", namespace)
    return terms.fill(template, series=series, group_by=())


def require_label_names(selector: LabelSelector) -> None:
    """Refuse a metric selector with keys that no label of Prometheus can have.

    Raises:
        SelectorNotSupported: there is one.
    """
    for requirement in selector.requirements:
        _require_label_name(requirement.key)


class _Terms:
    """The label matchers of one query, in their order."""

    def __init__(self, selector: LabelSelector) -> None:
        self._matchers: list[str] = []
        self._values: dict[str, str] = {}
        for requirement in selector.requirements:
            self.add(requirement.key, _matcher(requirement), "|".join(requirement.values))

    def add(self, label: str, matcher: str, value: str) -> None:
        plain = _PLAIN.fullmatch(value) is not None
        self._matchers.append(f'{label}{matcher}"{value}"' if plain else f"{label}{matcher}{quote(value)}")
        self._values[label] = value if plain else _for_any_quotes(value)

    def fill(self, template: Template, *, series: str, group_by: tuple[str, ...]) -> str:
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
    _require_label_name(requirement.key)
    matcher = _MATCHERS.get(requirement.operator)
    if matcher is None:
        sign = ">" if requirement.operator is Operator.GREATER_THAN else "<"
        raise SelectorNotSupported(
            f'"{sign}" in the metric selector is not supported: Prometheus selectors have no such operator'
        )
    return matcher


def _require_label_name(key: str) -> None:
    if not is_label_name(key):
        raise SelectorNotSupported(
            f"{quote(key)} in the metric selector is not a Prometheus label name:"
            " it must consist of letters, digits and '_', and must not start with a digit"
        )


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
