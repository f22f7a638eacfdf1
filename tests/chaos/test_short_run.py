"""The scenarios that need no waiting, each for as long as it takes until it was met."""

from pathlib import Path

import pytest

from tests.chaos.environment import run_environment
from tests.chaos.run import run_scenarios
from tests.chaos.scenarios import SCENARIOS

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="open files and memory are counted in /proc"),
]


async def test_all_promises_are_kept(tmp_path: Path) -> None:
    chosen = [scenario for scenario in SCENARIOS if scenario.short]
    async with run_environment(tmp_path) as environment:
        results = await run_scenarios(environment, chosen, seconds=0, seed=1)
    assert {result.scenario.name: list(result.broken) for result in results if result.broken} == {}
    assert len(results) == len(chosen)
