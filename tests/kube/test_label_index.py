"""The index of pods by labels finds exactly the same as a full scan."""

import tracemalloc
from collections.abc import Mapping
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from kube.cache.label_index import LabelIndex
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


@dataclass(frozen=True)
class Pod:
    name: str
    namespace: str
    labels: Mapping[str, str]


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
