"""Groups of flags: the settings they become, and values that contradict each other."""

from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from autoscaler.commands.flags import availability_options, decision_log_options
from autoscaler.loop.debug import DebugAccess
from autoscaler.loop.options import Availability, DecisionLogOptions
from autoscaler.loop.saved_history import SavedHistoryLocation
from autoscaler.loop.sharding import Shard
from autoscaler.records.audit import AuditSettings
from kube.api.config import own_namespace
from kube.controller.election import ElectionSettings


@click.command()
@availability_options
@decision_log_options
@click.pass_context
def command(context: click.Context, *, availability: Availability, decision_log: DecisionLogOptions) -> None:
    context.obj.append((availability, decision_log))


def invoke(*arguments: str) -> tuple[Result, list[tuple[Availability, DecisionLogOptions]]]:
    found: list[tuple[Availability, DecisionLogOptions]] = []
    return CliRunner().invoke(command, arguments, obj=found), found


def availability_of(*arguments: str) -> Availability:
    result, found = invoke(*arguments)
    assert result.exit_code == 0, result.output
    return found[0][0]


def decision_log_of(*arguments: str) -> DecisionLogOptions:
    result, found = invoke(*arguments)
    assert result.exit_code == 0, result.output
    return found[0][1]


def test_leader_election_defaults_are_those_of_kube_controller_manager() -> None:
    availability = availability_of()
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
def test_leader_election_and_saved_history_can_be_disabled(arguments: tuple[str, ...]) -> None:
    availability = availability_of(*arguments)
    assert availability.election is None
    assert (availability.saved_history is None) == ("--state-configmap=" in arguments)


def test_default_namespace_is_the_pods_own(tmp_path: Path) -> None:
    file = tmp_path / "namespace"
    assert own_namespace(default="kube-system", file=file) == "kube-system"
    file.write_text("scaling\n")
    assert own_namespace(default="kube-system", file=file) == "scaling"
    file.write_bytes(b"\xff")
    assert own_namespace(default="kube-system", file=file) == "kube-system"


def test_saved_history_is_in_the_leases_namespace_by_default() -> None:
    here = availability_of("--leader-elect-resource-namespace=scaling").saved_history
    assert here is not None
    assert here.namespace == "scaling"
    there = availability_of("--leader-elect-resource-namespace=scaling", "--state-configmap=kept/memory").saved_history
    assert there == SavedHistoryLocation(namespace="kept", name="memory")


def test_each_shard_has_its_own_lease() -> None:
    availability = availability_of("--shards=3", "--shard-index=2")
    assert availability.shard == Shard(index=2, count=3)
    assert availability.election is not None
    assert availability.election.name == "milliscale-autoscaler-2"


@pytest.mark.parametrize(("pod", "index"), [("autoscaler-0", 0), ("autoscaler-2", 2), ("autoscaler-4", 1)])
def test_shard_index_defaults_to_the_pods_ordinal(pod: str, index: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOSTNAME", pod)
    assert availability_of("--shards=3").shard == Shard(index=index, count=3)
    assert availability_of("--shards=3", "--shard-index=0").shard.index == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--shards=0"], "0 is not in the range x>=1"),
        (["--shard-index=-1", "--shards=2"], "-1 is not in the range x>=0"),
        (["--shard-index=1"], "--shard-index=1 must be lower than --shards=1"),
        (["--shards=2"], "--shards=2 needs --shard-index: the host name 'laptop' does not end in a number"),
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
        (["--kept-decisions=-1"], "0<=x<=1000"),
        (["--kept-decisions=many"], "not a valid integer"),
        (["--debug-endpoints=some"], "'local', 'all', 'off'"),
        (["--audit-log-maxsize=0"], "x>=1"),
        (["--audit-log-maxbackup=-1"], "x>=0"),
        (["--audit-log=/"], "is a directory"),
    ],
)
def test_wrong_value_is_a_usage_error_that_names_the_flag(
    arguments: list[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOSTNAME", "laptop")
    result, found = invoke(*arguments)
    assert result.exit_code == 2
    assert message in result.output.splitlines()[-1]
    assert found == []


def test_20_decisions_are_kept_and_readable_inside_the_pod_by_default() -> None:
    assert decision_log_of() == DecisionLogOptions(max_per_hpa=20, debug_access=DebugAccess.LOCAL, audit=None)


def test_audit_log_is_limited_by_default() -> None:
    expected = AuditSettings(path=Path("decisions.jsonl"), max_bytes=100 * 2**20, max_backups=10)
    assert decision_log_of("--audit-log=decisions.jsonl").audit == expected


def test_decision_log_flags_become_options() -> None:
    options = decision_log_of(
        "--kept-decisions=3",
        "--debug-endpoints=all",
        "--audit-log=/var/log/decisions.jsonl",
        "--audit-log-maxsize=7",
        "--audit-log-maxbackup=2",
    )
    audit = AuditSettings(path=Path("/var/log/decisions.jsonl"), max_bytes=7 * 2**20, max_backups=2)
    assert options == DecisionLogOptions(max_per_hpa=3, debug_access=DebugAccess.ALL, audit=audit)
