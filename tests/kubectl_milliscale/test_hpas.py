"""The HPAs that a watch keeps current."""

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from queue import Queue
from typing import Any, cast

import pytest

from autoscaler.core.model import KUBERNETES
from kubectl_milliscale.hpas import Selection, WatchedHPAs, list_hpas
from kubectl_milliscale.kubectl import Kubectl, KubectlError, Watch
from tests.kubectl_milliscale.prepared_kubectl import NOT_FOUND

Event = dict[str, Any]
WANTED = Selection(namespace="shop")


def hpa(name: str, maximum: int = 3) -> dict[str, Any]:
    spec = {"scaleTargetRef": {"kind": "Deployment", "name": name}, "maxReplicas": maximum}
    return {"metadata": {"namespace": "shop", "name": name}, "spec": spec}


class QueuedWatch:
    """A watch whose events a test puts into a queue; None ends it."""

    def __init__(self) -> None:
        self.queue: Queue[Event | None] = Queue()
        self.taken = threading.Semaphore(0)

    def events(self) -> Iterator[Event]:
        while (event := self.queue.get()) is not None:
            yield event
            self.taken.release()  # the event has been applied when the next one is wanted
        self.taken.release()

    def stop(self) -> None:
        self.queue.put(None)

    def send(self, *events: Event) -> None:
        """Send events, and wait until they are applied."""
        for event in events:
            self.queue.put(event)
            assert self.taken.acquire(timeout=10)


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchableKubectl(Kubectl):
    """Lists `items` of autoscaling/v2, at most `lists` times; there is no other API."""

    items: list[dict[str, Any]]
    watched: Queue[tuple[QueuedWatch, Mapping[str, str]]] = field(default_factory=Queue)

    def get(self, path: str, query: Mapping[str, str] | None = None) -> dict[str, Any]:
        if path != KUBERNETES.path("shop"):
            raise KubectlError(NOT_FOUND)
        return cast(
            "dict[str, Any]", json.loads(json.dumps({"metadata": {"resourceVersion": "7"}, "items": self.items}))
        )

    @contextmanager
    def watch(self, path: str, query: Mapping[str, str]) -> Iterator[Watch]:
        opened = QueuedWatch()
        self.watched.put((opened, query))
        yield cast("Watch", opened)


def shown(watched: WatchedHPAs) -> list[tuple[str, int]]:
    return [(one.name, one.spec.max_replicas) for one in watched.sorted()]


def test_list_is_sorted_and_has_the_wanted_names() -> None:
    kubectl = WatchableKubectl(items=[hpa("web"), hpa("api"), hpa("batch")])
    assert [one.name for one in list_hpas(kubectl, WANTED)] == ["api", "batch", "web"]
    some = Selection(namespace="shop", names=frozenset({"web", "api"}))
    assert [one.name for one in list_hpas(kubectl, some)] == ["api", "web"]


def test_events_of_a_watch_are_applied() -> None:
    kubectl = WatchableKubectl(items=[hpa("web")])
    with closing(WatchedHPAs(kubectl, WANTED, list_hpas(kubectl, WANTED))) as watched:
        assert shown(watched) == [("web", 3)]
        watch, query = kubectl.watched.get(timeout=10)
        assert query == {"resourceVersion": "7"}
        watch.send({"type": "ADDED", "object": hpa("api")}, {"type": "MODIFIED", "object": hpa("web", 9)})
        assert shown(watched) == [("api", 3), ("web", 9)]
        watch.send({"type": "DELETED", "object": hpa("api")})
        assert shown(watched) == [("web", 9)]


def test_watch_that_ended_is_opened_again_after_a_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kubectl_milliscale.hpas._RETRY_SECONDS", 0.0)
    kubectl = WatchableKubectl(items=[hpa("web")])
    with closing(WatchedHPAs(kubectl, WANTED, ())) as watched:
        first, _ = kubectl.watched.get(timeout=10)
        kubectl.items[:] = [hpa("api")]
        first.queue.put({"type": "ERROR", "object": {"code": 410}})
        second, _ = kubectl.watched.get(timeout=10)
        second.send({"type": "BOOKMARK", "object": {}})
        assert shown(watched) == [("api", 3)]


def test_close_ends_the_watches() -> None:
    kubectl = WatchableKubectl(items=[])
    threads = threading.active_count()
    watched = WatchedHPAs(kubectl, WANTED, ())
    kubectl.watched.get(timeout=10)
    watched.close()
    assert threading.active_count() == threads


def test_problem_is_kubectls_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kubectl_milliscale.hpas._RETRY_SECONDS", 0.0)
    lists = threading.Semaphore(0)

    class Refused(WatchableKubectl):
        def get(self, path: str, query: Mapping[str, str] | None = None) -> dict[str, Any]:
            lists.release()
            raise KubectlError("The connection to the server was refused")

    with closing(WatchedHPAs(Refused(items=[]), WANTED, ())) as watched:
        for _ in range(3):  # of the threads of the two APIs, one has tried again
            assert lists.acquire(timeout=10)
        assert watched.problem == "The connection to the server was refused"
