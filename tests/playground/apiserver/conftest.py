"""A fresh API server for each test, and clients of it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kube.api.client import KubeClient
from playground.apiserver import PlaygroundApiServer


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[PlaygroundApiServer]:
    async with PlaygroundApiServer(tmp_path, bookmark_seconds=0.2, availability_seconds=0.1) as server:
        yield server


@pytest.fixture
async def admin(server: PlaygroundApiServer) -> AsyncIterator[KubeClient]:
    """A client with all rights."""
    async with await KubeClient.connect(server.kubeconfig()) as client:
        yield client
