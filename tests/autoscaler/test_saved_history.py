"""Saving and restoring the history through a ConfigMap, and failures, which stop nothing."""

import asyncio
import base64
import logging
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from autoscaler.core.config import MAX_STABILIZATION_WINDOW_MS
from autoscaler.core.history import History, Recommendation
from autoscaler.core.model import HPA
from autoscaler.loop import saved_history
from autoscaler.loop.clocks import Clocks
from autoscaler.loop.histories import Histories, decode, encode
from autoscaler.loop.saved_history import SavedHistoryLocation, SavedHistoryStore
from autoscaler.loop.sharding import Shard
from autoscaler.settings import HistorySettings
from kube.api.client import KubeClient
from kube.api.mapping import GroupResource
from kube.controller.flowcontrol import ThrottledClient, TokenBucket
from playground.apiserver import PlaygroundApiServer
from tests.autoscaler.simulated_cluster import NOW, hpa
from tests.eventually import eventually
from tests.kube.scripted_api import ScriptedApi, status_body

SOON = 10.0
QUICK = HistorySettings(save_seconds=0.01, retry_seconds=0.01)
IMPATIENT = HistorySettings(load_seconds=0.2, retry_seconds=0.01)
HERE = SavedHistoryLocation(namespace="default", name="state")
MAPS = "/api/v1/namespaces/default/configmaps"
WEB = replace(hpa(), uid="first")


def history(replicas: int, time_ms: int = NOW) -> History:
    return History(recommendations=(Recommendation(replicas, time_ms),))


def memory_of(*known: tuple[HPA, History]) -> Histories:
    memory = Histories()
    for each, past in known:
        memory.replace(each, past)
    return memory


@dataclass
class Place:
    """An API server, and stores on it."""

    server: PlaygroundApiServer
    admin: KubeClient
    leading: bool = True

    def store(self, *, shard: Shard | None = None, **options: Any) -> SavedHistoryStore:
        client = ThrottledClient(self.admin, TokenBucket(qps=0, burst=1), may_write=lambda: self.leading)
        return SavedHistoryStore(
            client,
            location=HERE,
            shard=shard or Shard(),
            clocks=Clocks(lambda: NOW / 1000, lambda: NOW / 1000),
            **options,
        )

    def config_map(self, name: str = "state") -> dict[str, Any] | None:
        return self.server.storage.get(GroupResource("", "configmaps"), "default", name)

    def version(self) -> str:
        found = self.config_map()
        assert found is not None
        return str(found["metadata"]["resourceVersion"])


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    async with PlaygroundApiServer(tmp_path) as server, await KubeClient.connect(server.kubeconfig()) as admin:
        yield Place(server, admin)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


# --- what survives -------------------------------------------------------------------------------------------------


async def test_history_not_saved_at_the_end_is_incomplete(place: Place) -> None:
    store, memory = place.store(), memory_of((WEB, history(3)))
    await store.save(memory, final=False)
    assert (await place.store().load())[WEB.key].history == replace(history(3), complete=False)
    await store.save(memory, final=True)
    assert (await place.store().load())[WEB.key].history == history(3)


async def test_old_histories_of_hpas_that_may_not_exist_are_not_restored(place: Place) -> None:
    recent, old = replace(WEB, name="recent"), replace(WEB, name="old")
    long_ago = history(3, NOW - MAX_STABILIZATION_WINDOW_MS - 1)
    await place.store().save(memory_of((WEB, long_ago), (recent, history(3)), (old, long_ago)))
    restored = Histories()
    await place.store().restore(restored, exists=lambda key: True if key == WEB.key else None)
    assert restored.snapshot().keys() == {WEB.key, recent.key}


async def test_a_restored_history_is_saved_as_incomplete_in_case_this_process_is_killed(place: Place) -> None:
    await place.store().save(memory_of((WEB, history(3))))
    await place.store().restore(Histories(), exists=lambda _: True)
    assert (await place.store().load())[WEB.key].history == replace(history(3), complete=False)


