"""All cases: as they were recorded, and once more with the adapter's default flags.

As recorded, they are sent one after the other, so that each query that Prometheus gets belongs to one case. With its
default flags the adapter coalesces queries and caches results; so the cases are then sent many at a time, and all of
them twice. Their responses must still be the recorded ones. What Prometheus is asked for them is then the adapter's
affair.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import aiohttp

from tests.golden.cases import Case
from tests.golden.environment import Environment
from tests.golden.expected import expected_responses, needs_kube_apiserver
from tests.golden.prometheus_tap import UnknownFaultError
from tests.golden.verdict import differences

_AT_A_TIME: Final = 16
_ROUNDS: Final = 2
_TIMED_OUT: Final = 504


@dataclass(frozen=True, slots=True)
class Failure:
    """A case whose response is not the expected one, and the differences."""

    case: Case
    differences: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join([str(self.case), *(f"    {line}" for line in self.differences)])


@dataclass(slots=True)
class Outcome:
    """The results of the cases."""

    passed: int = 0
    failures: list[Failure] = field(default_factory=list)
    skipped: list[Case] = field(default_factory=list)

    def __str__(self) -> str:
        skipped = f", {len(self.skipped)} skipped (they need KUBEBUILDER_ASSETS)" if self.skipped else ""
        return f"golden: {self.passed} passed, {len(self.failures)} failed{skipped}"


async def run_cases(environment: Environment, cases: Iterable[Case]) -> Outcome:
    """Send every case and compare. Cases that need a real API server are skipped without one."""
    outcome = Outcome()
    for case in cases:
        if not environment.is_real and needs_kube_apiserver(case):
            outcome.skipped.append(case)
            continue
        found = await _judge(environment, case)
        if found:
            outcome.failures.append(Failure(case, tuple(found)))
        else:
            outcome.passed += 1
    return outcome


async def run_with_default_flags(environment: Environment, cases: Sequence[Case]) -> Outcome:
    """Restart the adapter with its default flags, and compare its responses to all cases without a fault.

    Where Prometheus failed, or the time was too short to query it, a cached response is right as well.

    Raises:
        PlaygroundError: the adapter does not start.
    """
    chosen = [
        case
        for case in cases
        if case.fault is None and (environment.is_real or not needs_kube_apiserver(case)) and case.status != _TIMED_OUT
    ]
    await environment.restart({})
    free = asyncio.Semaphore(_AT_A_TIME)
    found: dict[int, list[str]] = {}

    async def judge(number: int, case: Case) -> None:
        async with free:
            differing = await _judge(environment, case, queries=False)
        if differing:
            found.setdefault(number, differing)

    for _ in range(_ROUNDS):
        async with asyncio.TaskGroup() as tasks:
            for number, case in enumerate(chosen):
                tasks.create_task(judge(number, case))
    failures = [Failure(chosen[number], tuple(differing)) for number, differing in sorted(found.items())]
    return Outcome(passed=len(chosen) - len(failures), failures=failures)


async def _judge(environment: Environment, case: Case, *, queries: bool = True) -> list[str]:
    """Return how the response to a case differs. Without `queries`, the queries to Prometheus are not compared."""
    try:
        reply = await environment.send(case)
        found: list[str] = []
        for expected in expected_responses(case, is_real=environment.is_real):
            found = (
                differences(case, expected, reply)
                if queries
                else differences(case, replace(expected, queries=None), replace(reply, queries=()))
            )
            if not found:
                return []
        return found
    except UnknownFaultError as error:
        return [f"this case cannot be judged: {error}"]
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        return [f"no response: {type(error).__name__}: {error}"]
    except Exception:  # noqa: BLE001 - a malformed case fails alone; the others still run
        return ["this case cannot be judged:", *traceback.format_exc(limit=-3).splitlines()]
