"""The storage counts revisions, and remembers only so many changes."""

import asyncio
from typing import Any

import pytest

from kube.mapping import GroupResource
from kube.status import StatusError
from playground.apiserver.storage import Storage

THINGS = GroupResource("", "things")
OTHERS = GroupResource("", "others")


def thing(name: str, namespace: str = "ns", **fields: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": namespace}, **fields}


def test_what_was_at_an_earlier_revision_is_known_until_that_is_forgotten() -> None:
    storage = Storage()

    def colours(at: int | None) -> list[str]:
        return [obj["colour"] for obj in storage.objects(THINGS, at=at)]

    storage.put(THINGS, thing("b", colour="red"))
    assert colours(None) == ["red"]
    storage.put(THINGS, thing("a", colour="blue"))
    assert colours(None) == ["blue", "red"]
    storage.put(OTHERS, thing("a", colour="none of these"))
    storage.put(THINGS, thing("b", colour="green"))
    storage.remove(THINGS, "ns", "b")
    assert colours(None) == ["blue"]
    storage.put(THINGS, thing("b", colour="white"))
    assert [colours(at) for at in range(1, 7)] == [
        ["red"],
        ["blue", "red"],
        ["blue", "red"],
        ["blue", "green"],
        ["blue"],
        ["blue", "white"],
    ]
    assert colours(None) == ["blue", "white"]
    storage.compact()
    assert colours(6) == ["blue", "white"]
    with pytest.raises(StatusError) as refusal:
        colours(5)
    assert refusal.value.code == 410


def test_every_write_takes_the_next_revision_whatever_it_is_about() -> None:
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


async def test_a_subscription_replays_what_came_after_its_revision() -> None:
    storage = Storage()
    storage.put(THINGS, thing("a"))
    storage.put(OTHERS, thing("not-asked-for"))
    storage.put(THINGS, thing("a", changed=True))
    subscription = storage.subscribe(THINGS, 1)
    storage.remove(THINGS, "ns", "a")
    first, second = await subscription.next(), await subscription.next()
    assert (first.type, first.revision, first.previous is not None) == ("MODIFIED", 3, True)
    assert (second.type, second.revision, second.object["changed"]) == ("DELETED", 4, True)


def test_only_so_many_changes_are_remembered() -> None:
    storage = Storage(history=2)
    for name in "abcd":
        storage.put(THINGS, thing(name))
    storage.subscribe(THINGS, 2).close()
    with pytest.raises(StatusError, match=r"^too old resource version: 1 \(2\)$") as refusal:
        storage.subscribe(THINGS, 1)
    assert refusal.value.code == 410


def test_the_future_cannot_be_subscribed_to() -> None:
    with pytest.raises(StatusError, match=r"^Too large resource version: 7, current: 0$") as refusal:
        Storage().subscribe(THINGS, 7)
    assert refusal.value.code == 504


async def test_a_reader_that_is_far_too_slow_is_told_to_list_again() -> None:
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


async def test_a_closed_subscription_hears_no_more() -> None:
    storage = Storage()
    subscription = storage.subscribe(THINGS, 0)
    storage.put(THINGS, thing("a"))
    subscription.close()
    storage.put(THINGS, thing("b"))
    assert (await subscription.next()).object["metadata"]["name"] == "a"
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await subscription.next()
