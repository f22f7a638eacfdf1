"""Interim responses (103 Early Hints) without end, on a real socket and the event loop of the processes."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kube.scripted import ScriptedServer

ROOT = Path(__file__).parent.parent.parent

KUBE = """
client = await KubeClient.connect(Path(sys.argv[1]))
try:
    await client.get("/x", timeout=1.5)
except KubeError as error:
    assert "in time" in str(error), error
await client.close()
"""
PROGRAM = """
import asyncio, resource, sys
from pathlib import Path
from kube.api.client import KubeClient, KubeError
from kube.process.runtime import run
import kubernetes_asyncio.client

async def main():
    started = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
{body}
    print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - started) // 1024)

run(main())
"""


@contextlib.contextmanager
def endless_hints() -> Iterator[str]:
    """Yield the URL of a server that sends nothing but interim responses."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            with contextlib.suppress(OSError):
                connection, _ = listening.accept()
                with connection:
                    connection.recv(65536)
                    while True:
                        connection.sendall(b"HTTP/1.1 103 \r\n\r\n" * 60_000)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    thread.join()


async def test_interim_responses_without_end_take_little_memory(tmp_path: Path) -> None:
    program = PROGRAM.format(body="".join(f"    {line}\n" for line in KUBE.splitlines()))
    with endless_hints() as url:
        kubeconfig = ScriptedServer(url=url).kubeconfig(tmp_path)
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", program, str(kubeconfig), url, cwd=ROOT, stdout=asyncio.subprocess.PIPE
        )
        output, _ = await process.communicate()
    assert process.returncode == 0
    assert int(output) < 80, "MiB more than before the request"


@pytest.mark.parametrize("name", ["adapter/upstream/client.py", "adapter/commands/serve.py", "kube/api/client.py"])
def test_connections_to_servers_use_the_limited_socket(name: str) -> None:
    text = (ROOT / name).read_text()
    assert text.count("TCPConnector(") == text.count("socket_factory=client_socket")
