"""Every command of the documentation: bash runs it, and our own programs parse its arguments."""

import functools
import itertools
import re
from collections.abc import AsyncIterator, Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click
import pytest
import pytest_asyncio
import yaml

from adapter.cli import main as adapter
from autoscaler.cli import main as autoscaler
from kube.api.client import KubeClient
from kubectl_milliscale.cli import main as plugin
from milliscale.cli import main as milliscale
from playground.apiserver import PlaygroundApiServer
from playground.binaries import find
from playground.install import Manifests, apply, read_objects
from playground.scenario import SHOWCASE
from tests.docs.blocks import LANGUAGES, ROOT, all_blocks, commands, pages
from tests.docs.shell import prepare, run
from tests.helm_engine import render

CLUSTER = Path(__file__).parent / "cluster.yaml"
BLOCKS = [block for block in all_blocks() if block.language in ("console", "sh")]
PAGES = sorted({block.page for block in BLOCKS})

# Commands that fail in this cluster, by a part of their text, and why.
FAILING = {
    "get --raw /apis/custom.metrics.k8s.io": "no adapter runs",
    "get --raw '/apis/custom.metrics.k8s.io": "no adapter runs",
    "get --raw '/apis/external.metrics.k8s.io": "no adapter runs",
    'get --raw "$path"': "no adapter runs",
    "annotate scaledobject": "KEDA is not installed",
    "get scaledobject": "KEDA is not installed",
    "apply -f moved.yaml": "migrate-keda does not run",
    "get pods.metrics.k8s.io": "no adapter runs",
    "kubectl krew": "krew is not installed",
}
HELM_FLAGS = {"--create-namespace", "--install", "--namespace", "--output", "--set", "--values"}
CLICK: dict[str, click.Group] = {
    "milliscale": milliscale,
    "milliscale-adapter": adapter,
    "milliscale-autoscaler": autoscaler,
    "python -m adapter": adapter,
    "python -m autoscaler": autoscaler,
    "python -m kubectl_milliscale": plugin,
    "kubectl milliscale": plugin,
    "kubectl-milliscale": plugin,
}


def console_commands(page: str) -> list[tuple[str, str]]:
    return [command for block in BLOCKS if block.page == page for command in commands(block)]


def test_blocks_have_a_known_language() -> None:
    assert not [block.place for block in all_blocks() if block.language not in LANGUAGES]


def test_code_is_in_fenced_blocks() -> None:
    for page in pages():
        text = re.sub(r"^( *)```.*?^\1```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
        assert not re.findall(r"\n\n    \S.*", re.sub(r"^( *[-*]|\d\.) .*(\n+ +.*)*", "", text, flags=re.MULTILINE)), (
            page
        )
        assert "```" not in text, page


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Path]:
    """A cluster with milliscale's objects and a few workloads, but without pods."""
    async with PlaygroundApiServer(tmp_path_factory.mktemp("cluster")) as server:
        async with await KubeClient.connect(server.kubeconfig()) as client:
            base = await Manifests.render(find("kubectl"))
            objects = await read_objects(CLUSTER)
            await apply(client, [*base.objects, *objects, *await read_objects(SHOWCASE)])
            (hpa,) = (each for each in objects if each["kind"] == "HorizontalPodAutoscaler")
            await client.patch("/apis/autoscaling/v2/namespaces/shop/horizontalpodautoscalers/web/status", hpa)
            (rule,) = (each for each in objects if each["kind"] == "MetricRule")
            await client.patch("/apis/milliscale.io/v1/namespaces/shop/metricrules/orders-waiting/status", rule)
        yield server.kubeconfig()


