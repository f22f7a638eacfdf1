"""Pages of a list all show the state at the first one, until it is compacted."""

from typing import Any

import pytest

from kube.api.client import KubeClient
from kube.api.status import StatusError
from playground.apiserver import PlaygroundApiServer
from tests.objects import config_map

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


@pytest.fixture
async def seven(admin: KubeClient) -> None:
    """Seven ConfigMaps, those with odd numbers of the tier `odd`."""
    for number in range(7):
        await admin.post(CONFIG_MAPS, config_map(f"cm-{number}", tier="odd" if number % 2 else "even"))


def names(response: dict[str, Any]) -> str:
    """The numbers of a page's ConfigMaps."""
    return "".join(each["metadata"]["name"].removeprefix("cm-") for each in response["items"])


async def test_pages_are_of_one_revision(admin: KubeClient, seven: None) -> None:
    first = await admin.get(CONFIG_MAPS, {"limit": 3})
    assert (names(first), first["metadata"]["remainingItemCount"]) == ("012", 4)
    await admin.post(CONFIG_MAPS, config_map("cm-25"))
    await admin.delete(f"{CONFIG_MAPS}/cm-4")
    await admin.patch(f"{CONFIG_MAPS}/cm-5", {"data": {"k": "new"}})
    await admin.delete(f"{CONFIG_MAPS}/cm-6")
    await admin.post(CONFIG_MAPS, config_map("cm-6"))
    second = await admin.get(CONFIG_MAPS, {"limit": 3, "continue": first["metadata"]["continue"]})
    assert names(second) == "345"
    assert "new" not in str(second["items"])
    third = await admin.get(CONFIG_MAPS, {"limit": 3, "continue": second["metadata"]["continue"]})
    assert names(third) == "6"
    versions = {page["metadata"]["resourceVersion"] for page in (first, second, third)}
    assert len(versions) == 1
    assert "continue" not in third["metadata"]


async def test_pages_of_a_selection(admin: KubeClient, seven: None) -> None:
    query: dict[str, str | int] = {"limit": 2, "labelSelector": "tier=odd"}
    first = await admin.get(CONFIG_MAPS, query)
    assert names(first) == "13"
    assert "remainingItemCount" not in first["metadata"]
    second = await admin.get(CONFIG_MAPS, {**query, "continue": first["metadata"]["continue"]})
    assert (names(second), "continue" in second["metadata"]) == ("5", False)


async def test_pages_cross_namespaces(admin: KubeClient, seven: None) -> None:
    await admin.post("/api/v1/namespaces", {"metadata": {"name": "earlier"}})
    await admin.post("/api/v1/namespaces/earlier/configmaps", config_map("cm-0"))
    query: dict[str, str | int] = {"limit": 1, "labelSelector": "tier notin (even)"}
    found: list[str] = []
    while True:
        page = await admin.get("/api/v1/configmaps", query)
        found += [each["metadata"]["name"] for each in page["items"] if each["metadata"]["name"].startswith("cm-")]
        if "continue" not in page["metadata"]:
            break
        query["continue"] = page["metadata"]["continue"]
    assert found == ["cm-1", "cm-3", "cm-5", "cm-0"]


async def test_tables_are_paginated(admin: KubeClient, seven: None) -> None:
    page = await admin.get(CONFIG_MAPS, {"limit": 3}, accept=TABLE)
    assert len(page["rows"]) == 3
    assert page["metadata"]["continue"]


@pytest.mark.parametrize("query", [{"limit": 3, "resourceVersion": "0"}, {"limit": 0}, {"limit": -3}, {"limit": 7}, {}])
async def test_list_from_the_cache_or_without_limit_is_complete(
    query: dict[str, str | int], admin: KubeClient, seven: None
) -> None:
    page = await admin.get(CONFIG_MAPS, query)
    assert names(page) == "0123456"
    assert "continue" not in page["metadata"]


async def test_compacted_continue_token_is_410(admin: KubeClient, server: PlaygroundApiServer, seven: None) -> None:
    first = await admin.get(CONFIG_MAPS, {"limit": 3})
    await admin.delete(f"{CONFIG_MAPS}/cm-4")
    server.storage.compact()
    with pytest.raises(StatusError, match=r"^The provided continue parameter is too old") as refusal:
        await admin.get(CONFIG_MAPS, {"limit": 3, "continue": first["metadata"]["continue"]})
    assert (refusal.value.code, refusal.value.reason) == (410, "Expired")


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ({"limit": "many"}, 'strconv.ParseInt: parsing "many": invalid syntax'),
        ({"continue": "nonsense"}, "invalid continue token"),
        ({"continue": "e30"}, "invalid continue token"),
        ({"continue": "e30", "resourceVersion": "5"}, "not allowed when using continue"),
    ],
)
async def test_invalid_parameters_are_400(query: dict[str, str], message: str, admin: KubeClient) -> None:
    with pytest.raises(StatusError, match=message) as refusal:
        await admin.get(CONFIG_MAPS, query)
    assert refusal.value.code == 400
