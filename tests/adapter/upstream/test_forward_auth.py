"""Another adapter behind OAuth 2.0."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from aiohttp import web

from adapter.upstream import Auth, OAuth2Auth
from tests.adapter.test_forward import API, fetch, forwarding, listed, other_adapter
from tests.adapter.upstream.test_oauth2 import SECRET, TokenServer
from tests.web_servers import served


async def test_forwarded_requests_have_a_token(tmp_path: Path) -> None:
    tokens = TokenServer()
    application = web.Application()
    application.router.add_post("/token", tokens.token)
    (tmp_path / "client-secret").write_text(SECRET)
    async with other_adapter(tmp_path) as (server, options), served(application) as url:
        form = OAuth2Auth(token_url=f"{url}/token", client_id="adapter", client_secret_file=tmp_path / "client-secret")
        options = dataclasses.replace(options, token_file=None, auth=Auth(oauth2=form))
        async with forwarding(tmp_path, options) as (external, _, forwarder, _):
            await listed(forwarder)
            assert len(await fetch(external, "s0-queue")) == 2
    assert server.requests[-1].startswith(f"GET {API}/namespaces/shop/s0-queue")
    assert {headers["Authorization"] for headers in server.headers} == {"Bearer token-1"}
