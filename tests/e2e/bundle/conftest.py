"""The bundle, whose processes end soon after SIGTERM, without a trace of an error."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from playground.bundle import Bundle, ChildEndedError, Timing, run_bundle
from playground.scenario import demo_load
from tests.e2e.tools import processes_with
from tests.eventually import PATIENCE

TIMING = Timing(sync_period=1, relist_interval=1, downscale_stabilization=3)


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def bundle(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Bundle]:
    folder = tmp_path_factory.mktemp("bundle")
    async with run_bundle(folder, load=demo_load(period=20), timing=TIMING) as bundle:
        yield bundle
        for child in (bundle.autoscaler, bundle.adapter):
            async with asyncio.timeout(PATIENCE):
                assert await child.stop(grace=PATIENCE) == 0
            assert "Traceback" not in child.log.read_text()
        with pytest.raises(ChildEndedError, match="adapter ended with exit status 0"):
            bundle.check()
    assert processes_with(str(folder)) == {}
