"""Fixtures: a scripted API server and clients of it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from autoscaler.loop.throttle import ThrottledClient, TokenBucket
from kube.client import KubeClient
from tests.autoscaler.scripted_api import ScriptedApi, scripted_api


@pytest.fixture
async def connected(tmp_path: Path) -> AsyncIterator[tuple[ScriptedApi, KubeClient]]:
    async with scripted_api(tmp_path) as pair:
        yield pair


@pytest.fixture
def api(connected: tuple[ScriptedApi, KubeClient]) -> ScriptedApi:
    return connected[0]


@pytest.fixture
def kube(connected: tuple[ScriptedApi, KubeClient]) -> KubeClient:
    return connected[1]


@pytest.fixture
def client(kube: KubeClient) -> ThrottledClient:
    return ThrottledClient(kube, TokenBucket(qps=-1, burst=1))
