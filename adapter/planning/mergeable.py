"""Whether one query can answer for all objects or namespaces of a metric, and which.

It is decided by looking at the rule's template, once with the matchers of one object; `separable` knows the forms. What
is judged is also what is sent: a template may do nothing with the matchers but write them, so the text for all objects
differs from the text for one in the matchers alone. `merge: always` takes the user's word for both.
"""

from __future__ import annotations

import functools

from adapter.catalog.inventory import CustomSource, ExternalSource
from adapter.planning.separable import groups_alike, is_separable
from adapter.rules import Merge, Rule
from adapter.rules.query import QueryError, SelectorNotSupported, custom_query, external_query
from kube.selectors import LabelSelector, Operator, Requirement

_NAME = "x"
_ANY = ".+"
_NOT_LOCAL = (Operator.GREATER_THAN, Operator.LESS_THAN)
_LISTS = (Operator.IN, Operator.NOT_IN)


def can_merge(source: CustomSource | ExternalSource) -> bool:
    """Tell whether the requests for different objects of a metric can be answered by one query."""
    if isinstance(source.rule, Rule) and source.rule.merge is Merge.NEVER:
        return False
    if isinstance(source, ExternalSource):
        return bool(merged_external_query(source, LabelSelector()))
    return bool(merged_custom_query(source, source.info.namespaced, LabelSelector()))


def merged_custom_query(source: CustomSource, namespaced: bool, metric_selector: LabelSelector) -> str:
    """The query for all objects; "" where there is none.

    Args:
        source: where the metric comes from.
        namespaced: for objects in namespaces, of all of them; otherwise for those at the root.
        metric_selector: what is asked of the other labels, by everybody whom the query answers.
    """
    rule = source.rule
    if not isinstance(rule, Rule) or "LabelValuesByName" in rule.query.source:
        return ""
    namespace_label = source.namespace_label if namespaced else ""
    if namespaced and (not namespace_label or namespace_label == source.resource_label):
        return ""
    more = (namespace_label,) if namespaced else ()
    query = functools.partial(
        custom_query,
        rule.query,
        series=source.series,
        resource_label=source.resource_label,
        namespace_label=namespace_label,
        metric_selector=metric_selector,
    )
    try:
        sample = query(names=[_NAME], namespace=_NAME if namespaced else "", group_by=(*source.group_by, *more))
        plain = query(names=[_NAME], namespace=_NAME if namespaced else "", group_by=source.group_by)
        labels = [source.resource_label, namespace_label] if namespaced else [source.resource_label]
        safe = rule.query.only_writes("LabelMatchers")
        safe = safe and all(is_separable(sample, label=label, name=_NAME) for label in labels)
        if namespaced and "GroupBy" in rule.query.source:
            safe = safe and rule.query.only_writes("GroupBy") and rule.query.only_writes("GroupBySlice")
            safe = safe and groups_alike(plain, label=namespace_label)
        if not safe and rule.merge is not Merge.ALWAYS:
            return ""
        return query(
            names=[],
            pattern=_ANY,
            namespace=_ANY if namespaced else "",
            namespace_pattern=namespaced,
            group_by=(*source.group_by, *more),
        )
    except (QueryError, SelectorNotSupported):
        return ""  # the request itself will say so


def merged_external_query(source: ExternalSource, metric_selector: LabelSelector) -> str:
    """The query for all namespaces, and for all values of the labels that are selected by; "" where there is none.

    Its result is the same for every selector that it is given for; what counts of it is for the caller to select.
    """
    rule = source.rule
    if not isinstance(rule, Rule) or "LabelValuesByName" in rule.query.source:
        return ""
    namespaced = rule.resources.namespaced
    if namespaced and not source.namespace_label:
        return ""
    label = source.namespace_label if namespaced else ""
    query = functools.partial(external_query, rule.query, series=source.series, namespace_label=label)
    one, every = (_NAME, _ANY) if namespaced else ("", "")
    try:
        if not all(map(_is_local, metric_selector.requirements)):
            return ""
        for key in {requirement.key for requirement in metric_selector.requirements}:
            only = LabelSelector((Requirement(key, Operator.EQUALS, (_NAME,)),))
            if not is_separable(query(namespace=one, metric_selector=only), label=key, name=_NAME):
                return ""
        safe = rule.query.only_writes("LabelMatchers")
        if namespaced:
            safe = safe and is_separable(query(namespace=one, metric_selector=LabelSelector()), label=label, name=_NAME)
        if not safe and rule.merge is not Merge.ALWAYS:
            return ""
        return query(namespace=every, metric_selector=LabelSelector(), namespace_pattern=bool(namespaced))
    except (QueryError, SelectorNotSupported):
        return ""


def _is_local(requirement: Requirement) -> bool:
    """Whether a matcher of Prometheus and a requirement of Kubernetes say the same of every value."""
    if requirement.operator in _NOT_LOCAL or "" in requirement.values:
        return False
    # A list becomes a regular expression, in which a dot is any character.
    return requirement.operator not in _LISTS or not any("." in value for value in requirement.values)