async def test_without_a_config_map_of_this_name_there_is_no_history_and_no_warning(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    labels = {"milliscale.io/memory": "of-somebody-else"}
    body = {"metadata": {"name": "other", "labels": labels}, "binaryData": {"memory.json.gz": "AAAA"}}
    await place.admin.post(MAPS, body)
    assert await place.store().load() == {}
    assert warnings(caplog) == []


async def test_each_save_replaces_what_is_there(place: Place) -> None:
    store, memory = place.store(), memory_of((WEB, history(3)))
    await store.save(memory)
    memory.replace(WEB, history(4))
    await store.save(memory)
    assert await place.store().load() == memory.snapshot()
    await place.admin.patch(f"{MAPS}/state", {"metadata": {"annotations": {"edited": "by hand"}}})
    memory.replace(WEB, history(5))
    await store.save(memory)
    assert await place.store().load() == memory.snapshot()
    await place.admin.delete(f"{MAPS}/state")
    memory.replace(WEB, history(6))
    await store.save(memory)
    assert await place.store().load() == memory.snapshot()


async def test_unchanged_history_is_not_written(place: Place) -> None:
    store, memory = place.store(), memory_of((WEB, history(3)))
    await store.save(memory)
    place.server.requests.clear()
    await store.save(memory)
    assert place.server.requests.of("update", "configmaps") == 0
    memory.forget(WEB.key)
    await store.save(memory)
    assert place.server.requests.of("update", "configmaps") == 1


async def test_histories_are_saved_periodically(place: Place) -> None:
    memory = memory_of((WEB, history(0)))
    saving = asyncio.create_task(place.store(settings=QUICK).run(memory))
    for replicas in range(3):
        memory.replace(WEB, history(replicas))

        async def saved(replicas: int = replicas) -> bool:
            found = (await place.store().load()).get(WEB.key)
            # Not complete: this process goes on.
            return found is not None and found.history == replace(history(replicas), complete=False)

        await eventually(saved, within=SOON, every=0.01)
    saving.cancel()


async def test_each_shard_has_its_own_config_map_and_restores_from_all(place: Place) -> None:
    api = replace(hpa(), name="api", uid="second")
    await place.store(shard=Shard(index=0, count=2)).save(memory_of((WEB, history(3)), (api, history(1, NOW - 9))))
    await place.store(shard=Shard(index=1, count=2)).save(memory_of((api, history(2))))
    assert place.config_map("state-0") is not None
    assert place.config_map("state") is None
    restored = await place.store(shard=Shard(index=2, count=3)).load()
    assert {key.name: each.history for key, each in restored.items()} == {"web": history(3), "api": history(2)}


# --- what cannot be used -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (None, "it has no binaryData 'memory.json.gz'"),
        ({}, "it has no binaryData 'memory.json.gz'"),
        ({"memory.json.gz": base64.b64encode(b"garbage").decode()}, "it is damaged"),
    ],
)
async def test_damaged_history_is_a_warning_and_is_overwritten_by_the_next_save(
    place: Place, caplog: pytest.LogCaptureFixture, data: dict[str, str] | None, why: str
) -> None:
    labels = {"milliscale.io/memory": "state"}
    await place.admin.post(MAPS, {"metadata": {"name": "state", "labels": labels}, "binaryData": data})
    store, memory = place.store(), memory_of((WEB, history(3)))
    assert await store.load() == {}
    (warning,) = warnings(caplog)
    assert warning.startswith(f"ConfigMap default/state is not restored: {why}")
    await store.save(memory)
    assert await place.store().load() == memory.snapshot()


async def test_invalid_base64_is_a_warning(
    api: ScriptedApi, client: ThrottledClient, caplog: pytest.LogCaptureFixture
) -> None:
    odd = [{"metadata": {"name": "state"}, "binaryData": {"memory.json.gz": "%%%"}}]
    api.on("GET", MAPS, {"items": odd})
    assert await SavedHistoryStore(client, location=HERE, shard=Shard()).load() == {}
    assert len(warnings(caplog)) == 1


async def test_forbidden_read_starts_at_once_with_a_warning(
    api: ScriptedApi, client: ThrottledClient, caplog: pytest.LogCaptureFixture
) -> None:
    api.fail("GET", MAPS, 403, "configmaps is forbidden")
    assert await SavedHistoryStore(client, location=HERE, shard=Shard()).load() == {}
    assert warnings(caplog) == ["ConfigMap default/state cannot be read: configmaps is forbidden"]


