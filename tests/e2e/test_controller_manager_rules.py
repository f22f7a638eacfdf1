"""kube-controller-manager scales on metrics whose rules are objects."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from playground.install import apply
from tests.e2e.controllers import needs_controller_manager
from tests.e2e.rule_objects_stage import Stage, deployment, external, hpa, namespace, stage

pytestmark = [
    *needs_controller_manager,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.xdist_group("controller_manager_rules"),
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stage]:
    async with stage(tmp_path_factory.mktemp("stage")) as running:
        await apply(running.client, [namespace("shop")])
        yield running


async def test_harness(running: Stage) -> None:
    await apply(running.client, [deployment("shop", "web"), hpa("shop", "web", external("of_the_file", "2"))])
    await running.scales("shop", "web", 4)
