"""The node of all tests in this folder, and a table of what was seen."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.node.__main__ import FOLDER_VARIABLE
from tests.node.load import Packets, packets
from tests.node.node import Node, start_node
from tests.node.release import Endings, Helm, watched_endings
from tests.node.requirements import find_programs

OBJECTS = Path(__file__).parent / "objects"


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def node() -> AsyncIterator[Node]:
    """A node with Prometheus and the applications."""
    folder = os.environ.get(FOLDER_VARIABLE)
    programs = None if folder is None else find_programs(os.environ)
    if folder is None or programs is None:
        pytest.skip(reason())
    assert not isinstance(programs, list), programs
    async with start_node(Path(folder), programs) as node:
        await node.kubectl("apply", "-f", OBJECTS / "monitoring.yaml", "-f", OBJECTS / "applications.yaml")
        for namespace, name in (("monitoring", "prometheus-k8s"), ("default", "router"), ("default", "worker")):
            await node.kubectl("rollout", "status", f"--namespace={namespace}", f"deployment/{name}", "--timeout=120s")
        yield node


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def load(node: Node) -> AsyncIterator[Packets]:
    """The router's packets."""
    async with packets(await node.service_address("default", "router")) as load:
        yield load


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def endings(node: Node) -> AsyncIterator[Endings]:
    """How milliscale's pods end."""
    async with watched_endings(node) as endings:
        yield endings


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def viewer(node: Node) -> str:
    """The token of a user who may see the pages."""
    await node.kubectl("create", "serviceaccount", "viewer")
    for role in ("milliscale-hpa-viewer", "milliscale-adapter-ui-viewer"):
        await node.kubectl(
            "create", "clusterrolebinding", role, f"--clusterrole={role}", "--serviceaccount=default:viewer"
        )
    return (await node.kubectl("create", "token", "viewer")).strip()


@pytest.fixture(scope="session")
def helm(node: Node) -> Helm:
    return Helm(node)


def reason() -> str:
    """Why the tests are skipped."""
    programs = find_programs(os.environ)
    needs = f", which needs {'; '.join(programs)}" if isinstance(programs, list) else ""
    return f"only with `make node`{needs}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print each scenario's seconds, and what it has recorded as `seen`."""
    if FOLDER_VARIABLE not in os.environ:
        return
    terminalreporter.section("what was seen")
    for outcome in ("passed", "failed"):
        for report in terminalreporter.getreports(outcome):
            if isinstance(report, pytest.TestReport) and report.when == "call":
                seen = "; ".join(str(value) for name, value in report.user_properties if name == "seen")
                name = report.nodeid.rpartition("::")[2]
                terminalreporter.write_line(f"{report.duration:6.1f} s  {outcome}  {name}: {seen}")
