"""Every recorded response, in one environment: as it was recorded, and with the adapter's default flags."""

from pathlib import Path

import pytest

from tests.golden.cases import RECORDED, SIMILAR, read_cases
from tests.golden.environment import golden_environment
from tests.golden.expected import needs_kube_apiserver
from tests.golden.runner import run_cases, run_with_default_flags

pytestmark = pytest.mark.e2e


async def test_recorded_responses(tmp_path: Path) -> None:
    cases = [*read_cases(RECORDED), *read_cases(SIMILAR)]
    async with golden_environment(tmp_path) as environment:
        outcome = await run_cases(environment, cases)
        by_default = await run_with_default_flags(environment, cases)
    assert "\n".join(map(str, outcome.failures)) == ""
    assert outcome.skipped == ([] if environment.is_real else [case for case in cases if needs_kube_apiserver(case)])
    assert len(outcome.skipped) < 10
    assert outcome.passed + len(outcome.skipped) == len(cases)
    assert "\n".join(map(str, by_default.failures)) == ""
    assert by_default.passed > 0.8 * outcome.passed
