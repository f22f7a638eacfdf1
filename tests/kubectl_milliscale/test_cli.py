"""Command lines of `kubectl milliscale`."""

import json
from pathlib import Path

import click
import pytest
import yaml
from click.testing import CliRunner, Result

from adapter.commands.diagnose import check as check_rules
from kubectl_milliscale.cli import main
from replay.advise.command import advise as advise_on_hpas
from replay.commands import replay as replay_hpas
from replay.tune.command import tune as tune_hpa

CONFIG = "if [ $1 = config ]; then printf shop; exit; fi; "
EMPTY_LIST = '{"metadata": {"resourceVersion": "1"}, "items": []}'


@pytest.fixture(autouse=True)
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is first on PATH."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path


def install_kubectl(commands: Path, script: str) -> None:
    program = commands / "kubectl"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments, prog_name="kubectl milliscale")


def test_help_lists_the_commands() -> None:
    output = invoke("--help").output
    for command in ("status", "explain", "replay", "tune", "advise", "check", "migrate-keda"):
        assert f"\n  {command} " in output


@pytest.mark.parametrize("command", ["status", "explain", "replay", "tune", "advise", "check"])
def test_commands_have_kubectls_flags(command: str) -> None:
    output = invoke(command, "--help").output
    for flag in ("--context", "--kubeconfig", *(["--namespace"] if command != "check" else [])):
        assert f" {flag} " in output


def test_missing_kubectl_is_named(commands: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(commands))
    result = invoke("status")
    assert (result.exit_code, result.output) == (1, "error: kubectl is not on PATH\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["status", "--watch"], "--watch needs a terminal"),
        (["status", "-o", "text"], "--output: 'text' is not one of wide, json, yaml, name"),
        (["explain"], "Missing argument 'NAME'"),
        (["replay", "web", "--unheard-of"], "No such option"),
    ],
)
def test_invalid_command_line_is_refused_before_anything_is_read(
    arguments: list[str], message: str, commands: Path
) -> None:
    install_kubectl(commands, f"touch {commands}/started; exit 1")
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert message in result.output
    assert not (commands / "started").exists()


def test_namespace_and_context_select_the_list(commands: Path) -> None:
    install_kubectl(commands, f"echo \"$@\" >> {commands}/calls; echo '{EMPTY_LIST}'")
    result = invoke("status", "-n=shop", "--context", "east", "-l", "app=web", "-o", "name")
    assert (result.exit_code, result.output) == (0, "No resources found in shop namespace.\n")
    path = "/namespaces/shop/horizontalpodautoscalers?labelSelector=app%3Dweb"
    assert (commands / "calls").read_text().splitlines() == [
        f"--context=east get --raw /apis/autoscaling/v2{path}",
        f"--context=east get --raw /apis/milliscale.io/v1{path}",
    ]


