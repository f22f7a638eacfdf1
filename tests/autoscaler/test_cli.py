"""The command line: kube-controller-manager's flags, defaults and limits."""

import socket
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from autoscaler import cli
from autoscaler.core.config import Config, Mode
from autoscaler.core.model import KUBERNETES, MILLISCALE
from autoscaler.loop.endpoint import DebugAccess
from autoscaler.loop.options import Availability, DecisionLogOptions, Options
from autoscaler.loop.saved_history import SavedHistoryLocation
from autoscaler.loop.sharding import Shard
from autoscaler.records.audit import AuditSettings
from autoscaler.ui.sources import WhatIf
from kube.api.config import own_namespace
from kube.controller.election import ElectionSettings
from kube.security.authorization import AuthorizationOptions
from kube.security.tls import TLSOptions
from kube.security.trust import TrustOptions
from kube.serving.options import AuthOptions
from kube.web.options import UIAddress
from replay.what_if import what_if
from tests.kube.scripted import ScriptedServer


class Controller:
    """Records the options that the loop is started with."""

    def __init__(self) -> None:
        self.options: Options | None = None
        self.what_if: WhatIf | None = None

    async def __call__(self, options: Options, *, what_if: WhatIf | None) -> None:
        self.options = options
        self.what_if = what_if


@pytest.fixture
def controller(monkeypatch: pytest.MonkeyPatch) -> Controller:
    controller = Controller()
    monkeypatch.setattr(cli, "run_controller", controller)
    monkeypatch.setattr(cli, "setup_logging", lambda verbosity: None)
    return controller


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli.main, ["run", *arguments])


def test_defaults_are_those_of_kube_controller_manager_with_scale_to_zero(controller: Controller) -> None:
    assert run().exit_code == 0
    assert controller.options == Options(
        kubeconfig=None,
        hpa_apis=(KUBERNETES,),
        optional_hpa_apis=(MILLISCALE,),
        sync_period=15.0,
        workers=None,  # as many as there, and more for many HPAs
        qps=None,
        burst=None,
        bind_address="0.0.0.0",
        metrics_port=8080,
        availability=Availability(
            election=ElectionSettings(
                namespace="kube-system",
                name="milliscale-autoscaler",
                lease_duration=15.0,
                renew_deadline=10.0,
                retry_period=2.0,
            ),
            saved_history=SavedHistoryLocation(namespace="kube-system", name="milliscale-autoscaler-state"),
        ),
        decision_log=DecisionLogOptions(max_per_hpa=20, debug_access=DebugAccess.LOCAL, audit=None),
        config=Config(
            tolerance=0.1,
            downscale_stabilization_ms=300_000,
            cpu_initialization_period_ms=300_000,
            initial_readiness_delay_ms=30_000,
            scale_to_zero=True,
        ),
    )


