"""Fixtures: a scripted API server and clients of it, and a cluster."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.autoscaler.cluster import Cluster, running_cluster
from tests.kube.scripted_api import api as api
from tests.kube.scripted_api import client as client
from tests.kube.scripted_api import connected as connected
from tests.kube.scripted_api import kube as kube


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    """An API server with discovery, RBAC, watches and a custom metrics API."""
    async with running_cluster(tmp_path) as running:
        yield running
