"""The flags about several processes: what they become, and which values do not go together."""

from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from autoscaler.commands.availability import availability_options
from autoscaler.loop.options import Availability
from autoscaler.loop.saved_history import SavedHistoryLocation
from autoscaler.loop.sharding import Shard
from kube.config import own_namespace
from kube.election import ElectionSettings


@click.command()
@availability_options
@click.pass_context
def command(context: click.Context, *, availability: Availability) -> None:
    context.obj.append(availability)


def invoke(*arguments: str, found: list[Availability] | None = None) -> Result:
    return CliRunner().invoke(command, arguments, obj=[] if found is None else found)


def given(*arguments: str) -> Availability:
    found: list[Availability] = []
    result = invoke(*arguments, found=found)
    assert result.exit_code == 0, result.output
    return found[0]


def complaint(*arguments: str) -> str:
    result = invoke(*arguments)
    assert result.exit_code == 2
    return result.output.splitlines()[-1]


def test_the_defaults_are_those_of_kube_controller_manager() -> None:
    availability = given()
    assert availability.election == ElectionSettings(
        namespace="kube-system",
        name="milliscale-autoscaler",
        lease_duration=15.0,
        renew_deadline=10.0,
        retry_period=2.0,
    )
    assert availability.saved_history == SavedHistoryLocation(
        namespace="kube-system", name="milliscale-autoscaler-state"
    )
    assert availability.shard == Shard()


@pytest.mark.parametrize("arguments", [("--leader-elect=false", "--state-configmap="), ("--leader-elect=f",)])
def test_each_can_be_switched_off(arguments: tuple[str, ...]) -> None:
    availability = given(*arguments)
    assert availability.election is None
    assert (availability.saved_history is None) == ("--state-configmap=" in arguments)


def test_in_a_pod_its_namespace_is_the_default(tmp_path: Path) -> None:
    file = tmp_path / "namespace"
    assert own_namespace(default="kube-system", file=file) == "kube-system"
    file.write_text("scaling\n")
    assert own_namespace(default="kube-system", file=file) == "scaling"
    file.write_bytes(b"\xff")
    assert own_namespace(default="kube-system", file=file) == "kube-system"


def test_the_memory_is_beside_the_lease_unless_it_says_where() -> None:
    here = given("--leader-elect-resource-namespace=scaling").saved_history
    assert here is not None
    assert here.namespace == "scaling"
    there = given("--leader-elect-resource-namespace=scaling", "--state-configmap=kept/memory").saved_history
    assert there == SavedHistoryLocation(namespace="kept", name="memory")


def test_each_shard_has_a_lease_of_its_own() -> None:
    availability = given("--shards=3", "--shard-index=2")
    assert availability.shard == Shard(index=2, count=3)
    assert availability.election is not None
    assert availability.election.name == "milliscale-autoscaler-2"


@pytest.mark.parametrize(("pod", "index"), [("autoscaler-0", 0), ("autoscaler-2", 2), ("autoscaler-4", 1)])
def test_a_statefulsets_pod_has_the_shard_of_its_ordinal(pod: str, index: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOSTNAME", pod)
    assert given("--shards=3").shard == Shard(index=index, count=3)
    assert given("--shards=3", "--shard-index=0").shard.index == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--shards=0"], "0 is not in the range x>=1"),
        (["--shard-index=-1", "--shards=2"], "-1 is not in the range x>=0"),
        (["--shards=2", "--shard-index=2"], "--shard-index=2 must be lower than --shards=2"),
        (["--shard-index=1"], "--shard-index=1 must be lower than --shards=1"),
        (["--shards=2"], "'laptop' does not end in a number, as those of a StatefulSet's pods do; give --shard-index"),
        (["--leader-elect=maybe"], "'maybe' is neither true nor false"),
        (["--leader-elect-resource-lock=endpoints"], "'endpoints' is not 'leases'"),
        (
            ["--leader-elect-lease-duration=10s"],
            "--leader-elect-lease-duration=10s must be longer than --leader-elect-renew-deadline=10s",
        ),
        (
            ["--leader-elect-retry-period=9s"],
            "--leader-elect-renew-deadline=10s must be longer than 1.2 times --leader-elect-retry-period=9s",
        ),
        (["--leader-elect-retry-period=0s"], "must be longer than 0s"),
        (
            [
                "--leader-elect-lease-duration=900ms",
                "--leader-elect-renew-deadline=500ms",
                "--leader-elect-retry-period=1ms",
            ],
            "--leader-elect-lease-duration=900ms must be at least 1s: a Lease counts in seconds",
        ),
        (["--leader-elect-resource-name=Lock"], "--leader-elect-resource-name=Lock: a lowercase RFC 1123 subdomain"),
        (["--leader-elect-resource-name="], "--leader-elect-resource-name=: a lowercase RFC 1123 subdomain"),
        (["--leader-elect-resource-namespace=a.b"], "--leader-elect-resource-namespace=a.b: must not contain dots"),
        (["--state-configmap=a/b/c"], "--state-configmap=a/b/c: "),
        (["--state-configmap=ns/"], "--state-configmap=ns/: "),
        (["--state-configmap=" + "a" * 64], "must be no more than 63 bytes"),
    ],
)
def test_what_makes_no_sense_is_refused_with_what_to_change(
    arguments: list[str], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOSTNAME", "laptop")
    assert says in complaint(*arguments)
