"""What the end-to-end tests share: kubectl, the processes' own endpoints, and which processes are left."""

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from playground.bundle import Bundle

KUBECTL_TIMEOUT = 30.0


@dataclass(frozen=True, slots=True)
class Answer:
    """What a command printed, and how it ended."""

    status: int
    output: str
    errors: str

    @property
    def json(self) -> Any:
        return json.loads(self.output)


async def kubectl(bundle: Bundle, *arguments: str) -> Answer:
    """Run the real kubectl against the bundle's cluster, as a person would."""
    process = await asyncio.create_subprocess_exec(
        bundle.kubectl,
        f"--kubeconfig={bundle.kubeconfig}",
        f"--cache-dir={bundle.kubeconfig.parent / 'kubectl-cache'}",
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(KUBECTL_TIMEOUT):
        output, errors = await process.communicate()
    assert process.returncode is not None
    return Answer(process.returncode, output.decode(), errors.decode())


async def fetch(url: str, headers: dict[str, str] | None = None) -> tuple[int, str]:
    """GET of a process's own endpoint: status (0 where nobody listens) and text; its certificate is not verified."""
    try:
        async with aiohttp.ClientSession() as session, session.get(url, headers=headers, ssl=False) as answer:
            return answer.status, await answer.text()
    except aiohttp.ClientConnectionError as error:
        return 0, str(error)


def processes_with(text: str) -> dict[int, str]:
    """The command lines, by process id, of all running processes that have `text` in theirs."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if text in command:
            found[int(path.parent.name)] = command
    return found
