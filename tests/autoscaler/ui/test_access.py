"""The namespaces that a user may see: how many SubjectAccessReviews are sent, and what they ask."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from autoscaler.ui.access import NamespaceAccess
from kube.api.status import StatusError
from kube.security.authentication import User
from kube.security.authorization import AuthorizationOptions, Authorizer
from kube.security.request_info import RequestInfo
from tests.kube.access_api import AccessApi, Authorities
from tests.kube.scripted import connected, scripted_server

JANE = User("jane", ("team-a", "system:authenticated"))
GROUP = "autoscaling"
RESOURCE = "horizontalpodautoscalers"


@pytest.fixture(scope="module")
def authorities() -> Authorities:
    return Authorities()


@pytest.fixture
def api(authorities: Authorities) -> AccessApi:
    return AccessApi(authorities)


@pytest.fixture
async def access(api: AccessApi, tmp_path: Path) -> AsyncIterator[NamespaceAccess]:
    async with scripted_server() as server, connected(server, tmp_path) as client:
        api.script(server)
        yield NamespaceAccess(Authorizer(client, AuthorizationOptions()))


def only(*namespaces: str) -> Any:
    return lambda spec: spec["resourceAttributes"].get("namespace", "") in namespaces


def namespaces(count: int) -> list[tuple[str, str]]:
    return [(GROUP, f"ns-{number}") for number in range(count)]


async def test_on_loopback_everyone_sees_every_namespace() -> None:
    access = NamespaceAccess(None)
    assert await access.visible(None, namespaces(2)) == set(namespaces(2))
    await access.require(None, GROUP, "ns-0")


async def test_a_request_without_a_user_sees_nothing(access: NamespaceAccess, api: AccessApi) -> None:
    api.allowed = lambda spec: True
    assert await access.visible(None, namespaces(2)) == frozenset()
    with pytest.raises(StatusError) as raised:
        await access.require(None, GROUP, "ns-0")
    assert raised.value.code == 403
    assert api.reviews == []


async def test_a_right_in_all_namespaces_needs_one_review(access: NamespaceAccess, api: AccessApi) -> None:
    api.allowed = only("")
    assert await access.visible(JANE, namespaces(50)) == set(namespaces(50))
    assert [review["spec"] for review in api.reviews] == [
        {
            "user": "jane",
            "groups": ["team-a", "system:authenticated"],
            "resourceAttributes": {"verb": "get", "group": GROUP, "resource": RESOURCE},
        }
    ]


async def test_other_users_see_the_namespaces_of_their_rights(access: NamespaceAccess, api: AccessApi) -> None:
    api.allowed = only("ns-3", "ns-7")
    assert await access.visible(JANE, namespaces(50)) == {(GROUP, "ns-3"), (GROUP, "ns-7")}
    assert len(api.reviews) == 51
    assert await access.visible(JANE, namespaces(50)) == {(GROUP, "ns-3"), (GROUP, "ns-7")}
    assert len(api.reviews) == 51  # decisions are cached


async def test_a_right_in_one_api_group_is_none_in_another(access: NamespaceAccess, api: AccessApi) -> None:
    api.allowed = lambda spec: spec["resourceAttributes"]["group"] == GROUP
    both = [(GROUP, "ns-0"), ("milliscale.io", "ns-0")]
    assert await access.visible(JANE, both) == {(GROUP, "ns-0")}


async def test_two_views_of_one_user_share_their_reviews(access: NamespaceAccess, api: AccessApi) -> None:
    api.allowed = only("ns-1")
    views = await asyncio.gather(*(access.visible(JANE, namespaces(40)) for _ in range(2)))
    assert views == [{(GROUP, "ns-1")}, {(GROUP, "ns-1")}]
    assert len(api.reviews) == 41


async def test_many_namespaces_are_reviewed_twenty_a_second(api: AccessApi, tmp_path: Path) -> None:
    clock = [0.0]
    async with scripted_server() as server, connected(server, tmp_path) as client:
        api.script(server)
        api.allowed = only("ns-1")
        authorizer = Authorizer(client, AuthorizationOptions(unauthorized_ttl=0.0, authorized_ttl=0.0))
        access = NamespaceAccess(authorizer, clock=lambda: clock[0])
        for seconds, more in ((0.0, 101), (4.9, 1), (5.0, 101)):
            clock[0] = seconds
            before = len(api.reviews)
            assert await access.visible(JANE, namespaces(100)) == {(GROUP, "ns-1")}
            assert len(api.reviews) - before == more
        # A namespace that is new is reviewed at once, and a right to all namespaces counts at once.
        before = len(api.reviews)
        assert await access.visible(JANE, namespaces(101)) == {(GROUP, "ns-1")}
        assert len(api.reviews) - before == 2
        api.allowed = only("")
        assert len(await access.visible(JANE, namespaces(100))) == 100


class CountingAuthorizer(Authorizer):
    """Allows nothing, and counts the reviews under way."""

    def __init__(self) -> None:
        self.running = self.most = 0
        self.users: list[str] = []

    async def allows(self, user: User, info: RequestInfo) -> bool:
        self.users.append(user.name)
        self.running += 1
        self.most = max(self.most, self.running)
        await asyncio.sleep(0)
        self.running -= 1
        return False


async def test_at_most_ten_reviews_are_sent_at_a_time() -> None:
    authorizer = CountingAuthorizer()
    access = NamespaceAccess(authorizer)
    await asyncio.gather(*(access.visible(JANE, namespaces(40)) for _ in range(3)))
    # Each view begins with one review for all namespaces.
    assert authorizer.most == 10


async def test_a_user_does_not_wait_for_the_many_pages_of_another() -> None:
    authorizer = CountingAuthorizer()
    access = NamespaceAccess(authorizer)
    pages = [[(GROUP, f"page-{page}-{number}") for number in range(20)] for page in range(40)]
    await asyncio.gather(*(access.visible(JANE, each) for each in pages), access.visible(User("joe"), namespaces(5)))
    # 40 views have 400 reviews waiting at a time.
    assert "joe" not in authorizer.users[100:]


async def test_without_a_decision_nothing_is_visible(access: NamespaceAccess, api: AccessApi) -> None:
    api.allowed = only()
    await access.visible(JANE, [])
    api.refuse_with = 503
    with pytest.raises(StatusError) as raised:
        await access.visible(JANE, namespaces(20))
    assert raised.value.code == 500


async def test_an_error_of_one_review_is_raised_as_it_is(access: NamespaceAccess, api: AccessApi) -> None:
    def allowed(spec: dict[str, Any]) -> bool:
        if "namespace" in spec["resourceAttributes"]:
            api.refuse_with = 500
        return False

    api.allowed = allowed
    with pytest.raises(StatusError) as raised:
        await access.visible(JANE, namespaces(30))
    assert str(raised.value) == "Internal error occurred: access cannot be checked"


async def test_a_missing_right_is_named_as_in_kubernetes(access: NamespaceAccess, api: AccessApi) -> None:
    api.allowed = only("ns-1")
    await access.require(JANE, GROUP, "ns-1")
    with pytest.raises(StatusError) as raised:
        await access.require(JANE, GROUP, "ns-2")
    assert raised.value.code == 403
    assert str(raised.value) == (
        'horizontalpodautoscalers.autoscaling is forbidden: User "jane" cannot get resource '
        '"horizontalpodautoscalers" in API group "autoscaling" in the namespace "ns-2"'
    )
