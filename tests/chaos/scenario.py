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
    """What a scenario's coroutine gets.

    Attributes:
        environment: the processes and proxies.
        seconds: how long a fault lasts at least; 0 in the short run, where it lasts until it was met.
        random: for everything that is random.
    """

    environment: Environment
    seconds: float
    random: random.Random

    async def hold(self, *, reconciliations: int = 2) -> None:
        """Wait until each HPA was reconciled so many times, with or without an error, and `seconds` have passed."""
        await self.hold_until(self.environment.wait_for_reconciliations(reconciliations))

    async def hold_until(self, met: Awaitable[object]) -> None:
        """Wait for `met`, and until `seconds` have passed."""
        await asyncio.gather(met, asyncio.sleep(self.seconds))


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """A fault.

    Attributes:
        name: of `--only`.
        fault: the fault in words, for the table.
        promise: what holds during the fault, beside the promises that hold for all (see promises).
        inject: injects the fault, checks the promise (AssertionError), and ends the fault.
        short: it is part of `make test`.
    """

    name: str
    fault: str
    promise: str
    inject: Callable[[Run], Awaitable[None]]
    short: bool = False


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