async def test_loading_is_retried_while_the_api_server_is_unavailable(
    api: ScriptedApi, client: ThrottledClient
) -> None:
    memory = memory_of((WEB, history(3)))
    content = base64.b64encode(encode(memory.snapshot(), now_ms=NOW)[0]).decode()
    api.on("GET", MAPS, status_body(503, "etcd is electing"), status=503)
    items = [{"metadata": {"name": "state", "resourceVersion": "7"}, "binaryData": {"memory.json.gz": content}}]
    api.then("GET", MAPS, {"items": items})
    store = SavedHistoryStore(
        client,
        location=HERE,
        shard=Shard(),
        settings=QUICK,
        clocks=Clocks(lambda: NOW / 1000, lambda: NOW / 1000),
    )
    assert await store.load() == memory.snapshot()


async def test_response_that_is_no_list_is_a_warning(
    api: ScriptedApi, client: ThrottledClient, caplog: pytest.LogCaptureFixture
) -> None:
    api.on("GET", MAPS, {"items": 5})
    api.then("GET", MAPS, {"items": [{}]})
    api.then("GET", MAPS, {"items": []})
    assert await SavedHistoryStore(client, location=HERE, shard=Shard(), settings=QUICK).load() == {}
    assert "ConfigMap default/state cannot be read: ConfigMapList: Expected `array" in warnings(caplog)[0]


async def test_load_gives_up_after_a_time_limit(
    api: ScriptedApi, client: ThrottledClient, caplog: pytest.LogCaptureFixture
) -> None:
    api.fail("GET", MAPS, 500, "etcd is lost")
    assert await SavedHistoryStore(client, location=HERE, shard=Shard(), settings=IMPATIENT).load() == {}
    assert warnings(caplog) == [
        "ConfigMap default/state cannot be read: etcd is lost",
        "ConfigMap default/state: starting without saved history",
    ]


# --- what cannot be saved ------------------------------------------------------------------------------------------


async def test_a_failed_save_is_logged_once_until_one_succeeds(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    store, memory = place.store(), memory_of((WEB, history(3)))
    await place.server.hang_up()
    for replicas in range(3):
        memory.replace(WEB, history(replicas))
        await store.save(memory)
    assert len(warnings(caplog)) == 1
    assert "ConfigMap default/state is not saved: the API server cannot be reached" in warnings(caplog)[0]
    await place.server.listen()
    await store.save(memory)
    assert await place.store().load() == memory.snapshot(), "although nothing has changed since it failed"
    memory.replace(WEB, history(7))
    await store.save(memory)
    messages = [each.getMessage() for each in caplog.records if each.name == "autoscaler.loop.saved_history"]
    assert messages[1:] == ["ConfigMap default/state: no problem any more"], "once"


async def test_only_the_leader_saves(place: Place) -> None:
    store, memory = place.store(), memory_of((WEB, history(3)))
    await store.save(memory)
    version = place.version()
    place.leading = False
    memory.replace(WEB, history(4))
    await store.save(memory)
    assert place.version() == version


async def test_event_loop_is_not_blocked_by_encoding_and_decoding(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop_went_on = threading.Event()

    def slowly(function: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*arguments: Any, **options: Any) -> Any:
            assert loop_went_on.wait(SOON)
            return function(*arguments, **options)

        return wrapper

    monkeypatch.setattr(saved_history, "encode", slowly(encode))
    monkeypatch.setattr(saved_history, "decode", slowly(decode))
    memory, store = memory_of((WEB, history(3))), place.store()
    for work in (store.save(memory), store.load()):
        loop_went_on.clear()
        asyncio.get_running_loop().call_later(0.05, loop_went_on.set)
        await work


async def test_histories_beyond_the_size_limit_are_left_out_and_logged(
    place: Place, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def small(*arguments: Any, **options: Any) -> Any:
        return encode(*arguments, limit_bytes=300, **options)

    monkeypatch.setattr(saved_history, "encode", small)
    memory = memory_of(*((replace(hpa(), name=f"hpa-{number}", uid=f"{number}"), history(3)) for number in range(200)))
    await place.store().save(memory)
    assert warnings(caplog) == [
        "ConfigMap default/state has only some of the HPAs, the others do not fit; use more --shards"
    ]
    assert 0 < len(await place.store().load()) < 200


@pytest.mark.parametrize("code", [400, 403, 409, 413, 422, 500])
async def test_however_the_api_server_refuses_nothing_stops(
    api: ScriptedApi, client: ThrottledClient, caplog: pytest.LogCaptureFixture, code: int
) -> None:
    api.fail("POST", MAPS, code, "no")
    await SavedHistoryStore(client, location=HERE, shard=Shard()).save(memory_of((WEB, history(3))))
    assert len(warnings(caplog)) == 1
