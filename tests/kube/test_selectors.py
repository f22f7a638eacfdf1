"""LabelSelector: examples of each rule. tests/conformance has Kubernetes' recorded cases."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kube.values.selectors import LabelSelector, Operator, Requirement, SelectorError


@pytest.mark.parametrize(
    ("text", "labels", "matched"),
    [
        ("", {}, True),
        ("app", {"app": ""}, True),
        ("!app", {"app": ""}, False),
        ("app=web", {"app": "web"}, True),
        ("app=", {"app": ""}, True),
        ("app!=web", {}, True),
        ("app notin (web)", {}, True),
        ("app in ()", {"app": ""}, True),
        ("app in ()", {}, False),
        ("app in (web,)", {"app": ""}, True),
        ("app in (,web)", {"app": ""}, True),
        ("app in (web,,api)", {"app": ""}, True),
        ("app in (web,,,)", {"app": ""}, True),
        ("app in (web,api)", {"app": ""}, False),
        ("n>4", {"n": "5"}, True),
        ("n>4", {"n": "4"}, False),
        ("n<4", {"n": "-5"}, True),
        ("n>4", {"n": "five"}, False),
        ("n>4", {}, False),
        ("n>4", {"n": "5_0"}, False),
        ("app=web,tier!=back", {"app": "web", "tier": "front"}, True),
        ("app=web,tier!=back", {"app": "web", "tier": "back"}, False),
        ("in in (in),notin notin (notin)", {"in": "in"}, True),
    ],
)
def test_selector_matches_labels(text: str, labels: dict[str, str], matched: bool) -> None:
    assert LabelSelector.parse(text).matches(labels) is matched


def test_canonical_form_sorts_requirements_and_values_and_keeps_operators() -> None:
    assert str(LabelSelector.parse(" z == 1 , b in (y, x,x) ,!a")) == "!a,b in (x,y),z==1"


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("app,", "found '', expected: identifier after ','"),
        ("app in web", "unable to parse requirement: found 'web' expected: '('"),
        ("app in (a b)", "unable to parse requirement: found 'b', expected: ',' or ')'"),
        ("app in (a,=)", "unable to parse requirement: found '=', expected: ',', or identifier"),
        ("app in (a,,)", "found ')', expected: ',', or identifier"),
        ("app in (,", "found '', expected: ',', or identifier"),
        ("a=b c", "found 'c', expected: ',' or 'end of string'"),
        ("=", "found '=', expected: !, identifier, or 'end of string'"),
        ("n>x", "values[0]: Invalid value: \"x\": for 'Gt', 'Lt' operators, the value must be an integer"),
        ("n>-4", 'values[0][n]: Invalid value: "-4": a valid label must be'),
        ("a" * 64, "name part must be no more than 63 bytes"),
        ("A.b/c", "prefix part a lowercase RFC 1123 subdomain must"),
        ("a=b\x00c", 'values[0][a]: Invalid value: "b\\x00c"'),
        ("(" * 100_000, "found '('"),
    ],
)
def test_invalid_selectors_have_kubernetes_messages(text: str, error: str) -> None:
    with pytest.raises(SelectorError) as caught:
        LabelSelector.parse(text)
    assert error in str(caught.value)


def test_selector_object_equals_its_text() -> None:
    selector = LabelSelector.from_object(
        {
            "matchLabels": {"tier": "front", "app": "web"},
            "matchExpressions": [
                {"key": "zone", "operator": "NotIn", "values": ["b", "a"]},
                {"key": "legacy", "operator": "DoesNotExist"},
            ],
        }
    )
    assert selector == LabelSelector.parse("app=web,tier=front,zone notin (a,b),!legacy")
    assert selector.requirements[0] == Requirement("app", Operator.EQUALS, ("web",))


def test_absent_selector_selects_nothing_and_empty_one_everything() -> None:
    nothing, everything = LabelSelector.from_object(None), LabelSelector.from_object({})
    assert (nothing.matches({}), nothing.empty) == (False, False)
    assert (everything.matches({}), everything.empty) == (True, True)


@pytest.mark.parametrize(
    ("selector", "error"),
    [
        ({"matchExpressions": [{"key": "a", "operator": "Bogus"}]}, '"Bogus" is not a valid label selector operator'),
        (
            {"matchExpressions": [{"key": "a", "operator": "In", "values": []}]},
            "values: Invalid value: null: for 'in', 'notin' operators, values set can't be empty",
        ),
        (
            {"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["v"]}]},
            'values: Invalid value: ["v"]: values set must be empty for exists and does not exist',
        ),
        ({"matchLabels": {"bad key!": "x"}}, 'key: Invalid value: "bad key!": name part must consist of'),
        ({"matchLabels": {"a": 1}}, "matchLabels must be a map of strings"),
        ({"matchLabels": ["a"]}, "matchLabels must be a map of strings"),
        ({"matchExpressions": "a"}, "matchExpressions must be a list of objects"),
        ({"matchExpressions": [{"key": 1}]}, "must have a string key"),
        ("app=web", "must be an object"),
    ],
)
def test_invalid_selector_objects_are_refused(selector: Any, error: str) -> None:
    with pytest.raises(SelectorError) as caught:
        LabelSelector.from_object(selector)
    assert error in str(caught.value)


@settings(deadline=None)
@given(st.text(alphabet="ab1-/!=<>(), in\tnotin", max_size=30))
def test_any_text_gives_a_selector_or_an_error(text: str) -> None:
    try:
        selector = LabelSelector.parse(text)
    except SelectorError:
        return
    assert LabelSelector.parse(str(selector)) == selector
