"""Label templates, both ways round."""

from __future__ import annotations

import pytest

from adapter.gotemplate import TemplateError
from adapter.rules.naming import LabelTemplate
from kube.api.mapping import GroupResource


@pytest.mark.parametrize(
    ("template", "label", "resource"),
    [
        ("<<.Resource>>", "pod", GroupResource("", "pod")),
        ("<<.Resource>>", "label_app", None),  # no resource has an underscore
        ("kube_<<.Resource>>", "kube_pod", GroupResource("", "pod")),
        ("kube_<<.Resource>>", "pod", None),
        ("kube_<<.Group>>_<<.Resource>>", "kube_apps_deployment", GroupResource("apps", "deployment")),
        ("kube_<<.Group>>_<<.Resource>>", "kube__pod", GroupResource("", "pod")),
        (
            "kube_<<.Group>>_<<.Resource>>",
            "kube_networking_k8s_io_ingress",
            GroupResource("networking_k8s_io", "ingress"),
        ),
        ("<<if .Group>><<.Group>>_<<end>><<.Resource>>", "apps_deployment", GroupResource("apps", "deployment")),
        ("<<if .Group>><<.Group>>_<<end>><<.Resource>>", "pod", GroupResource("", "pod")),
        ("a.c_<<.Resource>>", "abc_pod", None),  # text is no pattern
        ("<<.Resource>>_<<.Resource>>", "pod_pod", GroupResource("", "pod")),
        ("<<.Resource>>_<<.Resource>>", "pod_node", None),
        ("a{0}_<<.Group>>.<<.Resource>>_<<.Group>>", "a{0}_apps.pod_apps", GroupResource("apps", "pod")),
        ("a{0}_<<.Group>>.<<.Resource>>_<<.Group>>", "a{0}_apps.pod_batch", None),
        ("<<.Resource>>", "p" * 256, GroupResource("", "p" * 256)),
        ("<<.Resource>>", "p" * 257, None),
    ],
)
def test_resource_in_label(template: str, label: str, resource: GroupResource | None) -> None:
    assert LabelTemplate(template).resource_in(label) == resource


@pytest.mark.parametrize(
    ("template", "group", "singular", "label"),
    [
        ("<<.Resource>>", "apps", "deployment", "deployment"),
        ("kube_<<.Group>>_<<.Resource>>", "networking.k8s.io", "ingress", "kube_networking_k8s_io_ingress"),
        ("kube_<<.Group>>_<<.Resource>>", "my-group.io", "thing", "kube_my_group_io_thing"),
    ],
)
def test_label_for_resource(template: str, group: str, singular: str, label: str) -> None:
    assert LabelTemplate(template).label_for(group=group, singular=singular) == label


@pytest.mark.parametrize(
    "template", ["<<.Resource>>" * 5, "<<.Group>>" * 5 + "_<<.Resource>>", "a" * 1024 + "<<.Resource>>"]
)
def test_template_that_would_take_long_to_match_is_an_error(template: str) -> None:
    with pytest.raises(TemplateError):
        LabelTemplate(template)
