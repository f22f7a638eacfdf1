"""What the processes import at their start in a pod: a library that few need costs every start its CPU time."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from playground.apiserver import PlaygroundApiServer
from playground.in_pod import NAMESPACE, ServiceAccount
from playground.ports import LOOPBACK, free_port
from playground.processes import ChildProcess
from tests.e2e.controllers import ROOT
from tests.e2e.tools import fetch
from tests.eventually import eventually

pytestmark = pytest.mark.e2e

# It prints what has been imported when the process ends.
PRINT_MODULES = """
import atexit, json, sys
atexit.register(lambda: print(json.dumps([*sys.modules]), flush=True))
"""
ADAPTER = ("adapter", "serve", "--prometheus-url=http://127.0.0.1:9", "--shutdown-delay-duration=100ms")
# The number of modules that are not Python's own: what is imported today, and a few more.
KINDS = {
    "adapter": (ADAPTER, 440),
    "adapter with metric rules": ((*ADAPTER, "--metric-rules", "--tenant-label=namespace"), 440),
    "autoscaler": (("autoscaler", "run", f"--leader-elect-resource-namespace={NAMESPACE}"), 330),
}
# Of kubeconfigs, pages, other commands, calendars and clouds.
FOR_SOME = {
    *("kubernetes_asyncio", "urllib3", "jinja2", "rich", "pygments", "icalendar", "dateutil"),
    *("replay", "kubectl_milliscale", "adapter.ui.pages", "autoscaler.loop.pages", "kube.web.server"),
    *("botocore", "google.auth", "azure", "requests", "numpy", "playground"),
}


@pytest.mark.parametrize("kind", KINDS)
async def test_start_imports_only_what_every_process_of_its_kind_needs(kind: str, tmp_path: Path) -> None:
    (module, *arguments), most = KINDS[kind]
    port = free_port()
    url = f"http://{LOOPBACK}:{port}/readyz"
    if module == "adapter":
        url = f"https://{LOOPBACK}:{port}/readyz?exclude=metrics"
        arguments += [f"--secure-port={port}", f"--cert-dir={tmp_path / 'certificates'}"]
        arguments += [f"--config={ROOT / 'manifests/base/rules.yaml'}"]
    else:
        arguments += [f"--metrics-port={port}"]
    async with PlaygroundApiServer(tmp_path / "api") as server:
        account = ServiceAccount(tmp_path / "service-account", server)
        command = account.command(module, *arguments, f"--bind-address={LOOPBACK}", before=PRINT_MODULES)
        process = await ChildProcess.start(kind, command, log=tmp_path / "log", directory=ROOT)
        async with process:

            async def is_ready() -> bool:
                assert process.exit_status is None, process.last_lines()
                return (await fetch(url))[0] == 200

            await eventually(is_ready)
            process.send_signal(signal.SIGTERM)
            assert await process.wait() == 0, process.last_lines()
    modules = set(json.loads(process.log.read_text().splitlines()[-1]))
    assert f"{module}.cli" in modules
    assert FOR_SOME & modules == set()
    others = {name for name in modules if name.partition(".")[0] not in sys.stdlib_module_names}
    assert len(others) <= most, sorted(others)


def test_sigterm_ends_a_process_that_is_importing() -> None:
    """The kernel ignores a SIGTERM to the first process of a container that has no handler."""
    program = (
        "import signal; from kube.process.starting import importing\n"
        "with importing(): signal.raise_signal(signal.SIGTERM)"
    )
    ended = subprocess.run([sys.executable, "-c", program], check=False, cwd=ROOT)
    assert ended.returncode == 128 + signal.SIGTERM
