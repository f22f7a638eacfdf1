"""Indexes of pods by selector and of selectors by pod: they find exactly the same as a full scan."""

import tracemalloc
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube.cache.label_index import LabelIndex, SelectorIndex
from kube.values.selectors import LabelSelector

SELECTORS = [
    "app=web",
    "app==web,tier=front",
    "app in (web)",
    "app in (web,api)",
    "app!=web",
    "tier",
    "!app",
    "app notin (web)",
    "",
]

TARGET = "Deployment/default/web"


@dataclass(frozen=True)
class Pod:
    name: str
    namespace: str
    labels: Mapping[str, str]


class Key(NamedTuple):
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def pod(name: str, namespace: str = "default", **labels: str) -> Pod:
    return Pod(name, namespace, labels)


def names(pods: tuple[Pod, ...]) -> set[str]:
    return {pod.name for pod in pods}


labels = st.dictionaries(st.sampled_from(["app", "tier"]), st.sampled_from(["web", "api", "front"]))
many = labels.map(lambda some: {**some, **{f"more-{n}": "" for n in range(70)}})
changes = st.lists(
    st.tuples(st.sampled_from(["default", "other"]), st.sampled_from("abcd"), st.none() | labels | many), max_size=20
)


@given(changes, st.sampled_from(SELECTORS))
def test_index_finds_the_same_pods_as_a_scan(
    history: list[tuple[str, str, dict[str, str] | None]], selector_text: str
) -> None:
    index, known = LabelIndex[Pod](), dict[tuple[str, str], Pod]()
    for namespace, name, new_labels in history:
        key = (namespace, name)
        new = None if new_labels is None else pod(name, namespace, **new_labels)
        index.apply(key, known.pop(key, None), new)
        if new is not None:
            known[key] = new
    selector = LabelSelector.parse(selector_text)
    expected = {one.name for one in known.values() if one.namespace == "default" and selector.matches(one.labels)}
    assert names(index.matching("default", selector)) == expected


def test_labels_of_an_object_with_many_are_not_indexed() -> None:
    index, many = LabelIndex[Pod](), {f"more-{n}": "" for n in range(1_000)}
    tracemalloc.start()
    index.apply(("default", "a"), None, pod("a", **many))
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 60_000


@pytest.mark.parametrize("text", SELECTORS)
def test_every_selector_that_matches_a_pod_is_found(text: str) -> None:
    index = SelectorIndex[Key]()
    index.put(Key("default", "other"), LabelSelector.parse(text), target=TARGET)
    pods = [pod("a", app="web", tier="front"), pod("b", app="api"), pod("c")]
    for one in pods:
        found = index.others(Key("default", "self"), [one])
        if LabelSelector.parse(text).matches(one.labels):
            assert found == {"default/other": LabelSelector.parse(text)}


def test_own_key_and_other_namespaces_are_excluded() -> None:
    index = SelectorIndex[Key]()
    for key in (Key("default", "self"), Key("elsewhere", "other")):
        index.put(key, LabelSelector.parse("app=web"), target=TARGET)
    assert index.others(Key("default", "self"), [pod("a", app="web")]) == {}


def test_selector_can_change_and_be_dropped() -> None:
    index, me, other = SelectorIndex[Key](), Key("default", "self"), Key("default", "other")
    index.put(other, LabelSelector.parse("app=web"), target=TARGET)
    index.put(other, LabelSelector.parse("app=api"), target=TARGET)
    assert index.others(me, [pod("a", app="web")]) == {}
    assert index.others(me, [pod("a", app="api")]) == {"default/other": LabelSelector.parse("app=api")}
    index.drop(other)
    index.drop(other)
    assert index.others(me, [pod("a", app="api")]) == {}


def test_unrelated_selectors_are_not_compared() -> None:
    index = SelectorIndex[Key]()
    index.put(Key("default", "other"), LabelSelector.parse("app=api"), target=TARGET)
    assert index.others(Key("default", "self"), [pod("a", app="web")]) == {}


def test_others_can_be_limited_to_one_target() -> None:
    index = SelectorIndex[Key]()
    selector = LabelSelector.parse("app=web")
    for name, target in (("same", TARGET), ("different", "Deployment/default/api")):
        index.put(Key("default", name), selector, target=target)
    key, pods = Key("default", "web"), [pod("web-0", app="web")]
    assert set(index.others(key, pods)) == {"default/same", "default/different"}
    assert set(index.others(key, pods, target=TARGET)) == {"default/same"}
    index.put(Key("default", "same"), selector, target="Deployment/default/api")
    assert set(index.others(key, pods, target=TARGET)) == set()
