"""Answers from memory: the same bytes, for the same user, while they hold; and everything else the long way."""

from __future__ import annotations

import asyncio
import gzip
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from adapter.security.authorization import AuthorizationOptions
from adapter.serving.short_cut import PlainRequest
from tests.adapter.serving import EXTERNAL_PATH, FRONT_PROXY, POD_PATH, CannedUsage, ServedAdapter, served_adapter
from tests.eventually import eventually

BIG_PATH = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/big/pods/%2A/conn_open"


@dataclass
class Connection:
    """One connection of the front proxy's, kept open."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def ask(self, path: str, user: str = "bob", *, method: str = "GET", **headers: str) -> tuple[int, str, bytes]:
        """Status, head without Date, and body."""
        lines = {"Host": "adapter", "X-Remote-User": user, **{k.replace("_", "-"): v for k, v in headers.items()}}
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        return await self.send(f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode())

    async def send(self, request: bytes) -> tuple[int, str, bytes]:
        self.writer.write(request)
        async with asyncio.timeout(10):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode()
            length = re.search(r"Content-Length: (\d+)", head)
            assert length is not None
            body = await self.reader.readexactly(int(length[1]))
        lines = sorted(line for line in head.split("\r\n") if not line.startswith("Date: "))
        return int(head[9:12]), "\n".join(lines), body


@asynccontextmanager
async def front_proxy(adapter: ServedAdapter, *, name: str = FRONT_PROXY) -> AsyncIterator[Connection]:
    certificate = adapter.authorities.front_proxy.issue(name, client=True)
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", adapter.port, ssl=adapter.client_context(certificate), server_hostname="127.0.0.1"
    )
    try:
        yield Connection(reader, writer)
    finally:
        writer.close()


@asynccontextmanager
async def bed(folder: Path, *, fresh: float = 60.0, authorized: float = 60.0) -> AsyncIterator[ServedAdapter]:
    options = AuthorizationOptions(authorized_ttl=authorized)
    async with served_adapter(folder, authorization=options) as adapter:
        adapter.metrics.fresh_seconds = fresh
        yield adapter


@pytest.mark.parametrize("accept", ["application/json", "application/json;as=Table;v=v1;g=meta.k8s.io"])
@pytest.mark.parametrize(
    "path", ["pods", "namespaces/shop/pods", "namespaces/shop/pods/web-0", "nodes", "nodes/node-0"]
)
async def test_what_pods_and_nodes_use_is_remembered_too(tmp_path: Path, path: str, accept: str) -> None:
    usage = CannedUsage()
    async with served_adapter(tmp_path, usage=usage) as adapter, front_proxy(adapter) as connection:
        answers = [await connection.ask(f"/apis/metrics.k8s.io/v1beta1/{path}", Accept=accept) for _ in range(5)]
        assert answers[0][0] == 200
        assert answers[1:] == answers[:-1]
        assert usage.asked == 1
        assert adapter.handed_out[0][0] == "metrics.k8s.io"
        assert len(adapter.handed_out) == 4


@pytest.mark.parametrize("path", [POD_PATH, EXTERNAL_PATH, BIG_PATH])
async def test_what_was_answered_is_answered_again_with_the_same_bytes(tmp_path: Path, path: str) -> None:
    async with bed(tmp_path) as adapter, front_proxy(adapter) as connection:
        adapter.metrics.count = 3
        first = await connection.ask(path, Audit_Id="1")
        again = [await connection.ask(path, Audit_Id=str(number)) for number in range(2, 20)]
        assert first[0] == 200
        assert all(answer == first for answer in again)
        assert len(adapter.metrics.asked) == 1
        assert 'code="200"' in adapter.telemetry.exposition().body.decode()
        assert sum(count for _, _, count in adapter.handed_out) == 18 * (1 if path == POD_PATH else 3)


async def test_a_long_list_is_remembered_as_each_client_reads_it(tmp_path: Path) -> None:
    """Compressed for those who take that, and never for the others."""
    async with bed(tmp_path) as adapter, front_proxy(adapter) as connection:
        adapter.metrics.count = 800
        plain = [await connection.ask(BIG_PATH)]
        packed = [await connection.ask(BIG_PATH, Accept_Encoding="gzip")]
        plain.append(await connection.ask(BIG_PATH))
        packed.append(await connection.ask(BIG_PATH, Accept_Encoding="gzip"))
        assert plain[0] == plain[1]
        assert packed[0] == packed[1]
        assert "Content-Encoding" not in plain[0][1]
        assert "Content-Encoding: gzip" in packed[0][1]
        assert gzip.decompress(packed[0][2]) == plain[0][2]
        assert len(adapter.metrics.asked) == 2, "both were remembered"


async def test_an_answer_is_remembered_for_the_kind_of_client_that_it_was_written_for(tmp_path: Path) -> None:
    """People who look at an answer with curl get it indented, programs do not."""
    async with bed(tmp_path) as adapter, front_proxy(adapter) as connection:
        for agent, begins in (("kube-controller-manager/v1.36", b'{"'), ("curl/8.5.0", b"{\n")) * 2:
            assert (await connection.ask(POD_PATH, User_Agent=agent))[2].startswith(begins)
        assert len(adapter.metrics.asked) == 2, "both were remembered"


@pytest.mark.parametrize(
    "mine",
    [{"X_Remote_Group": "readers"}, {"X_Remote_Uid": "7"}, {"X_Remote_Extra_Scopes": "metrics"}],
    ids=["groups", "uid", "extra"],
)
async def test_two_users_of_one_name_are_not_the_same(tmp_path: Path, mine: dict[str, str]) -> None:
    """A right may hang on everything that is known of a user."""
    async with bed(tmp_path) as adapter:
        adapter.api.allowed = lambda spec: "readers" in spec["groups"] or "uid" in spec or "extra" in spec
        adapter.api.publish(adapter.authorities.config_map() | {"requestheader-uid-headers": '["X-Remote-Uid"]'})

        async def knows_uids() -> bool:
            proxy = adapter.trust.current.front_proxy
            return proxy is not None and bool(proxy.uid_headers)

        await eventually(knows_uids, within=5.0, every=0.01)
        async with front_proxy(adapter) as connection:
            for _ in range(2):
                assert (await connection.ask(POD_PATH, **mine))[0] == 200
                assert (await connection.ask(POD_PATH))[0] == 403
        assert len(adapter.metrics.asked) == 1, "it was remembered"


async def test_another_user_and_another_wish_get_their_own(tmp_path: Path) -> None:
    async with bed(tmp_path) as adapter, front_proxy(adapter) as connection:
        await connection.ask(POD_PATH)
        assert (await connection.ask(POD_PATH, user="mallory"))[0] == 403
        yaml = await connection.ask(POD_PATH, Accept="application/yaml")
        assert yaml[2].startswith(b"apiVersion: ")
        assert (await connection.ask(f"{POD_PATH}?pretty=1"))[2].startswith(b"{\n")
        assert len(adapter.metrics.asked) == 3


async def test_a_right_that_is_taken_back_ends_what_is_remembered(tmp_path: Path) -> None:
    async with bed(tmp_path, authorized=0.05) as adapter, front_proxy(adapter) as connection:
        assert (await connection.ask(POD_PATH))[0] == 200
        adapter.api.allowed = lambda _: False
        await asyncio.sleep(0.1)
        assert (await connection.ask(POD_PATH))[0] == 403


async def test_values_that_are_no_longer_fresh_are_asked_for(tmp_path: Path) -> None:
    async with bed(tmp_path, fresh=0.05) as adapter, front_proxy(adapter) as connection:
        await connection.ask(POD_PATH)
        await asyncio.sleep(0.1)
        adapter.metrics.milli = 5_000
        assert b'"value":"5"' in (await connection.ask(POD_PATH))[2]


async def test_without_freshness_nothing_is_remembered(tmp_path: Path) -> None:
    async with bed(tmp_path, fresh=0.0) as adapter, front_proxy(adapter) as connection:
        for _ in range(3):
            await connection.ask(POD_PATH)
        assert len(adapter.metrics.asked) == 3


async def test_only_the_front_proxy_may_say_who_asks(tmp_path: Path) -> None:
    async with bed(tmp_path) as adapter:
        async with front_proxy(adapter) as connection:
            await connection.ask(POD_PATH)
        async with front_proxy(adapter, name="somebody-else") as connection:
            assert (await connection.ask(POD_PATH))[0] == 401


async def test_another_method_takes_the_long_way_and_the_next_request_is_answered(tmp_path: Path) -> None:
    async with bed(tmp_path) as adapter, front_proxy(adapter) as connection:
        await connection.ask(POD_PATH)
        assert (await connection.ask(POD_PATH, method="DELETE"))[0] in (403, 405)
        assert (await connection.ask(POD_PATH))[0] == 200


async def test_a_request_in_two_parts_and_two_requests_at_once(tmp_path: Path) -> None:
    async with bed(tmp_path) as adapter, front_proxy(adapter) as connection:
        whole = f"GET {POD_PATH} HTTP/1.1\r\nHost: a\r\nX-Remote-User: bob\r\n\r\n".encode()
        first = await connection.send(whole)
        connection.writer.write(whole[:30])
        await asyncio.sleep(0.05)
        assert await connection.send(whole[30:]) == first
        assert await connection.send(whole + whole) == first
        assert (await connection.send(b""))[2] == first[2]


async def test_what_is_forgotten_is_not_remembered_by_a_request_that_began_before(tmp_path: Path) -> None:
    async with bed(tmp_path) as adapter, front_proxy(adapter) as connection:
        adapter.metrics.hold = asyncio.Event()
        asked = asyncio.create_task(connection.ask(POD_PATH))
        await adapter.metrics.holding.wait()
        adapter.memory.forget()
        adapter.metrics.hold.set()
        before = await asked
        adapter.metrics.hold = None
        adapter.metrics.milli = 1
        after = await connection.ask(POD_PATH)
        assert before[0] == after[0] == 200
        assert before[2] != after[2]
        assert await connection.ask(POD_PATH) == after
        assert len(adapter.metrics.asked) == 2


PLAIN = b"GET /apis HTTP/1.1\r\nHost: a\r\nX-Remote-User:  bob \r\n\r\n"


def test_a_plain_request() -> None:
    assert PlainRequest.read(PLAIN) == PlainRequest(b"/apis", ((b"host", b"a"), (b"x-remote-user", b"bob")))


@pytest.mark.parametrize(
    "data",
    [
        PLAIN.replace(b"GET", b"POST"),
        PLAIN.replace(b"1.1", b"1.0"),
        PLAIN[:-2],
        PLAIN + PLAIN,
        PLAIN + b"x",
        b"\r\n" + PLAIN,
        PLAIN.replace(b"/apis", b"http://a/apis"),
        PLAIN.replace(b"/apis", b"/a b"),
        PLAIN.replace(b"/apis", b"/\xff"),
        PLAIN.replace(b"Host: a", b"Host : a"),
        PLAIN.replace(b"Host: a", b"Host: a\r\n more"),
        PLAIN.replace(b"Host: a", b"Host: a\nX-Remote-User: admin"),
        PLAIN.replace(b"Host: a", b"Content-Length: 5"),
        PLAIN.replace(b"Host: a", b"transfer-encoding: chunked"),
        PLAIN.replace(b"Host: a", b"Connection: close"),
        PLAIN.replace(b"Host: a", b"no colon"),
    ],
)
def test_everything_else_is_left_to_the_long_way(data: bytes) -> None:
    assert PlainRequest.read(data) is None
