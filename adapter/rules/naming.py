"""The naming of a rule: which series it uses, the names of their metrics, and the labels that name resources.

Nothing here knows the cluster: adapter.catalog.inventory resolves a name such as "pod" to the resource pods.
"""

from __future__ import annotations

import re

import msgspec

from adapter.gotemplate import Template, TemplateError
from adapter.rules.field_types import Boolean, Overrides, Section
from adapter.rules.goregex import GoRegex, GoRegexError
from kube.api.mapping import GroupResource

NAMESPACES = GroupResource("", "namespaces")
NAMESPACE_NAMES = (GroupResource("", "namespace"), NAMESPACES)
"""How rules name the resource of namespaces."""

ANY_SERIES = GoRegex(".*")
"""The default of name.matches."""

# Placeholders while a label template is turned into a pattern. No label can contain them.
_GROUP, _RESOURCE = "\x00group\x00", "\x00resource\x00"
_MAX_API_NAME = 1024
_MAX_LABEL = 256
_MAX_LABEL_TEMPLATE = 1024
_MAX_REPEATS = 4


def is_metric_name(name: str) -> bool:
    """Return True if a metric can have this name in the path of a request."""
    return name not in ("", ".", "..") and "/" not in name and "%" not in name and len(name) <= _MAX_API_NAME


class SeriesFilter(Section, frozen=True, kw_only=True):
    """One entry of seriesFilters: `is` keeps the series whose names match its regex, `isNot` the others."""

    is_: GoRegex | None = msgspec.field(name="is", default=None)
    is_not: GoRegex | None = None

    def __post_init__(self) -> None:
        """Raise ValueError unless exactly one is set."""
        if (self.is_ is None) == (self.is_not is None):
            raise ValueError("give exactly one of is and isNot")

    @property
    def keeps(self) -> bool:
        """True for `is`, False for `isNot`."""
        return self.is_ is not None

    @property
    def regex(self) -> GoRegex:
        """The regex of `is` or `isNot`."""
        regex = self.is_ or self.is_not
        assert regex is not None, "checked in __post_init__"
        return regex

    def takes(self, series: str) -> bool:
        """Return True if a series of this name passes."""
        return self.regex.matches(series) == self.keeps


class MetricNaming(Section, frozen=True, kw_only=True):
    """`name`: a series' name becomes a metric's name in the API."""

    matches: GoRegex = ANY_SERIES
    """The pattern for the series' name; other series are excluded."""
    as_: str = msgspec.field(name="as", default="")
    """The template of the metric's name; by default the only group, or else the whole match."""

    def __post_init__(self) -> None:
        """Set the default of `as`, and raise ValueError if there is none."""
        if not self.as_:
            if self.matches.groups > 1:
                raise ValueError(f"the key `as` is required, because matches has {self.matches.groups} groups")
            msgspec.structs.force_setattr(self, "as_", "${1}" if self.matches.groups else "${0}")

    def metric_for(self, series: str) -> str | None:
        """Return the metric's name; None if the pattern does not match, or the name cannot be in the path of a URL."""
        name = self.matches.expand(self.as_, series)
        return name if name is not None and is_metric_name(name) else None


class LabelTemplate:
    """`resources.template`: maps a resource to the label with its objects' names, and a label back to the resource.

    `kube_<<.Group>>_<<.Resource>>` maps deployments.apps to `kube_apps_deployment`, and back. The reverse mapping is a
    pattern: once without a group, for core resources, and once with one. Resource names have no underscore, so the last
    part is the resource.
    """

    __slots__ = ("_patterns", "_template")

    def __init__(self, source: str) -> None:
        """Read a template.

        Raises:
            TemplateError: the template is invalid, does not use the resource, or is not a valid regular expression
                (prometheus-adapter uses it as one).
        """
        self._template = Template(source, fields=("Group", "Resource"))
        try:
            GoRegex(self._template.render({"Group": "group", "Resource": "resource"}))
        except GoRegexError as error:
            raise TemplateError(f"no label has such a name: {error}") from error
        texts = {self._template.render({"Group": group, "Resource": _RESOURCE}): None for group in ("", _GROUP)}
        if any(_RESOURCE not in text for text in texts):
            raise TemplateError("it must contain <<.Resource>>, or every resource would have the same label")
        if any(len(text) > _MAX_LABEL_TEMPLATE for text in texts):
            raise TemplateError(f"no label has so long a name; it may have {_MAX_LABEL_TEMPLATE} characters")
        if any(text.count(mark) > _MAX_REPEATS for text in texts for mark in (_GROUP, _RESOURCE)):
            raise TemplateError(f"it may contain <<.Resource>> and <<.Group>> {_MAX_REPEATS} times each")
        self._patterns = [_pattern(text) for text in texts]

    def __eq__(self, other: object) -> bool:
        """Compare the templates."""
        return isinstance(other, LabelTemplate) and self._template == other._template

    def label_for(self, *, group: str, singular: str) -> str:
        """Return the label that holds the names of a resource's objects."""
        flat = group.replace(".", "_").replace("-", "_")
        return self._template.render({"Group": flat, "Resource": singular})

    def resource_in(self, label: str) -> GroupResource | None:
        """Return the resource in a label, as written there; None if the label does not fit the template, or is long.

        A repeated group or resource must be the same each time.
        """
        for pattern in self._patterns if len(label) <= _MAX_LABEL else ():
            if (found := pattern.fullmatch(label)) is None:
                continue
            groups, resources = ({text for key, text in found.items() if key[0] == kind} for kind in "gr")
            if len(groups) <= 1 and len(resources) == 1:
                return GroupResource("".join(groups), resources.pop())
        return None


class ResourceNaming(Section, frozen=True, kw_only=True):
    """`resources`: overrides take precedence over the template, earlier overrides over later ones."""

    template: LabelTemplate | None = None
    """The general form, or None."""
    overrides: Overrides = Overrides()
    """Labels and the resources that they name, as written in the file."""
    namespaced: Boolean = Boolean(True)
    """Queries for external metrics select the namespace of the request."""


def _pattern(text: str) -> GoRegex:
    """Return a pattern for a rendered label template. RE2, since a hostile one takes a backtracking matcher seconds."""
    forms = {_GROUP: "(?P<g{}>.+)", _RESOURCE: "(?P<r{}>[0-9A-Za-z]+)"}
    parts = re.split(f"({_GROUP}|{_RESOURCE})", text)
    return GoRegex(
        "".join(forms[part].format(number) if part in forms else re.escape(part) for number, part in enumerate(parts))
    )