@pytest.mark.e2e
@pytest.mark.xdist_group("docs-commands")
@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.usefixtures("overlays_can_be_rendered")
@pytest.mark.parametrize("page", PAGES)
async def test_commands_run(page: str, kubeconfig: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare(tmp_path)
    found = console_commands(page)
    ran = await run([command for command, _ in found], tmp_path, kubectl=find("kubectl"), kubeconfig=kubeconfig)
    failed = [each for each in ran if each.status and not each.recorded and not expected_to_fail(each.command)]
    assert not failed, [f"{each.command}{each.output}{each.errors}" for each in failed]
    assert not [each for each in ran if "command not found" in each.errors]
    monkeypatch.chdir(tmp_path)
    for each in ran:
        for program, *arguments in each.recorded:
            check_arguments(program, arguments)


def test_every_command_that_is_expected_to_fail_exists() -> None:
    texts = [command for page in PAGES for command, _ in console_commands(page)]
    assert {part for part in FAILING if not any(part in text for text in texts)} == set()


def test_commands_in_sentences_exist() -> None:
    programs = "|".join(CLICK)
    named = {call for page in pages() for call in re.findall(rf"`({programs}) ([a-z][a-z-]*)[ `]", page.read_text())}
    assert named
    for program, name in named:
        assert CLICK[program].get_command(click.Context(CLICK[program]), name), f"{program} {name}"


def expected_to_fail(command: str) -> bool:
    return any(part in command for part in FAILING)


def check_arguments(program: str, arguments: Sequence[str]) -> None:
    """Check a call of a program that was not run. Raises AssertionError, or a usage error of click."""
    if program in ("python", "kubectl"):
        program, arguments = (
            " ".join([program, *arguments[: (2 if program == "python" else 1)]]),
            arguments[(2 if program == "python" else 1) :],
        )
    if program in CLICK:
        parse(CLICK[program], program, arguments)
    elif program.startswith("python -m "):
        assert find_spec(program.split()[2]) is not None
        assert all(Path(argument).exists() for argument in arguments if argument.startswith("tests/"))
    else:
        CHECKS[program](arguments)


def parse(group: click.Group, program: str, arguments: Sequence[str]) -> None:
    """Parse the arguments of one of our programs, as when it is run. Raises click.UsageError."""
    if program == "milliscale-adapter" and arguments and arguments[0].startswith("-"):
        arguments = ["serve", *arguments]
    parent = click.Context(group, info_name=program)
    command = group.get_command(parent, arguments[0])
    assert command is not None, f"{program} has no command {arguments[0]}"
    command.make_context(arguments[0], list(arguments[1:]), parent=parent)


def check_make(arguments: Sequence[str]) -> None:
    makefile = (ROOT / "Makefile").read_text()
    for argument in arguments:
        name, is_variable, _ = argument.partition("=")
        assert re.search(rf"^{name} \?=" if is_variable else rf"^{name}:.* ## ", makefile, re.MULTILINE), argument


def check_pip(arguments: Sequence[str]) -> None:
    assert arguments in (["install", "milliscale"], ["install", "milliscale[replay]"])


def check_git(arguments: Sequence[str]) -> None:
    assert arguments[0] in ("clone", "tag", "push")


def check_docker(arguments: Sequence[str]) -> None:
    assert arguments[0] in ("build", "push")
    if arguments[0] == "build":
        assert Path(arguments[-1], "Dockerfile").exists()


def check_curl(arguments: Sequence[str]) -> None:
    flags = {argument for argument in arguments if argument.startswith("-")}
    assert flags <= {"-k", "-s", "-sk", "-H"}


def check_helm(arguments: Sequence[str]) -> None:
    """Render the chart with the values of the command, if it installs one."""
    flags = {argument for argument in arguments if argument.startswith("-")}
    assert flags <= HELM_FLAGS
    assert arguments[0] in ("get", "install", "lint", "rollback", "show", "template", "uninstall", "upgrade")
    values: dict[str, Any] = {}
    for flag, argument in itertools.pairwise(arguments):
        if flag == "--values":
            values |= yaml.safe_load(Path(argument).read_text()) or {}
        if flag == "--set":
            for assignment in argument.split(","):
                path, _, value = assignment.partition("=")
                names = path.split(".")
                entry = functools.reduce(lambda parent, name: parent.setdefault(name, {}), names[:-1], values)
                entry[names[-1]] = yaml.safe_load(value)
    if arguments[0] in ("install", "template", "upgrade"):
        (chart,) = (argument for argument in arguments if argument.startswith("charts/"))
        assert render(values, chart=Path(chart).resolve())


def check_open(arguments: Sequence[str]) -> None:
    assert arguments[0].startswith("http://localhost:")


CHECKS: dict[str, Callable[[Sequence[str]], Any]] = {
    "make": check_make,
    "pip": check_pip,
    "git": check_git,
    "helm": check_helm,
    "docker": check_docker,
    "curl": check_curl,
    "open": check_open,
}
