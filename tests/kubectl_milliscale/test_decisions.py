"""Reading the last decisions from the autoscaler's pods."""

import click
import pytest

from autoscaler.core.model import HPAKey
from autoscaler.records.decision_log import IndexEntry, IndexPage
from kubectl_milliscale.decisions import Decisions
from tests.kubectl_milliscale.prepared_kubectl import PreparedKubectl

PODS = "/api/v1/namespaces/milliscale/pods"
ONE_POD = {PODS: {"items": [{"metadata": {"name": "autoscaler-0"}, "status": {"phase": "Running"}}]}}


class Autoscaler:
    """Counts requests; fails while `error` is set."""

    def __init__(self) -> None:
        self.requests = 0
        self.error = ""

    async def fetch_index(self, server: str, *, namespace: str, last: int) -> IndexPage:
        assert (server, namespace, last) == ("http://127.0.0.1:4000", "shop", 20)
        self.requests += 1
        if self.error:
            raise click.ClickException(self.error)
        entry = IndexEntry(namespace="shop", name="web", group="autoscaling", decisions=2, desired_replicas=[3, None])
        return IndexPage(version=1, hpas=[entry])


class Clock:
    """A time that tests set, in seconds."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def autoscaler(monkeypatch: pytest.MonkeyPatch) -> Autoscaler:
    made = Autoscaler()
    monkeypatch.setattr("kubectl_milliscale.decisions.fetch_index", made.fetch_index)
    return made


@pytest.fixture
def clock() -> Clock:
    return Clock()


def decisions(kubectl: PreparedKubectl, clock: Clock) -> Decisions:
    return Decisions(kubectl, autoscaler_namespace="milliscale", namespace="shop", clock=clock)


def test_decisions_are_by_hpa(autoscaler: Autoscaler, clock: Clock) -> None:
    read = decisions(PreparedKubectl(objects=ONE_POD), clock)
    assert read.fetch() == {HPAKey("shop", "web", "autoscaling"): [3, None]}
    assert read.problem == ""


def test_pods_are_looked_up_again_each_minute(autoscaler: Autoscaler, clock: Clock) -> None:
    kubectl = PreparedKubectl(objects=ONE_POD)
    read = decisions(kubectl, clock)
    for clock.now in (0.0, 59.0, 60.0, 61.0):
        assert read.fetch()
    assert kubectl.forwarded == ["milliscale pod/autoscaler-0 metrics"] * 2


def test_forward_that_broke_is_opened_again_after_ten_seconds(autoscaler: Autoscaler, clock: Clock) -> None:
    kubectl = PreparedKubectl(objects=ONE_POD)
    read = decisions(kubectl, clock)
    autoscaler.error = "http://127.0.0.1:4000 cannot be read"
    for clock.now in (0.0, 9.0):
        assert read.fetch() == {}
        assert read.problem == "http://127.0.0.1:4000 cannot be read"
    assert autoscaler.requests == 1
    autoscaler.error = ""
    clock.now = 10.0
    assert read.fetch()
    assert read.problem == ""
    assert len(kubectl.forwarded) == 2


def test_problem_says_that_no_pod_runs(autoscaler: Autoscaler, clock: Clock) -> None:
    read = decisions(PreparedKubectl(objects={PODS: {"items": []}}), clock)
    assert read.fetch() == {}
    assert read.problem.startswith("no pod of the autoscaler runs in namespace milliscale")
