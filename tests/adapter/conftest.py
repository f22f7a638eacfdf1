"""A scripted Prometheus, and a served adapter for all tests of a file with the mark `asyncio(loop_scope="module")`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.adapter.scripted_prometheus import ScriptedPrometheus, scripted
from tests.adapter.serving import ServedAdapter, served_adapter


@pytest.fixture
async def server() -> AsyncIterator[ScriptedPrometheus]:
    """A Prometheus with scripted responses."""
    async with scripted() as running:
        yield running


@pytest.fixture
async def new_adapter(tmp_path: Path) -> AsyncIterator[ServedAdapter]:
    """An adapter of the test's own, with canned metrics."""
    async with served_adapter(tmp_path) as adapter:
        yield adapter


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ServedAdapter]:
    """The adapter, with canned metrics."""
    async with served_adapter(tmp_path_factory.mktemp("adapter")) as adapter:
        yield adapter


@pytest.fixture
def adapter(served: ServedAdapter) -> ServedAdapter:
    """The adapter, as if no test had used it before; caches of users and paths stay."""
    served.metrics.clear()
    served.api.clear()
    return served
