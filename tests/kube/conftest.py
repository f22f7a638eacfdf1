"""Fixtures: a scripted API server and clients of it, and a client of a real one."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kube.api.client import KubeClient
from playground.cluster import start_cluster
from tests.kube.scripted_api import api as api
from tests.kube.scripted_api import client as client
from tests.kube.scripted_api import connected as connected
from tests.kube.scripted_api import kube as kube


@pytest.fixture
async def admin(tmp_path: Path) -> AsyncIterator[KubeClient]:
    """A client of a kube-apiserver, for tests that are marked with `kubebuilder`."""
    async with start_cluster(tmp_path) as cluster, await cluster.client() as client:
        yield client