def test_every_flag_becomes_an_option(controller: Controller) -> None:
    result = run(
        "--kubeconfig=/etc/kubeconfig",
        "--horizontal-pod-autoscaler-sync-period=1m30s",
        "--horizontal-pod-autoscaler-downscale-stabilization=0s",
        "--horizontal-pod-autoscaler-tolerance=0.05",
        "--horizontal-pod-autoscaler-cpu-initialization-period=2m",
        "--horizontal-pod-autoscaler-initial-readiness-delay=500ms",
        "--concurrent-horizontal-pod-autoscaler-syncs=7",
        "--allow-foreign-controller",
        "--kube-api-qps=-1",
        "--kube-api-burst=100",
        "--hpa-apis=milliscale",
        "--feature-gates=HPAScaleToZero=false",
        "--bind-address=127.0.0.1",
        "--metrics-port=0",
        "--leader-elect-lease-duration=1m",
        "--leader-elect-renew-deadline=40s",
        "--leader-elect-retry-period=5s",
        "--leader-elect-resource-lock=leases",
        "--leader-elect-resource-name=scaler",
        "--leader-elect-resource-namespace=scaling",
        "--state-configmap=kept/memory",
        "--shards=3",
        "--shard-index=2",
        "--kept-decisions=3",
        "--debug-endpoints=all",
        "--audit-log=/var/log/decisions.jsonl",
        "--audit-log-maxsize=7",
        "--audit-log-maxbackup=2",
        "-v=2",
    )
    assert result.exit_code == 0, result.output
    assert controller.options is not None
    assert replace(controller.options, flags={}) == Options(
        kubeconfig=Path("/etc/kubeconfig"),
        hpa_apis=(MILLISCALE,),
        optional_hpa_apis=(),
        allow_foreign_controller=True,
        sync_period=90.0,
        workers=7,
        qps=-1.0,
        burst=100,
        bind_address="127.0.0.1",
        metrics_port=0,
        availability=Availability(
            election=ElectionSettings(
                namespace="scaling", name="scaler-2", lease_duration=60.0, renew_deadline=40.0, retry_period=5.0
            ),
            saved_history=SavedHistoryLocation(namespace="kept", name="memory"),
            shard=Shard(index=2, count=3),
        ),
        decision_log=DecisionLogOptions(
            max_per_hpa=3,
            debug_access=DebugAccess.ALL,
            audit=AuditSettings(path=Path("/var/log/decisions.jsonl"), max_bytes=7 * 2**20, max_backups=2),
        ),
        config=Config(
            tolerance=0.05,
            downscale_stabilization_ms=0,
            cpu_initialization_period_ms=120_000,
            initial_readiness_delay_ms=500,
            scale_to_zero=False,
        ),
    )


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ("--horizontal-pod-autoscaler-sync-period=15", "missing unit"),
        ("--horizontal-pod-autoscaler-sync-period=0s", "longer than 0s"),
        ("--horizontal-pod-autoscaler-downscale-stabilization=-5m", "must not be negative"),
        ("--horizontal-pod-autoscaler-tolerance=ten", "'ten' is not a number"),
        ("--horizontal-pod-autoscaler-tolerance=-0.1", "must not be negative"),
        ("--horizontal-pod-autoscaler-tolerance=nan", "not a finite number"),
        ("--concurrent-horizontal-pod-autoscaler-syncs=0", "x>=1"),
        ("--kube-api-qps=fast", "'fast' is not a number"),
        ("--kube-api-qps=inf", "not a finite number"),
        ("--kube-api-burst=0", "x>=1"),
        ("--metrics-port=65536", "0<=x<=65535"),
        ("--ui-address=8081", "'8081' must be HOST:PORT, such as 127.0.0.1:8081"),
        ("--ui-address=pod.example:8081", "must be an IP address or localhost"),
        ("--hpa-apis=keda", "unknown API 'keda'; known: kubernetes, milliscale"),
        ("--hpa-apis=", "unknown API ''; known: kubernetes, milliscale"),
        ("--setting=history.save_second=1m", "did you mean 'history.save_seconds'?"),
        ("--v=loud", "not a number of zero or more"),
        ("--no-such-flag", "No such option"),
        ("--mode=watch", "'watch' is not one of 'act', 'dry-run', 'shadow'"),
        ("--shards=0", "0 is not in the range x>=1"),
        ("--shard-index=-1 --shards=2", "-1 is not in the range x>=0"),
        ("--shard-index=1", "--shard-index=1 must be lower than --shards=1"),
        ("--shards=2", "--shards=2 needs --shard-index: the host name 'laptop' does not end in a number"),
        ("--leader-elect=maybe", "'maybe' is neither true nor false"),
        ("--leader-elect-resource-lock=endpoints", "'endpoints' is not 'leases'"),
        (
            "--leader-elect-lease-duration=10s",
            "--leader-elect-lease-duration=10s must be longer than --leader-elect-renew-deadline=10s",
        ),
        (
            "--leader-elect-retry-period=9s",
            "--leader-elect-renew-deadline=10s must be longer than 1.2 times --leader-elect-retry-period=9s",
        ),
        ("--leader-elect-retry-period=0s", "must be longer than 0s"),
        (
            "--leader-elect-lease-duration=900ms --leader-elect-renew-deadline=500ms --leader-elect-retry-period=1ms",
            "--leader-elect-lease-duration=900ms must be at least 1s: a Lease counts in seconds",
        ),
        ("--leader-elect-resource-name=Lock", "--leader-elect-resource-name=Lock: a lowercase RFC 1123 subdomain"),
        ("--leader-elect-resource-name=", "--leader-elect-resource-name=: a lowercase RFC 1123 subdomain"),
        ("--leader-elect-resource-namespace=a.b", "--leader-elect-resource-namespace=a.b: must not contain dots"),
        ("--state-configmap=a/b/c", "--state-configmap=a/b/c: "),
        ("--state-configmap=ns/", "--state-configmap=ns/: "),
        ("--state-configmap=" + "a" * 64, "must be no more than 63 bytes"),
        ("--kept-decisions=-1", "0<=x<=1000"),
        ("--kept-decisions=many", "not a valid integer"),
        ("--debug-endpoints=some", "'local', 'all', 'off'"),
        ("--audit-log-maxsize=0", "x>=1"),
        ("--audit-log-maxbackup=-1", "x>=0"),
        ("--audit-log=/", "is a directory"),
    ],
)
def test_wrong_flag_is_one_line_and_status_2(
    arguments: str, part: str, controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOSTNAME", "laptop")
    result = run(*arguments.split())
    assert result.exit_code == 2
    error = result.output.strip().splitlines()[-1]
    assert error.startswith("Error: ")
    assert part in error
    assert controller.options is None


def test_missing_kubeconfig_is_one_line_and_status_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "setup_logging", lambda verbosity: None)
    result = run(f"--kubeconfig={tmp_path}/none", "--metrics-port=0", "--bind-address=127.0.0.1")
    assert result.exit_code == 1
    assert result.output.strip().splitlines() == [f"Error: kubeconfig {tmp_path}/none: there is no such file"]


