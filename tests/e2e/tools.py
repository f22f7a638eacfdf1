"""Helpers of the end-to-end tests: kubectl, requests to the processes, and running processes."""

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from playground.bundle import Bundle

KUBECTL_TIMEOUT = 30.0


@dataclass(frozen=True, slots=True)
class CommandResult:
    """Output and exit status of a command."""

    status: int
    output: str
    errors: str

    @property
    def json(self) -> Any:
        return json.loads(self.output)


async def kubectl(bundle: Bundle, *arguments: str) -> CommandResult:
    """Run kubectl against the bundle's cluster."""
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
    return CommandResult(process.returncode, output.decode(), errors.decode())


async def fetch(url: str, headers: dict[str, str] | None = None) -> tuple[int, str]:
    """GET a URL, without verifying certificates; return status (0 if nothing listens) and text."""
    try:
        async with aiohttp.ClientSession() as session, session.get(url, headers=headers, ssl=False) as response:
            return response.status, await response.text()
    except aiohttp.ClientConnectionError as error:
        return 0, str(error)


def processes_with(text: str) -> dict[int, str]:
    """Return {process id: command line} of the running processes with `text` in their command line."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if text in command:
            found[int(path.parent.name)] = command
    return found
