"""How a rule names things: which series it takes, what their metrics are called, which label means which resource.

All of it is pure text. What a label's resource name means in this cluster ("pod" is the singular of pods) is for the
inventory, which can ask the API server.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from adapter.gotemplate import Template, TemplateError
from adapter.rules.goregex import GoRegex, GoRegexError
from kube.mapping import GroupResource

# Stand-ins while a label template is turned into a pattern. No label can contain them.
_GROUP, _RESOURCE = "\x00group\x00", "\x00resource\x00"
_MAX_API_NAME = 1024


def is_metric_name(name: str) -> bool:
    """Tell whether a metric can be called so in the path of a request."""
    return name not in ("", ".", "..") and "/" not in name and "%" not in name and len(name) <= _MAX_API_NAME


@dataclass(frozen=True, slots=True)
class SeriesFilter:
    """One entry of seriesFilters: `is` keeps the series that its regex finds something in, `isNot` the others."""

    regex: GoRegex
    keeps: bool

    def takes(self, series: str) -> bool:
        """Tell whether a series of this name passes."""
        return (self.regex.search(series) is not None) == self.keeps


@dataclass(frozen=True, slots=True)
class MetricNaming:
    """`name.matches` and `name.as`: a series' name becomes a metric's name in the API."""

    matches: GoRegex
    as_: str

    def metric_for(self, series: str) -> str | None:
        """The metric's name; None when the pattern finds nothing, or the name could not stand in a URL's path."""
        match = self.matches.search(series)
        if match is None:
            return None
        name = self.matches.expand(self.as_, match)
        return name if is_metric_name(name) else None


@dataclass(frozen=True, slots=True)
class LabelTemplate:
    """`resources.template`: which label holds the name of an object of a resource, both ways round.

    `kube_<<.Group>>_<<.Resource>>` makes `kube_apps_deployment` of deployments.apps, and back. The way back is a
    pattern: once without a group, for core resources, and once with one. Resource names have no underscore, so the
    last part is the resource.
    """

    _template: Template
    _patterns: tuple[re.Pattern[str], ...]

    @classmethod
    def parse(cls, source: str) -> LabelTemplate:
        """Read a template.

        Raises:
            TemplateError: it is no template, or says nothing of the resource, or is no regular expression, which
                prometheus-adapter takes it for.
        """
        template = Template.parse(source, fields=("Group", "Resource"))
        try:
            GoRegex.compile(template.render({"Group": "group", "Resource": "resource"}))
        except GoRegexError as error:
            raise TemplateError(f"no label has such a name: {error}") from error
        patterns = []
        for group in ("", _GROUP):
            text = template.render({"Group": group, "Resource": _RESOURCE})
            if _RESOURCE not in text:
                raise TemplateError("it must contain <<.Resource>>, or every resource would have the same label")
            patterns.append(_pattern(text))
        return cls(template, tuple(dict.fromkeys(patterns)))

    def label_for(self, *, group: str, singular: str) -> str:
        """The label with the names of a resource's objects."""
        flat = group.replace(".", "_").replace("-", "_")
        return self._template.render({"Group": flat, "Resource": singular})

    def resource_in(self, label: str) -> GroupResource | None:
        """The resource that a label speaks of, in the spelling of the label; None when it has another form."""
        for pattern in self._patterns:
            if found := pattern.fullmatch(label):
                return GroupResource(found.groupdict().get("group") or "", found["resource"])
        return None


@dataclass(frozen=True, slots=True)
class ResourceNaming:
    """`resources`: the overrides come before the template, and among them the first.

    Attributes:
        template: the general form, or None.
        overrides: labels and the resources that they name, as the file spells them.
        namespaced: whether an external metric is looked for in the namespace that it was asked in.
    """

    template: LabelTemplate | None
    overrides: tuple[tuple[str, GroupResource], ...]
    namespaced: bool


def _pattern(text: str) -> re.Pattern[str]:
    """A rendered label template as a pattern; what stands in a place more than once must be the same in all."""
    out = re.escape(text)
    for mark, name, form in ((_GROUP, "group", ".+"), (_RESOURCE, "resource", "[0-9A-Za-z]+")):
        escaped = re.escape(mark)
        out = out.replace(escaped, f"(?P<{name}>{form})", 1).replace(escaped, f"(?P={name})")
    return re.compile(out, re.ASCII)
