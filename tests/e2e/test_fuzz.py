"""A short differential fuzz test; `make fuzz-hpas` runs longer ones with other seeds."""

from pathlib import Path

import pytest

from tests.e2e.controllers import needs_controller_manager
from tests.e2e.fuzz.environment import run

pytestmark = [*needs_controller_manager, pytest.mark.timeout(600)]


async def test_random_hpas_have_the_same_decisions_as_with_kube_controller_manager(tmp_path: Path) -> None:
    report = await run(tmp_path, hpas=40, phases=2, seed=1)
    assert not report.differences, "\n".join(map(str, report.differences))
    assert report.cases > 30
