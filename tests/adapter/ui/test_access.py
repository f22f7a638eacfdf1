"""Who may see the adapter's pages on an address that is not a loopback one."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from prometheus_client import CollectorRegistry

from kube.api.status import StatusError
from kube.security.authentication import User
from kube.security.authorization import AuthorizationOptions, Authorizer
from kube.serving.delegated import DelegatedAuth
from kube.serving.options import AuthOptions, TLSOptions
from kube.web.options import UIAddress
from kube.web.server import PageServer
from playground.certs import KeyPair
from tests.adapter.diagnosis_env import RULES
from tests.adapter.metrics_env import CannedPrometheus
from tests.adapter.ui.env import PagesEnv, pages_env
from tests.eventually import eventually
from tests.kube.access_api import AccessApi, Authorities, write_pair

RIGHTS = {"viewer": ("/debug/rules",), "operator": ("/debug/rules", "/debug/metrics/pods/x", "/debug/try"), "other": ()}


class Site:
    """The pages over TLS; users have the RIGHTS of their names."""

    def __init__(self, env: PagesEnv, folder: Path, authorities: Authorities, url: str, api: AccessApi) -> None:
        self.env, self.api, self._folder, self._authorities, self._url = env, api, folder, authorities, url

    async def status(self, path: str, user: str | None) -> int:
        """Return the status of a response to a user; None: without a client certificate."""
        pair = self._authorities.clients.issue(user, client=True) if user is not None else None
        async with (
            aiohttp.ClientSession() as http,
            http.get(self._url + path, ssl=self._tls(pair), headers={"Accept": "*/*"}) as response,
        ):
            return response.status

    def _tls(self, pair: KeyPair | None) -> ssl.SSLContext:
        context = ssl.create_default_context(cadata=self._authorities.serving.cert_pem.decode())
        if pair is not None:
            files = write_pair(self._folder, pair, "user")
            context.load_cert_chain(files.cert, files.key)
        return context


def _is_allowed(spec: dict[str, Any]) -> bool:
    attributes = spec.get("nonResourceAttributes", {})
    return attributes.get("verb") == "get" and attributes.get("path") in RIGHTS.get(spec["user"], ())


@asynccontextmanager
async def site(folder: Path) -> AsyncIterator[Site]:
    authorities = Authorities()
    access = AccessApi(authorities)
    access.allowed = _is_allowed
    async with pages_env(folder, RULES, CannedPrometheus()) as env, asyncio.TaskGroup() as tasks:
        access.script(env.metrics.api)
        pair = write_pair(folder, authorities.serving.issue("pages", hosts=["127.0.0.1"], server=True))
        auth = DelegatedAuth(
            AuthOptions(tls=TLSOptions(certificate=pair)),
            authentication_client=env.metrics.client,
            authorization_client=env.metrics.client,
        )
        reloading = tasks.create_task(auth.run())
        env.use_authorizer(auth.authorizer)
        server = PageServer(
            env.pages, UIAddress("::", 0), auth=auth, registry=CollectorRegistry(), metrics_prefix="test"
        )
        listening = server.bind()
        await server.start(listening)

        async def loaded() -> bool:
            return auth.trust.problem() is None

        assert await eventually(loaded, every=0.01)
        try:
            yield Site(env, folder, authorities, f"https://127.0.0.1:{listening.getsockname()[1]}", access)
        finally:
            await server.stop()
            reloading.cancel()


async def test_pages_require_the_right_to_get_the_path_below_debug(tmp_path: Path) -> None:
    readable = ("/", "/rules/rules[0]", "/objects", "/metric")
    others = ("/metric?metric=pods/x", "/metric/events?metric=pods/x", "/try", "/try?rule=x")
    async with site(tmp_path) as served:
        for path in (*readable, *others):
            assert await served.status(path, None) == 401
            assert await served.status(path, "other") == 403
            assert await served.status(path, "viewer") == (200 if path in readable else 403)
            if "events" not in path:
                assert await served.status(path, "operator") == 200


async def test_events_end_when_the_user_loses_the_right(tmp_path: Path) -> None:
    async with site(tmp_path) as served:
        allowed = True
        served.api.allowed = lambda spec: allowed
        user = User("viewer")
        served.env.use_authorizer(Authorizer(served.env.metrics.client, AuthorizationOptions(authorized_ttl=0.0)))
        events = await served.env.events("/events", user=user)
        await anext(events)
        allowed = False
        with pytest.raises(StatusError) as error:
            async for _ in events:
                pass
        assert error.value.code == 403
