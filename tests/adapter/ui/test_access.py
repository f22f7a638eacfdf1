"""Who may see the adapter's pages on an address that is not a loopback one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from kube.api.status import StatusError
from kube.security.authentication import User
from kube.security.authorization import AuthorizationOptions, Authorizer
from tests.adapter.diagnosis_env import RULES
from tests.adapter.metrics_env import CannedPrometheus
from tests.adapter.ui.env import PagesEnv, pages_env
from tests.kube.access_api import AccessApi, Authorities

RIGHTS = {"viewer": ("/debug/rules",), "operator": ("/debug/rules", "/debug/metrics/pods/x", "/debug/try"), "other": ()}


def is_allowed(spec: dict[str, Any]) -> bool:
    """Users have the RIGHTS of their names."""
    attributes = spec.get("nonResourceAttributes", {})
    return attributes.get("verb") == "get" and attributes.get("path") in RIGHTS.get(spec["user"], ())


@asynccontextmanager
async def reviewed_pages(folder: Path) -> AsyncIterator[tuple[PagesEnv, AccessApi]]:
    access = AccessApi(Authorities())
    access.allowed = is_allowed
    async with pages_env(folder, RULES, CannedPrometheus()) as env:
        access.script(env.metrics.api)
        env.use_authorizer(Authorizer(env.metrics.client, AuthorizationOptions(authorized_ttl=0.0)))
        yield env, access


async def test_pages_require_the_right_to_get_the_path_below_debug(tmp_path: Path) -> None:
    readable = ("/", "/rules/rules[0]", "/objects", "/metric")
    others = ("/metric?metric=pods/x", "/metric/events?metric=pods/x", "/try", "/try?rule=x")
    async with reviewed_pages(tmp_path) as (env, _):
        for path in (*readable, *others):
            for user in ("other", *(() if path in readable else ("viewer",))):
                with pytest.raises(StatusError) as error:
                    await env.get(path, user=User(user))
                assert error.value.code == 403
            for user in ("operator", *(("viewer",) if path in readable else ())):
                if "events" not in path:
                    assert "<html" in await env.get(path, user=User(user))


async def test_events_end_when_the_user_loses_the_right(tmp_path: Path) -> None:
    async with reviewed_pages(tmp_path) as (env, access):
        events = await env.events("/events", user=User("viewer"))
        await anext(events)
        access.allowed = lambda _: False
        with pytest.raises(StatusError) as error:
            async for _ in events:
                pass
        assert error.value.code == 403
