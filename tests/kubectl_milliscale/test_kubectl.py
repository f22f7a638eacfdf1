"""Running kubectl: its output, its errors, and its end."""

import os
from pathlib import Path

import pytest

from kubectl_milliscale.kubectl import Kubectl, KubectlError


def kubectl(tmp_path: Path, script: str) -> Kubectl:
    """Return a kubectl that is a shell script."""
    program = tmp_path / "kubectl"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return Kubectl(program=str(program))


def is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def test_error_is_kubectls_message(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    message = 'Error from server (NotFound): pods "web" not found'
    with pytest.raises(KubectlError) as error:
        kubectl(tmp_path, f"echo '{message}' >&2; exit 1").run("get")
    assert error.value.is_not_found
    error.value.show()
    assert capsys.readouterr().err == f"{message}\n"


def test_error_without_a_message_has_the_exit_status(tmp_path: Path) -> None:
    with pytest.raises(KubectlError, match="kubectl ended with exit status 3"):
        kubectl(tmp_path, "exit 3").run("get")


def test_forwarded_port_is_yielded_and_kubectl_ends_with_the_context(tmp_path: Path) -> None:
    script = "echo $$ > $(dirname $0)/pid; echo 'Forwarding from 127.0.0.1:4567 -> 8080'; exec sleep 60"
    with kubectl(tmp_path, script).port_forward("shop", "pod/web", 8080) as port:
        process = int((tmp_path / "pid").read_text())
        assert is_running(process)
    assert port == 4567
    assert not is_running(process)


def test_forward_that_ignores_sigterm_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kubectl_milliscale.kubectl._STOP_SECONDS", 0.05)
    forward = "echo $$ > $(dirname $0)/pid; echo 'Forwarding from 127.0.0.1:4567 -> 8080'"
    script = f"trap '' TERM; {forward}; while :; do sleep 0.02; done"
    with kubectl(tmp_path, script).port_forward("shop", "pod/web", 8080):
        process = int((tmp_path / "pid").read_text())
    assert not is_running(process)


def test_forward_that_fails_has_kubectls_message(tmp_path: Path) -> None:
    message = "error: unable to forward port because pod is not running. Current status=Pending"
    with (
        pytest.raises(KubectlError, match=message),
        kubectl(tmp_path, f"echo '{message}' >&2; exit 1").port_forward("shop", "pod/web", 8080),
    ):
        pytest.fail("it was forwarded")


def test_many_connections_do_not_stop_the_forward(tmp_path: Path) -> None:
    printed = tmp_path / "printed"
    os.mkfifo(printed)
    script = (
        "echo 'Forwarding from 127.0.0.1:4567 -> 8080'; yes 'Handling connection for 4567' | head -n 10000; "
        f"echo > {printed}; exec sleep 60"
    )
    with kubectl(tmp_path, script).port_forward("shop", "pod/web", 8080):
        # The script gets here only when its 280 kB of output have been read.
        assert printed.read_text() == "\n"


def test_response_that_is_not_json_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(KubectlError, match="the response to /api is not JSON"):
        kubectl(tmp_path, "echo moved").get("/api")


@pytest.mark.parametrize(("printed", "namespace"), [("shop", "shop"), ("", "default")])
def test_namespace_is_the_contexts(printed: str, namespace: str, tmp_path: Path) -> None:
    assert kubectl(tmp_path, f"printf '{printed}'").namespace() == namespace


def test_namespace_without_a_kubeconfig_is_the_default_one(tmp_path: Path) -> None:
    without = kubectl(tmp_path, "echo 'error: current-context must exist in order to minify' >&2; exit 1")
    assert without.namespace() == "default"


def test_commands_that_connect_themselves_have_the_kubeconfig_and_the_context_of_kubectl(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    given = Kubectl(kubeconfig=Path("config"), context="staging")
    assert given.client_flags() == {"kubeconfig": Path("config"), "context": "staging"}
    monkeypatch.setenv("KUBECONFIG", "one:two")
    assert Kubectl().client_flags() == {"kubeconfig": Path("one:two"), "context": None}
    monkeypatch.delenv("KUBECONFIG")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert Kubectl().client_flags()["kubeconfig"] is None
