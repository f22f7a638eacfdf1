"""The label of the leader's pod: set, removed, and tried again after errors."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from autoscaler.loop.pages import LEADER_LABEL, SHARD_LABEL, label_leader, own_pod_path
from autoscaler.loop.sharding import Shard
from kube.api.client import KubeClient
from tests.kube.scripted_api import ScriptedApi

POD = "/api/v1/namespaces/milliscale/pods/milliscale-autoscaler-1"


class Election:
    is_leader = False


def labels(api: ScriptedApi) -> list[Any]:
    return [sent.body["metadata"]["labels"][LEADER_LABEL] for sent in api.named("PATCH", POD)]


@pytest.fixture
async def election(kube: KubeClient, api: ScriptedApi) -> AsyncIterator[Election]:
    api.on("PATCH", POD, {})
    election = Election()
    task = asyncio.create_task(label_leader(kube, POD, is_leader=lambda: election.is_leader, poll_seconds=0.001))
    yield election
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def test_the_label_follows_the_leader(election: Election, api: ScriptedApi) -> None:
    # The first request removes the label of an earlier container of this pod.
    await api.until(lambda: labels(api) == [None])
    election.is_leader = True
    await api.until(lambda: labels(api) == [None, "true"])
    election.is_leader = False
    await api.until(lambda: labels(api) == [None, "true", None])


async def test_the_leader_of_a_shard_has_a_label_with_its_index(kube: KubeClient, api: ScriptedApi) -> None:
    api.on("PATCH", POD, {})
    task = asyncio.create_task(
        label_leader(kube, POD, is_leader=lambda: True, shard=Shard(index=1, count=2), poll_seconds=0.001)
    )
    await api.until(lambda: len(labels(api)) == 1)
    assert api.named("PATCH", POD)[0].body["metadata"]["labels"] == {LEADER_LABEL: "true", SHARD_LABEL: "1"}
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def test_a_refused_request_is_logged_once_and_sent_again(
    election: Election, api: ScriptedApi, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("autoscaler.loop.pages.Backoff.next", lambda self: 0.001)
    api.fail("PATCH", POD, 403, 'pods "milliscale-autoscaler-1" is forbidden')
    election.is_leader = True
    await api.until(lambda: len(labels(api)) >= 3)
    assert caplog.text.count("is forbidden") == 1
    api.on("PATCH", POD, {})
    count = len(labels(api))
    await api.until(lambda: len(labels(api)) > count)


def test_outside_of_pods_there_is_nothing_to_label(monkeypatch: pytest.MonkeyPatch) -> None:
    assert own_pod_path({"HOSTNAME": "laptop"}) is None
    monkeypatch.setattr("autoscaler.loop.pages.own_namespace", lambda default: "milliscale")
    assert own_pod_path({"HOSTNAME": "milliscale-autoscaler-1"}) == POD
