"""The form of a scenario: a fault, what is promised, and a coroutine that injects the fault for some time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from tests.chaos.environment import Environment
from tests.chaos.faults import Fault
from tests.chaos.proxy import FaultProxy
from tests.eventually import eventually


@dataclass(frozen=True, kw_only=True)
class Run:
    """What a scenario's coroutine gets."""

    environment: Environment
    """The processes and proxies."""
    seconds: float
    """How long a fault lasts at least; 0 in the short run, where it lasts until it was met."""
    random: random.Random
    """For everything that is random."""

    async def hold(self, *, reconciliations: int = 2) -> None:
        """Wait until each HPA was reconciled so many times, with or without an error, and `seconds` have passed."""
        await self.hold_until(self.environment.wait_for_reconciliations(reconciliations))

    async def hold_until(self, met: Awaitable[object]) -> None:
        """Wait for `met`, and until `seconds` have passed."""
        await asyncio.gather(met, asyncio.sleep(self.seconds))


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """A fault."""

    name: str
    """The name of `--only`."""
    fault: str
    """The fault in words, for the table."""
    promise: str
    """What holds during the fault, beside the promises that hold for all (see promises)."""
    inject: Callable[[Run], Awaitable[None]]
    """Injects the fault, checks the promise (AssertionError), and ends the fault."""
    short: bool = False
    """It is part of `make test`."""


def during(
    proxy: Callable[[Environment], FaultProxy],
    fault: Fault,
    *,
    requests: int = 3,
    path: str = "",
    reconciliations: int = 2,
) -> Callable[[Run], Awaitable[None]]:
    """Return the coroutine of a scenario that only holds a fault of one proxy.

    It lasts until so many requests, with a path that ends in `path`, have met the fault, and each HPA was reconciled so
    many times after that.
    """

    async def inject(run: Run) -> None:
        through = proxy(run.environment)

        def faulty() -> int:
            return sum(count for each, count in through.faulty.items() if each.endswith(path))

        goal = faulty() + requests

        async def met() -> bool:
            return faulty() >= goal

        async with through.inject(fault):
            await eventually(met)
            await run.hold(reconciliations=reconciliations)

    return inject
