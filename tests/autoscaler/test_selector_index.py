"""The index of HPAs by selector finds exactly the same as a full scan."""

import pytest

from autoscaler.core.model import HPAKey
from autoscaler.loop.selector_index import SelectorIndex
from kube.values.selectors import LabelSelector
from tests.kube.test_label_index import SELECTORS, pod

TARGET = "Deployment/default/web"


@pytest.mark.parametrize("text", SELECTORS)
def test_every_selector_that_matches_a_pod_is_found(text: str) -> None:
    index = SelectorIndex()
    index.put(HPAKey("default", "other"), LabelSelector.parse(text), target=TARGET)
    pods = [pod("a", app="web", tier="front"), pod("b", app="api"), pod("c")]
    for one in pods:
        found = index.others(HPAKey("default", "self"), [one])
        if LabelSelector.parse(text).matches(one.labels):
            assert found == {"default/other": LabelSelector.parse(text)}


def test_own_key_and_other_namespaces_are_excluded() -> None:
    index = SelectorIndex()
    for key in (HPAKey("default", "self"), HPAKey("elsewhere", "other")):
        index.put(key, LabelSelector.parse("app=web"), target=TARGET)
    assert index.others(HPAKey("default", "self"), [pod("a", app="web")]) == {}


def test_selector_can_change_and_be_dropped() -> None:
    index, me, other = SelectorIndex(), HPAKey("default", "self"), HPAKey("default", "other")
    index.put(other, LabelSelector.parse("app=web"), target=TARGET)
    index.put(other, LabelSelector.parse("app=api"), target=TARGET)
    assert index.others(me, [pod("a", app="web")]) == {}
    assert index.others(me, [pod("a", app="api")]) == {"default/other": LabelSelector.parse("app=api")}
    index.drop(other)
    index.drop(other)
    assert index.others(me, [pod("a", app="api")]) == {}


def test_unrelated_selectors_are_not_compared() -> None:
    index = SelectorIndex()
    index.put(HPAKey("default", "other"), LabelSelector.parse("app=api"), target=TARGET)
    assert index.others(HPAKey("default", "self"), [pod("a", app="web")]) == {}


def test_others_can_be_limited_to_one_target() -> None:
    index = SelectorIndex()
    selector = LabelSelector.parse("app=web")
    for name, target in (("same", TARGET), ("different", "Deployment/default/api")):
        index.put(HPAKey("default", name), selector, target=target)
    key, pods = HPAKey("default", "web"), [pod("web-0", app="web")]
    assert set(index.others(key, pods)) == {"default/same", "default/different"}
    assert set(index.others(key, pods, target=TARGET)) == {"default/same"}
    index.put(HPAKey("default", "same"), selector, target="Deployment/default/api")
    assert set(index.others(key, pods, target=TARGET)) == set()