def test_list_is_sorted_and_has_the_wanted_names(commands: Path) -> None:
    hpas = [{"metadata": {"namespace": "shop", "name": name}, "spec": {}} for name in ("web", "api", "batch")]
    items = json.dumps({"items": hpas})
    install_kubectl(commands, f"case \"$*\" in *milliscale.io*) echo '{EMPTY_LIST}'; exit;; esac; echo '{items}'")
    for arguments, shown in (([], ["api", "batch", "web"]), (["web", "api"], ["api", "web"])):
        result = invoke("status", "-n=shop", "-o", "name", *arguments)
        assert result.output.split() == [f"horizontalpodautoscaler.autoscaling/{name}" for name in shown]
        as_yaml = yaml.safe_load(invoke("status", "-n=shop", "-o=yaml", *arguments).stdout)
        assert [one["name"] for one in as_yaml["hpas"]] == shown
        heading, *rows = invoke("status", "-A", "-o=wide", *arguments).stdout.splitlines()
        assert (heading.split()[0], heading.split()[-2:]) == ("NAMESPACE", ["MODE", "MESSAGE"])
        assert [row.split()[:2] for row in rows] == [["shop", name] for name in shown]


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds that a table on a terminal waits between two lists; Ctrl-C is pressed in the third pause."""
    seconds: list[float] = []

    def sleep(duration: float) -> None:
        seconds.append(duration)
        if len(seconds) == 3:
            raise KeyboardInterrupt

    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setattr("kubectl_milliscale.status.time.sleep", sleep)
    return seconds


HPAS = json.dumps({"items": [{"metadata": {"namespace": "shop", "name": "web"}, "spec": {}}]})


def test_status_prints_once_on_a_terminal(commands: Path, waits: list[float]) -> None:
    install_kubectl(commands, f"case \"$*\" in */autoscaling/*) echo '{HPAS}';; *) echo '{EMPTY_LIST}';; esac")
    result = invoke("status", "-n=shop")
    assert (result.exit_code, waits) == (0, [])
    assert result.stdout.count("web ") == 1


def test_watched_table_begins_with_the_first_list_and_keeps_the_last_one(commands: Path, waits: list[float]) -> None:
    once = f"if [ -e {commands}/listed ]; then echo 'Unable to connect' >&2; exit 1; fi; touch {commands}/listed; "
    install_kubectl(commands, f"case \"$*\" in */autoscaling/*) {once}echo '{HPAS}';; *) echo '{EMPTY_LIST}';; esac")
    result = invoke("status", "-n=shop", "--watch")
    assert result.exit_code == 0
    assert len(waits) == 3
    _, first, *others = result.stdout.split("1 HPA at ")
    assert "web " in first
    assert "Unable to connect" not in first
    assert len(others) >= 2  # the last one is shown again at the end
    assert all("web " in screen and "Note: Unable to connect" in screen for screen in others)


def test_watched_table_has_as_many_rows_as_the_terminal_has_lines_for(
    commands: Path, waits: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    hpas = [{"metadata": {"namespace": "shop", "name": f"web-{number}"}, "spec": {}} for number in range(20)]
    items = json.dumps({"items": hpas})
    install_kubectl(commands, f"case \"$*\" in */autoscaling/*) echo '{items}';; *) echo '{EMPTY_LIST}';; esac")
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("LINES", "20")
    for output in ("wide", ""):
        waits.clear()
        printed = invoke("status", "-n=shop", "--watch", f"--output={output}").stdout
        first = click.unstyle(printed.split("\x1b[H")[2])
        assert len(first.splitlines()) == 20
        assert first.count("web-") == 12  # above them are the summary, the note, an empty line and the headings
        assert "Ctrl-C ends. More than fit: name some, or use -l." in " ".join(first.split())


def test_cluster_without_the_milliscale_api_is_no_error(commands: Path) -> None:
    missing = "echo 'Error from server (NotFound): the server could not find the requested resource' >&2; exit 1"
    install_kubectl(commands, f"case \"$*\" in *milliscale.io*) {missing};; esac; echo '{EMPTY_LIST}'")
    result = invoke("status", "-A", "-o", "name")
    assert (result.exit_code, result.output) == (0, "No resources found\n")


@pytest.mark.parametrize("command", ["status", "explain", "replay", "tune"])
def test_name_that_no_hpa_has_is_not_found(command: str, commands: Path) -> None:
    absent = "echo 'Error from server (NotFound): the server could not find the requested resource' >&2; exit 1"
    install_kubectl(commands, f"{CONFIG}case \"$*\" in */web) {absent};; esac; echo '{EMPTY_LIST}'")
    result = invoke(command, "web")
    assert result.exit_code == 1
    missing = 'Error from server (NotFound): horizontalpodautoscalers.autoscaling "web" not found in namespace'
    assert result.output == f"{missing} shop\n"
    assert invoke(command, "mail/web").output == f"{missing} mail\n"


@pytest.mark.parametrize("command", ["status", "explain", "replay", "tune"])
def test_names_may_have_their_namespace(command: str, commands: Path) -> None:
    asked = "/apis/autoscaling/v2/namespaces/mail/horizontalpodautoscalers"
    install_kubectl(commands, f"{CONFIG}case \"$*\" in *{asked}*) echo 'error: asked mail' >&2; exit 1;; esac; exit 7")
    for arguments in (["mail/web"], ["mail/web", "--namespace=mail"], ["web", "-n", "mail"]):
        assert invoke(command, *arguments).output == "error: asked mail\n", arguments
    result = invoke(command, "mail/web", "--namespace=shop")
    assert (result.exit_code, "name HPAs of one namespace" in result.output) == (2, True)


def test_names_of_several_namespaces_are_refused(commands: Path) -> None:
    install_kubectl(commands, "exit 7")
    for names in (["mail/web", "shop/web"], ["mail/web", "web"]):
        assert "name HPAs of one namespace" in invoke("status", *names).output


def test_refused_credentials_are_named(commands: Path) -> None:
    refused = "echo 'error: You must be logged in to the server (Unauthorized)' >&2; exit 1"
    install_kubectl(
        commands, f'case "$*" in *"config view"*) printf "https://k:6443 refused user jane";; *) {refused};; esac'
    )
    result = invoke("status", "-A", "--kubeconfig=/some/config")
    assert result.output == (
        "error: You must be logged in to the server (Unauthorized): "
        "https://k:6443 refused user jane of kubeconfig /some/config\n"
    )


@pytest.mark.parametrize(
    ("borrowed", "arguments"),
    [
        (check_rules, ["check"]),
        (replay_hpas, ["replay", "web", "-n", "shop", "--from", "1h"]),
        (tune_hpa, ["tune", "web", "-n", "shop"]),
        (advise_on_hpas, ["advise", "-n", "shop"]),
    ],
)
def test_borrowed_command_is_called_with_each_of_its_parameters(
    borrowed: click.Command, arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[set[str]] = []
    for module in ("check", "replay"):
        monkeypatch.setattr(f"kubectl_milliscale.{module}.fill_in_prometheus", lambda *_, **__: None)
    monkeypatch.setattr("kubectl_milliscale.replay.fill_in_autoscaler", lambda *_: None)
    monkeypatch.setattr("kubectl_milliscale.replay.named_hpa", lambda kubectl, name: (kubectl, "shop", name))
    monkeypatch.setattr(borrowed, "callback", lambda **values: called.append({*values}))
    assert invoke(*arguments).exit_code == 0
    assert called == [{one.name for one in borrowed.params if one.expose_value}]