@pytest.mark.parametrize("flag", ["metrics-port", "ui-address", "audit-log"])
def test_what_cannot_be_opened_is_one_line_and_status_1(
    flag: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli, "setup_logging", lambda verbosity: None)
    kubeconfig = ScriptedServer(url="http://127.0.0.1:1").kubeconfig(tmp_path)
    audit = tmp_path / "absent" / "audit.jsonl"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        values = {"metrics-port": str(port), "ui-address": f"127.0.0.1:{port}", "audit-log": str(audit)}
        result = run(
            f"--kubeconfig={kubeconfig}", "--bind-address=127.0.0.1", "--metrics-port=0", f"--{flag}={values[flag]}"
        )
    expected = f"cannot listen on 127.0.0.1 port {port}: Address already in use"
    if flag == "audit-log":
        expected = f"--audit-log={audit}: cannot be written: No such file or directory"
    assert (result.exit_code, result.output) == (1, f"Error: {expected}\n")


def test_error_outside_of_a_cluster_names_the_kubeconfig_flag(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "setup_logging", lambda verbosity: None)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    result = run("--metrics-port=0", "--bind-address=127.0.0.1")
    assert result.exit_code == 1
    assert "give --kubeconfig" in result.output


@pytest.mark.parametrize("mode", ["dry-run", "shadow"])
def test_modes_other_than_act_take_no_lease_and_save_no_history(mode: str, controller: Controller) -> None:
    assert run(f"--mode={mode}", "--shards=3", "--shard-index=1").exit_code == 0
    assert controller.options is not None
    assert controller.options.mode is Mode(mode)
    assert controller.options.availability == Availability(shard=Shard(index=1, count=3))


