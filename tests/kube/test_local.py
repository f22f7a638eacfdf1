"""Which requests come from inside the pod."""

from __future__ import annotations

import asyncio
from unittest.mock import Mock

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from autoscaler.loop.endpoint import serving
from kube.serving.local import is_local


def request(*, client: str, connected_to: str, host: str = "localhost:6443") -> web.BaseRequest:
    """A request on a connection between these addresses."""
    ends = {"peername": (client, 40000), "sockname": (connected_to, 6443)}
    transport = Mock(asyncio.Transport, get_extra_info=lambda name, default=None: ends.get(name, default))
    return make_mocked_request("GET", "/debug/config", headers={"Host": host}, transport=transport)


@pytest.mark.parametrize(
    ("client", "connected_to"),
    [("127.0.0.1", "127.0.0.1"), ("::1", "::1"), ("::ffff:127.0.0.1", "::ffff:127.0.0.1"), ("127.0.0.1", "127.0.0.2")],
)
def test_forwarded_port_is_local(client: str, connected_to: str) -> None:
    assert is_local(request(client=client, connected_to=connected_to))


@pytest.mark.parametrize(
    ("client", "connected_to"),
    [
        ("127.0.0.1", "10.0.0.7"),
        ("127.0.0.6", "10.0.0.7"),
        ("127.0.0.6", "127.0.0.1"),
        ("::1", "fd00::7"),
        ("::ffff:127.0.0.6", "::ffff:127.0.0.1"),
        ("127.0.0.1", "::ffff:10.0.0.7"),
    ],
)
def test_connection_that_a_service_mesh_passes_on_is_not_local(client: str, connected_to: str) -> None:
    assert not is_local(request(client=client, connected_to=connected_to))


@pytest.mark.parametrize("client", ["10.0.0.8", "fd00::8", "somewhere", ""])
def test_other_address_is_not_local(client: str) -> None:
    assert not is_local(request(client=client, connected_to="10.0.0.7"))
    assert not is_local(request(client=client, connected_to="127.0.0.1"))


@pytest.mark.parametrize("host", ["localhost", "a.localhost:8080", "127.0.0.1:1", "[::1]:1", "127.0.0.2"])
def test_name_of_this_host_is_local(host: str) -> None:
    assert is_local(request(client="127.0.0.1", connected_to="127.0.0.1", host=host))


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:80", "10.0.0.7", "[", ""]
)
def test_other_name_is_not_local(host: str) -> None:
    assert not is_local(request(client="127.0.0.1", connected_to="127.0.0.1", host=host))


async def test_addresses_are_those_of_the_connection() -> None:
    async def respond(request: web.BaseRequest, _: bytes | None) -> web.Response:
        return web.Response(text=str(is_local(request)))

    async with serving(respond, host="127.0.0.1", port=0) as port:

        async def said(client: str) -> str:
            connector = aiohttp.TCPConnector(local_addr=(client, 0))
            async with (
                aiohttp.ClientSession(connector=connector) as http,
                http.get(f"http://127.0.0.1:{port}", headers={"X-Forwarded-For": "127.0.0.1"}) as response,
            ):
                return await response.text()

        assert (await said("127.0.0.1"), await said("127.0.0.6")) == ("True", "False")
