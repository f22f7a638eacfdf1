"""Finding the autoscaler's pods, and reading their last decisions."""

from typing import Any

import click
import pytest

from autoscaler.core.model import HPAKey
from autoscaler.records.decision_log import IndexEntry, IndexPage
from kubectl_milliscale.cluster import Decisions, find_pods, pod_with_decisions
from tests.kubectl_milliscale.prepared_kubectl import PreparedKubectl

PODS = "/api/v1/namespaces/milliscale/pods"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/milliscale/leases"
ONE_POD = {PODS: {"items": [{"metadata": {"name": "autoscaler-0"}, "status": {"phase": "Running"}}]}}


def pod(name: str, *, phase: str = "Running", label: str = "") -> dict[str, Any]:
    metadata = {"name": name, "labels": {"app.kubernetes.io/name": label}}
    return {"metadata": metadata, "status": {"phase": phase}}


def lease(holder: str | None) -> dict[str, Any]:
    return {"spec": {"holderIdentity": holder}}


def names(*pods: dict[str, Any], leases: list[dict[str, Any]] | None = None) -> list[str]:
    objects: dict[str, Any] = {PODS: {"items": list(pods)}}
    if leases is not None:
        objects[LEASES] = {"items": leases}
    return find_pods(PreparedKubectl(objects=objects))


def test_leaders_of_all_shards_are_found() -> None:
    pods = [pod(f"autoscaler-{number}") for number in range(4)]
    leases = [lease("autoscaler-0_1f0c"), lease("autoscaler-3_77aa"), lease("somebody_1"), lease(None), {}]
    assert names(*pods, leases=leases) == ["autoscaler-0", "autoscaler-3"]


def test_without_a_leader_all_running_pods_are_found() -> None:
    pods = [pod("a"), pod("b", phase="Pending"), pod("c")]
    assert names(*pods, leases=[lease("gone_1")]) == ["a", "c"]


def test_leases_that_may_not_be_listed_are_no_error() -> None:
    assert names(pod("a"), leases=None) == ["a"]


def test_renamed_installation_is_found_and_pods_of_others_are_not_if_ours_has_its_name() -> None:
    renamed, ours = (pod(name, label=label) for name, label in (("a", "hpa-controller"), ("b", "milliscale")))
    assert names(renamed) == ["a"]
    assert names(renamed, ours) == ["b"]


def test_no_pod_is_an_error_that_names_the_flag() -> None:
    with pytest.raises(
        click.ClickException, match=r"no pod of the autoscaler runs in namespace milliscale.*--autoscaler-namespace"
    ):
        names(pod("a", phase="Pending"), leases=[])


def test_pod_of_the_shard_with_the_hpa_is_forwarded(monkeypatch: pytest.MonkeyPatch) -> None:
    requests: list[str] = []

    async def fetch_decisions(server: str, *, namespace: str, name: str, last: int) -> None:
        requests.append(f"{server} {namespace}/{name} {last}")
        if len(requests) == 1:
            raise click.ClickException(f"{server}/debug/decisions/shop/web: there are no decisions")

    monkeypatch.setattr("kubectl_milliscale.cluster.fetch_decisions", fetch_decisions)
    kubectl = PreparedKubectl(objects={PODS: {"items": [pod("a"), pod("b"), pod("c")]}})
    with pod_with_decisions(kubectl, "shop", "web") as server:
        assert server == "http://127.0.0.1:4000"
    assert requests == ["http://127.0.0.1:4000 shop/web 1"] * 2
    assert kubectl.forwarded == ["milliscale pod/a metrics", "milliscale pod/b metrics"]


def test_hpa_without_decisions_is_an_error_that_names_the_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fetch_decisions(server: str, **_: object) -> None:
        raise click.ClickException(f"{server}/debug/decisions/shop/web: there are no decisions")

    monkeypatch.setattr("kubectl_milliscale.cluster.fetch_decisions", fetch_decisions)
    kubectl = PreparedKubectl(objects={PODS: {"items": [pod("a")]}})
    with (
        pytest.raises(click.ClickException, match="pod a/debug/decisions/shop/web: there are no decisions"),
        pod_with_decisions(kubectl, "shop", "web"),
    ):
        pytest.fail("there are none")


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
    monkeypatch.setattr("kubectl_milliscale.cluster.fetch_index", made.fetch_index)
    return made


@pytest.fixture
def clock() -> Clock:
    return Clock()


def decisions(kubectl: PreparedKubectl, clock: Clock) -> Decisions:
    return Decisions(kubectl, "shop", clock=clock)


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