def test_pages_have_an_address_and_what_if(controller: Controller) -> None:
    assert run().exit_code == 0
    assert controller.options is not None
    assert (controller.options.ui_address, controller.what_if) == (None, None)
    assert run("--ui-address=localhost:8081").exit_code == 0
    assert controller.options is not None
    assert controller.options.ui_address == UIAddress("127.0.0.1", 8081)
    assert controller.what_if is what_if


def test_flags_of_authentication_are_those_of_api_servers(controller: Controller, tmp_path: Path) -> None:
    ca = tmp_path / "ca.crt"
    ca.touch()
    result = run(
        "--ui-address=:8443",
        f"--cert-dir={tmp_path}",
        f"--client-ca-file={ca}",
        "--requestheader-allowed-names=front-proxy-client",
        "--authentication-skip-lookup",
        "--authentication-token-webhook-cache-ttl=1m",
        "--authorization-webhook-cache-authorized-ttl=5m",
        "--authorization-webhook-cache-unauthorized-ttl=30s",
    )
    assert result.exit_code == 0, result.output
    assert controller.options is not None
    assert controller.options.ui_address == UIAddress("::", 8443)
    assert controller.options.ui_auth == AuthOptions(
        tls=TLSOptions(cert_dir=tmp_path),
        trust=TrustOptions(client_ca_file=ca, requestheader_allowed_names=("front-proxy-client",), skip_lookup=True),
        token_ttl=60.0,
        authorization=AuthorizationOptions(authorized_ttl=300.0, unauthorized_ttl=30.0),
    )


def test_help_shows_each_default_once() -> None:
    for option in cli.run.params:
        assert "[default" not in (getattr(option, "help", None) or ""), option.name


def test_flags_without_effect_are_hidden_from_the_help() -> None:
    result = run("--help")
    assert "--leader-elect-resource-name" in result.output
    assert "--leader-elect-resource-lock" not in result.output
    assert "--watch-bookmark-interval" not in result.output


def availability_of(controller: Controller, *arguments: str) -> Availability:
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    assert controller.options is not None
    return controller.options.availability


@pytest.mark.parametrize("arguments", [("--leader-elect=false", "--state-configmap="), ("--leader-elect=f",)])
def test_leader_election_and_saved_history_can_be_disabled(arguments: tuple[str, ...], controller: Controller) -> None:
    availability = availability_of(controller, *arguments)
    assert availability.election is None
    assert (availability.saved_history is None) == ("--state-configmap=" in arguments)


def test_default_namespace_is_the_pods_own(tmp_path: Path) -> None:
    file = tmp_path / "namespace"
    assert own_namespace(default="kube-system", file=file) == "kube-system"
    file.write_text("scaling\n")
    assert own_namespace(default="kube-system", file=file) == "scaling"
    file.write_bytes(b"\xff")
    assert own_namespace(default="kube-system", file=file) == "kube-system"


def test_saved_history_is_in_the_leases_namespace_by_default(controller: Controller) -> None:
    here = availability_of(controller, "--leader-elect-resource-namespace=scaling").saved_history
    assert here is not None
    assert here.namespace == "scaling"


@pytest.mark.parametrize(("pod", "index"), [("autoscaler-0", 0), ("autoscaler-2", 2), ("autoscaler-4", 1)])
def test_shard_index_defaults_to_the_pods_ordinal(
    pod: str, index: int, controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOSTNAME", pod)
    assert availability_of(controller, "--shards=3").shard == Shard(index=index, count=3)
    assert availability_of(controller, "--shards=3", "--shard-index=0").shard.index == 0


def test_audit_log_is_limited_by_default(controller: Controller) -> None:
    assert run("--audit-log=decisions.jsonl").exit_code == 0
    assert controller.options is not None
    expected = AuditSettings(path=Path("decisions.jsonl"), max_bytes=100 * 2**20, max_backups=10)
    assert controller.options.decision_log.audit == expected
