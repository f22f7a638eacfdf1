"""LabelSelector beyond the cases of Kubernetes in tests/conformance: objects, and any text."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kube.values.selectors import LabelSelector, Operator, Requirement, SelectorError


def test_two_commas_in_a_row_are_one_empty_value() -> None:
    assert LabelSelector.parse("app in (web,,api)").matches({"app": ""})
    with pytest.raises(SelectorError, match=r"found '\)', expected: ',', or identifier"):
        LabelSelector.parse("app in (a,,)")


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
        ({"matchLabels": {"a": 1}}, "Expected `str`, got `int` - at `$.matchLabels"),
        ({"matchLabels": ["a"]}, "Expected `object | null`, got `array` - at `$.matchLabels`"),
        ({"matchExpressions": "a"}, "Expected `array | null`, got `str` - at `$.matchExpressions`"),
        ({"matchExpressions": [{"key": 1}]}, "Expected `str | null`, got `int`"),
        ("app=web", "Expected `object`, got `str`"),
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
