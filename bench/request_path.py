"""Name the modules in which functions run during a first GET of `pods/*`: `python -m bench.request_path`.

The adapter runs in this process, with TLS, a front proxy, and an API server and a Prometheus that are test doubles. It
is ready and has listed series and pods before the request, which is the first one; functions in threads count, too.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import threading
from pathlib import Path
from types import FrameType

import click

from tests.adapter.test_serve import PACKETS, POD, running

_ROOT = Path(__file__).resolve().parents[1]


async def _modules(target: str) -> set[str]:
    files: set[str] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            files.add(frame.f_code.co_filename)

    with tempfile.TemporaryDirectory() as folder:
        async with (
            running(Path(folder), PACKETS, relist_interval=3600.0) as adapter,
            adapter.connection() as connection,
        ):
            threading.setprofile(note)
            sys.setprofile(note)
            code, _, body = await connection.request(target)
            sys.setprofile(None)
            threading.setprofile(None)
    assert code == 200, body
    paths = (Path(name) for name in files if name.startswith(str(_ROOT)))
    return {".".join(path.relative_to(_ROOT).with_suffix("").parts) for path in paths}


@click.command()
@click.option("--target", default=f"{POD}/%2A/packets_total", show_default=True, help="The path to request.")
def main(*, target: str) -> None:
    """Name the modules in which functions run during a first request."""
    modules = asyncio.run(_modules(target))
    for package in ("adapter", "kube"):
        found = sorted(name for name in modules if name.startswith(f"{package}."))
        click.echo("\n".join([f"{package}: {len(found)} modules", *(f"  {name}" for name in found)]))


if __name__ == "__main__":
    main()
