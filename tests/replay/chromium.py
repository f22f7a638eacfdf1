"""Chromium without a window and without a network, driven over the DevTools protocol.

It is the one on PATH, or Debian's package with its libraries, unpacked under `.playground/`.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from playground.binaries import HOME
from playground.debian import unpack

_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--host-resolver-rules=MAP * ~NOTFOUND",
    "--remote-debugging-port=0",
    "--window-size=1200,900",
)


class Page:
    """One page of the browser, with everything that it logged and requested."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.problems: list[str] = []
        """Exceptions, and messages on the console that are warnings or errors."""
        self.requests: list[str] = []
        """Addresses that the page has asked for."""
        self._socket = socket
        self._calls = 0

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Call a method of the DevTools protocol, and return its result."""
        self._calls += 1
        await self._socket.send_json({"id": self._calls, "method": method, "params": params})
        while True:
            message = await self._socket.receive_json()
            if message.get("id") == self._calls:
                assert "error" not in message, message
                result: dict[str, Any] = message["result"]
                return result
            self._record(message)

    async def evaluate(self, expression: str) -> Any:
        """Return the value of a JavaScript expression; of a promise, what it resolves to."""
        result = await self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    async def open(self, path: Path, *, dark: bool = False) -> None:
        """Load a file, and wait until its charts are drawn, or cannot be drawn."""
        for domain in ("Runtime", "Log", "Network", "Page"):
            await self.call(f"{domain}.enable")
        scheme = "dark" if dark else "light"
        await self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        await self.call("Page.navigate", url=path.as_uri())
        await self.evaluate(
            """new Promise((resolve) => {
                const drawn = () => document.querySelector("[data-drawn]") ? resolve() : requestAnimationFrame(drawn);
                drawn();
            })"""
        )

    async def hover(self, x: float, y: float) -> None:
        """Move the mouse to a place in the window."""
        await self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def _record(self, message: dict[str, Any]) -> None:
        params = message.get("params", {})
        match message.get("method"):
            case "Runtime.exceptionThrown":
                self.problems.append(json.dumps(params["exceptionDetails"]))
            case "Runtime.consoleAPICalled" if params["type"] in ("error", "warning", "assert"):
                self.problems.append(json.dumps(params["args"]))
            case "Log.entryAdded" if params["entry"]["level"] in ("error", "warning"):
                self.problems.append(params["entry"]["text"])
            case "Network.requestWillBeSent":
                self.requests.append(params["request"]["url"])


@asynccontextmanager
async def new_page(profile: Path) -> AsyncIterator[Page]:
    """Start Chromium with an empty profile, and yield its page.

    Raises:
        DebianError: there is no Chromium, and Debian's cannot be downloaded.
    """
    command, libraries = await asyncio.to_thread(_find)
    process = await asyncio.create_subprocess_exec(
        command,
        *_FLAGS,
        f"--user-data-dir={profile}",
        "about:blank",
        env={**os.environ, "LD_LIBRARY_PATH": libraries},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    discard = None
    try:
        async for line in process.stderr:
            if line.startswith(b"DevTools listening on "):
                break
        else:
            raise RuntimeError("Chromium ended before it listened")
        # Its log must be read, or it blocks.
        discard = asyncio.create_task(process.stderr.read())
        port = line.split(b":")[2].split(b"/")[0].decode()
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://127.0.0.1:{port}/json/list") as response,
            session.ws_connect((await response.json())[0]["webSocketDebuggerUrl"], max_msg_size=0) as socket,
        ):
            yield Page(socket)
    finally:
        process.kill()
        await process.wait()
        if discard is not None:
            await discard


def _find() -> tuple[str, str]:
    """Return the command, and LD_LIBRARY_PATH for it."""
    installed = shutil.which("chromium")
    if installed is not None:
        return installed, os.environ.get("LD_LIBRARY_PATH", "")
    tree = unpack("chromium", HOME, dependencies=True)
    libraries = tree / "usr/lib" / f"{os.uname().machine}-linux-gnu"
    return str(tree / "usr/lib/chromium/chromium"), f"{libraries}:{libraries / 'pulseaudio'}"
