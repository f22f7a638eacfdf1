"""kubectl for a cluster without kubelets: `port-forward` connects to processes on loopback, all else is the real one.

    python kubectl_shim.py SETTINGS ARGUMENT...

SETTINGS is a file with the JSON of `Settings`; the arguments are those of `port-forward`. As with the real kubectl, the
user must have the rights to read the object and to create pods/portforward.
"""

import asyncio
import contextlib
import json
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True)
class Settings:
    """The executable of the real kubectl, and {"NAMESPACE KIND/NAME PORT": port on loopback}."""

    kubectl: str
    forwards: dict[str, int]


def install(folder: Path, settings: Settings) -> Path:
    """Write the commands `kubectl` and `kubectl-milliscale` into a folder, which is returned."""
    folder.mkdir()
    file = folder / "settings.json"
    file.write_text(json.dumps(asdict(settings)))
    forward = f'exec {sys.executable} -IS {Path(__file__).resolve()} {file} "$@"'
    commands = {
        "kubectl": f'case " $* " in *" port-forward "*) {forward};; esac\nexec {settings.kubectl} "$@"',
        "kubectl-milliscale": f'exec {sys.executable} -m kubectl_milliscale "$@"',
    }
    for name, command in commands.items():
        path = folder / name
        path.write_text(f"#!/bin/sh\n{command}\n")
        path.chmod(0o755)
    return folder


def main() -> None:
    settings = Settings(**json.loads(Path(sys.argv[1]).read_text()))
    arguments = sys.argv[2:]
    target, port = arguments[-2:]
    namespace = next(one.partition("=")[2] for one in arguments if one.startswith("--namespace="))
    own_flags = [one for one in arguments if one.startswith(("--kubeconfig=", "--context="))]
    check_rights([settings.kubectl, *own_flags], namespace, target)
    asyncio.run(forward(settings.forwards[f"{namespace} {target} {port.removeprefix(':')}"], port))


def check_rights(own_kubectl: list[str], namespace: str, target: str) -> None:
    found = subprocess.run([*own_kubectl, "get", target, f"--namespace={namespace}"], check=False, stdout=sys.stderr)
    if found.returncode != 0:
        sys.exit(found.returncode)
    path = f"/api/v1/namespaces/{namespace}/pods/any/portforward"
    created = subprocess.run(
        [*own_kubectl, "create", "--raw", path, "-f", "/dev/null"], check=False, capture_output=True
    )
    if b"(Forbidden)" in created.stderr:
        sys.exit(created.stderr.decode())


async def forward(destination: int, port: str) -> None:
    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        say(f"Handling connection for {port}")
        to_reader, to_writer = await asyncio.open_connection("127.0.0.1", destination)
        await asyncio.gather(copy(reader, to_writer), copy(to_reader, writer))

    server = await asyncio.start_server(connect, "127.0.0.1", 0)
    local = server.sockets[0].getsockname()[1]
    say(f"Forwarding from 127.0.0.1:{local} -> {port.removeprefix(':')}")
    await server.serve_forever()


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while piece := await reader.read(65536):
            writer.write(piece)
            await writer.drain()
        writer.close()


if __name__ == "__main__":
    main()
