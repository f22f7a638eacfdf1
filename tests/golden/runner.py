"""All cases, one after the other, so that what Prometheus is asked meanwhile belongs to one case."""

from __future__ import annotations

import traceback
from collections.abc import Iterable
from dataclasses import dataclass, field

import aiohttp

from tests.golden.bed import Bed
from tests.golden.cases import Case
from tests.golden.prometheus_tap import UnknownFaultError
from tests.golden.verdict import differences
from tests.golden.wanted import needs_kube_apiserver, wanted

__all__ = ["Failure", "Outcome", "run_cases"]


@dataclass(frozen=True, slots=True)
class Failure:
    """A case whose answer is not what is wanted, and in what."""

    case: Case
    differences: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join([str(self.case), *(f"    {line}" for line in self.differences)])


@dataclass(slots=True)
class Outcome:
    """What became of the cases."""

    passed: int = 0
    failures: list[Failure] = field(default_factory=list)
    skipped: list[Case] = field(default_factory=list)

    def __str__(self) -> str:
        skipped = f", {len(self.skipped)} skipped (they need KUBEBUILDER_ASSETS)" if self.skipped else ""
        return f"golden: {self.passed} passed, {len(self.failures)} failed{skipped}"


async def run_cases(bed: Bed, cases: Iterable[Case]) -> Outcome:
    """Send every case and compare; what only a real API server can answer is skipped where there is none."""
    outcome = Outcome()
    for case in cases:
        if not bed.is_real and needs_kube_apiserver(case):
            outcome.skipped.append(case)
            continue
        found = await _judge(bed, case)
        if found:
            outcome.failures.append(Failure(case, tuple(found)))
        else:
            outcome.passed += 1
    return outcome


async def _judge(bed: Bed, case: Case) -> list[str]:
    try:
        return differences(case, wanted(case, is_real=bed.is_real), await bed.send(case))
    except UnknownFaultError as error:
        return [f"this case cannot be judged: {error}"]
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        return [f"no answer: {type(error).__name__}: {error}"]
    except Exception:  # noqa: BLE001 - a case of a strange form fails alone; the others are still of interest
        return ["this case cannot be judged:", *traceback.format_exc(limit=-3).splitlines()]
