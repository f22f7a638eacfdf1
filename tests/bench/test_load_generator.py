"""The load generator counts complete responses."""

import asyncio
import ssl
from collections.abc import Sequence
from pathlib import Path

import pytest

from bench.load_generator import Outcome, Task, execute
from bench.recorded_heads import Head
from playground.apiserver.pki import Pki

_OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


async def _outcome(folder: Path, pieces: Sequence[bytes]) -> Outcome:
    """Load a server for a moment that sends this response, in pieces, to every request."""
    pki = await asyncio.to_thread(Pki.create, folder)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pki.serving.certificate, pki.serving.key)

    answering: set[asyncio.Task[None] | None] = set()

    async def response(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answering.add(asyncio.current_task())
        try:
            while True:
                await reader.readuntil(b"\r\n\r\n")
                for piece in pieces:
                    writer.write(piece)
                    await writer.drain()
                    await asyncio.sleep(0)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async with await asyncio.start_server(response, "127.0.0.1", ssl=context) as server:
        task = Task(
            host="127.0.0.1",
            port=server.sockets[0].getsockname()[1],
            certificate=str(pki.front_proxy.certificate),
            key=str(pki.front_proxy.key),
            targets=("/one", "/two"),
            head=Head(()),
            connections=2,
            seconds=0.1,
            warm_up=0.05,
        )
        try:
            return await execute(task)
        finally:
            await asyncio.wait([one for one in answering if one is not None])


@pytest.mark.parametrize(
    ("pieces", "length"),
    [
        ([_OK + b"Content-Length: 4\r\n\r\nbody"], len(_OK) + 25),
        ([_OK + b"Content-Le", b"ngth: 4\r\n", b"\r\nbo", b"dy"], len(_OK) + 25),
        ([_OK + b"Transfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n"], len(_OK) + 44),
        # What looks like the last chunk is in a chunk; and a size, and the end, are cut.
        (
            [_OK + b"Transfer-Encoding: chunked\r\n\r\n1", b"0\r\n0\r\n\r\n0\r\n\r\nabcdef\r\n", b"0\r\n", b"\r\n"],
            len(_OK) + 57,
        ),
    ],
    ids=["length", "length in pieces", "chunks", "chunks in pieces"],
)
async def test_complete_response_is_counted(tmp_path: Path, pieces: list[bytes], length: int) -> None:
    assert len(b"".join(pieces)) == length

    outcome = await _outcome(tmp_path, pieces)

    assert outcome.requests > 0
    assert outcome.failed == 0
    assert outcome.bytes_read == outcome.requests * length


async def test_failed_response_is_shown(tmp_path: Path) -> None:
    outcome = await _outcome(tmp_path, [b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"])

    assert outcome.failed == outcome.requests > 0
    assert "404 Not Found" in outcome.failure


async def test_response_without_an_end_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConnectionError, match="without a length"):
        await _outcome(tmp_path, [_OK + b"\r\nbody"])
