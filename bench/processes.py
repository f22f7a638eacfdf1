"""What several benchmarks start: both processes, their peer, an API server, and processes of the benchmarks."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

import click
import msgspec
from aiohttp import web

from kube.api.client import KubeClient
from playground.apiserver import PlaygroundApiServer
from playground.apiserver.pki import Pki
from playground.binaries import find_async
from playground.install import Manifests, Object, apply, write_account_kubeconfig
from playground.kube_apiserver import KubeApiServer, find_assets
from playground.ports import LOOPBACK, free_port
from playground.processes import ChildProcess

ROOT: Final = Path(__file__).resolve().parents[1]
KCM: Final = "kube-controller-manager"
_T = TypeVar("_T")


def has_controller_manager() -> bool:
    """Return whether KUBEBUILDER_ASSETS has a kube-controller-manager."""
    assets = find_assets(os.environ)
    return assets is not None and (assets / KCM).is_file()


@asynccontextmanager
async def api_server(folder: Path) -> AsyncIterator[tuple[str, Pki]]:
    """Run kube-apiserver of KUBEBUILDER_ASSETS, or else the playground's; yield its URL and certificates."""
    assets = find_assets(os.environ)
    if assets is None:
        async with PlaygroundApiServer(folder) as server:
            yield server.url, server.pki
        return
    pki = await asyncio.to_thread(Pki.create, folder)
    async with KubeApiServer(folder, assets=assets, pki=pki) as real:
        yield real.url, pki


@asynccontextmanager
async def served(handler: Callable[[web.Request], Awaitable[web.Response]]) -> AsyncIterator[str]:
    """Handle all requests to a port of this process; yield HOST:PORT."""
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.05, handler_cancellation=True)
    await runner.setup()
    try:
        await web.TCPSite(runner, LOOPBACK, 0).start()
        yield f"{LOOPBACK}:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def adapter_flags(
    *, prometheus_url: str, rules: Path, kubeconfig: Path, port: int, certificates: Path, **more: str
) -> list[str]:
    """Return the flags of the adapter, or of prometheus-adapter; `more` in the place of dashes has underscores."""
    flags = {
        "prometheus_url": prometheus_url,
        "config": rules,
        "bind_address": LOOPBACK,
        "secure_port": port,
        "cert_dir": certificates,
        **{f"{purpose}_kubeconfig": kubeconfig for purpose in ("lister", "authentication", "authorization")},
        **more,
    }
    return [f"--{name.replace('_', '-')}={value}" for name, value in flags.items()]


async def give_rights(
    client: KubeClient, folder: Path, *, admin: Path, more: Sequence[Object] = ()
) -> tuple[Manifests, Path]:
    """Apply the rights of the manifests and `more`; return the manifests, and a kubeconfig of the adapter's account."""
    manifests, account = await Manifests.render(await find_async("kubectl")), folder / "adapter.kubeconfig"
    await apply(client, [*manifests.rights, *more])
    await write_account_kubeconfig(client, account, admin=admin, account=manifests.account("adapter"))
    return manifests, account


@asynccontextmanager
async def registered_adapter(
    client: KubeClient,
    folder: Path,
    *,
    admin: Path,
    prometheus_url: str,
    rules: str,
    command: Sequence[str] = (),
) -> AsyncIterator[ChildProcess]:
    """Run the adapter, or `command` with its flags, with the account and registration of the manifests."""
    manifests, account = await give_rights(client, folder, admin=admin)
    file, port = folder / "rules.yaml", free_port()
    await asyncio.to_thread(file.write_text, rules)
    whole = [
        *(command or (sys.executable, "-m", "adapter", "serve")),
        *adapter_flags(
            prometheus_url=prometheus_url,
            rules=file,
            kubeconfig=account,
            port=port,
            certificates=folder / "certificates",
        ),
    ]
    async with await ChildProcess.start("adapter", whole, log=folder / "adapter.log", directory=ROOT) as child:
        await apply(client, manifests.registration(port=port))
        yield child


@asynccontextmanager
async def controller(
    name: str, kubeconfig: str | Path, folder: Path, *flags: str, port: int = 0
) -> AsyncIterator[ChildProcess]:
    """Run kube-controller-manager's HPA controller if that is the name, else the autoscaler; `port`: its metrics."""
    command: list[str | Path] = [sys.executable, "-m", "autoscaler", "run"]
    own = [f"--metrics-port={port}"]
    if name == KCM:
        command = [Path(os.environ["KUBEBUILDER_ASSETS"]) / KCM]
        own = [f"--{purpose}-kubeconfig={kubeconfig}" for purpose in ("authentication", "authorization")]
        own += [f"--secure-port={port or free_port()}", f"--cert-dir={folder / 'controller-manager'}"]
        own += ["--leader-elect=false", "--controllers=horizontal-pod-autoscaler-controller"]
    command += [f"--kubeconfig={kubeconfig}", f"--bind-address={LOOPBACK}", *own, *flags]
    log = folder / f"{name.replace(' ', '')}.log"
    async with await ChildProcess.start(name, command, log=log, directory=ROOT) as child:
        yield child


class LinesProcess:
    """A process of a benchmark that responds to each line of JSON with one."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.pid = process.pid

    async def send(self, order: object, reply_type: type[_T]) -> _T:
        """Send an order and return its result."""
        assert self._process.stdin is not None
        self._process.stdin.write(msgspec.json.encode(order) + b"\n")
        return await self.read(reply_type)

    async def read(self, reply_type: type[_T]) -> _T:
        """Return the next line. Raises ClickException if the process has ended."""
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        if not line:
            raise click.ClickException("the benchmark's process has ended")
        return msgspec.json.decode(line, type=reply_type)


@asynccontextmanager
async def lines_process(module: str, *arguments: str | Path, log: Path | None = None) -> AsyncIterator[LinesProcess]:
    """Run a module until the end of the context; `log`: where its errors go."""
    errors: Any = None if log is None else await asyncio.to_thread(log.open, "wb")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", module, *map(str, arguments)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=errors,
        cwd=ROOT,
    )
    if errors is not None:
        errors.close()
    try:
        yield LinesProcess(process)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), 20)
        except TimeoutError:
            process.kill()
            await process.wait()


async def generate_load(module: str, task: msgspec.Struct, outcome_type: type[_T]) -> _T:
    """Run a load generator with a task, and return its outcome."""
    generator = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", module), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, cwd=ROOT
    )
    output, _ = await generator.communicate(msgspec.json.encode(task))
    if generator.returncode:
        raise click.ClickException(f"{module} has failed")
    return msgspec.json.decode(output, type=outcome_type)
