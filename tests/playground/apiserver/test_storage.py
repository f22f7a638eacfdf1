"""Revisions, history and subscriptions of the storage."""

import asyncio
from typing import Any

import pytest

from kube.api.mapping import GroupResource
from kube.api.status import StatusError
from playground.apiserver.storage import Storage

THINGS = GroupResource("", "things")
OTHERS = GroupResource("", "others")


def thing(name: str, namespace: str = "ns", **fields: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": namespace}, **fields}


def test_revision_is_kept_until_a_compaction_or_until_others_replace_it() -> None:
    storage = Storage()

    def colours(at: int | None = None) -> list[str]:
        return [obj["colour"] for obj in storage.objects(THINGS, "ns", at=at)]

    storage.put(THINGS, thing("b", colour="red"))
    storage.put(THINGS, thing("c", "elsewhere", colour="none of these"))
    assert colours() == ["red"]
    storage.keep_revision(THINGS, 2)
    storage.put(THINGS, thing("a", colour="blue"))
    storage.keep_revision(THINGS, 3)
    storage.put(THINGS, thing("b", colour="green"))
    assert colours() == ["blue", "green"]
    storage.remove(THINGS, "ns", "a")
    assert (colours(2), colours(3), colours(5), colours()) == (["red"], ["blue", "red"], ["green"], ["green"])
    for revision in range(5, 36):
        storage.keep_revision(THINGS, 2)  # still in use
        storage.keep_revision(THINGS, revision)
        storage.put(THINGS, thing("b", colour=f"shade {revision}"))
    assert colours(2) == ["red"]
    with pytest.raises(StatusError) as refusal:
        colours(3)
    assert refusal.value.code == 410
    storage.compact()
    assert colours(36) == ["shade 35"]
    with pytest.raises(StatusError):
        colours(2)


def test_every_write_takes_the_next_revision() -> None:
    storage = Storage()
    first = storage.put(THINGS, thing("a"))
    second = storage.put(OTHERS, thing("a"))
    last = storage.remove(THINGS, "ns", "a")
    assert last is not None
    versions = [obj["metadata"]["resourceVersion"] for obj in (first, second, last)]
    assert versions == ["1", "2", "3"]
    assert storage.revision == 3
    assert storage.get(THINGS, "ns", "a") is None
    assert storage.remove(THINGS, "ns", "a") is None


def test_objects_are_listed_by_namespace_and_name() -> None:
    storage = Storage()
    for namespace, name in (("b", "a"), ("a", "b"), ("a", "a")):
        storage.put(THINGS, thing(name, namespace))
    assert [(obj["metadata"]["namespace"], obj["metadata"]["name"]) for obj in storage.objects(THINGS)] == [
        ("a", "a"),
        ("a", "b"),
        ("b", "a"),
    ]
    assert len(storage.objects(THINGS, "a")) == 2


async def test_subscription_replays_later_changes() -> None:
    storage = Storage()
    storage.put(THINGS, thing("a"))
    storage.put(OTHERS, thing("not-asked-for"))
    storage.put(THINGS, thing("a", changed=True))
    subscription = storage.subscribe(THINGS, 1)
    storage.remove(THINGS, "ns", "a")
    first, second = await subscription.next(), await subscription.next()
    assert (first.type, first.revision, first.previous is not None) == ("MODIFIED", 3, True)
    assert (second.type, second.revision, second.object["changed"]) == ("DELETED", 4, True)


def test_history_is_bounded() -> None:
    storage = Storage(history=2)
    for name in "abcd":
        storage.put(THINGS, thing(name))
    storage.subscribe(THINGS, 2).close()
    with pytest.raises(StatusError, match=r"^too old resource version: 1 \(2\)$") as refusal:
        storage.subscribe(THINGS, 1)
    assert refusal.value.code == 410


def test_future_revision_is_refused() -> None:
    with pytest.raises(StatusError, match=r"^Too large resource version: 7, current: 0$") as refusal:
        Storage().subscribe(THINGS, 7)
    assert refusal.value.code == 504


async def test_slow_subscriber_gets_410() -> None:
    storage = Storage()
    subscription = storage.subscribe(THINGS, 0)
    for _ in range(5000):
        storage.put(THINGS, thing("a"))

    async def read_all() -> None:
        while True:
            await subscription.next()

    with pytest.raises(StatusError) as refusal:
        await read_all()
    assert refusal.value.code == 410


@pytest.mark.looptime
async def test_closed_subscription_gets_no_changes() -> None:
    storage = Storage()
    subscription = storage.subscribe(THINGS, 0)
    storage.put(THINGS, thing("a"))
    subscription.close()
    storage.put(THINGS, thing("b"))
    assert (await subscription.next()).object["metadata"]["name"] == "a"
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await subscription.next()
