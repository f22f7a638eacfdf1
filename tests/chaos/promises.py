"""What must hold after each scenario.

- No process has ended that the scenario did not end, and no log has a traceback.
- No HPA was scaled down or away from the replicas that its metric needs.
- No target was written twice for one decision.
- Tasks, file descriptors and memory are as before.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from tests.chaos.environment import REPLICAS, Environment
from tests.chaos.measured import MeasuredProcess, Usage
from tests.chaos.proxy import Write
from tests.eventually import eventually

MORE_TASKS = 4
"""Requests and watches that may be in progress when a process is measured."""
CONNECTION = "RequestHandler.start"
"""The task that aiohttp has for each open connection of a server. These are counted as files."""
MORE_FILES = 16
"""Connections that may be open for the same reason, or idle in a pool that is used all the time."""
MORE_MEMORY_MIB = 48.0
MEMORY_LIMIT_MIB = 512.0
"""The limit of the manifests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Before:
    """The state before a scenario: what each process uses; how many writes, log errors and loads there were."""

    usage: Mapping[int, Usage]
    needs: int
    writes: int
    errors: Mapping[int, int]

    @classmethod
    async def of(cls, environment: Environment) -> Before:
        """Measure it, when everything runs. `usage` and `errors` are by process ID."""
        # Not part of recovery: a Lease that was lost, or is that of a killed process, has to expire first.
        await eventually(environment.writes_rule_statuses)
        return cls(
            usage={process.child.pid: await process.usage() for process in environment.processes},
            needs=len(environment.load.needs),
            writes=len(environment.autoscaler_api.writes),
            errors={process.child.pid: len(process.errors_logged()) for process in environment.processes},
        )


async def broken_promises(environment: Environment, before: Before) -> list[str]:
    """Return which promises do not hold, in words; call it when everything has recovered."""
    broken = [f"{process.child.name} has ended" for process in environment.processes if not process.is_alive]
    for proxy in (environment.prometheus_proxy, environment.adapter_api, environment.autoscaler_api):
        broken += [f"a fault failed: {error!r}" for error in proxy.errors]
        proxy.errors.clear()
    writes = environment.autoscaler_api.writes[before.writes :]
    needed = environment.load.needed
    broken += [*wrong_scales(writes, {*environment.load.needs[before.needs - 1 :]}), *repeated_scales(writes)]
    replicas = await environment.replicas()
    if replicas != {"router": REPLICAS, "shop": needed, "worker": needed}:
        broken.append(f"shop and worker need {needed} replicas, but the Deployments have {replicas}")
    for process in environment.processes:
        errors = process.errors_logged()[before.errors.get(process.child.pid, 0) :]
        broken += [f"{process.child.name} logged {line!r}" for line in errors[:3]]
    return broken + await _leaks(environment, before)


def scales(writes: Iterable[Write]) -> list[tuple[str, int]]:
    """Return the successful writes of scales: path and replicas, in order."""
    return [
        (write.path, write.json["spec"]["replicas"])
        for write in writes
        if write.path.endswith("/scale") and write.succeeded
    ]


def wrong_scales(writes: Iterable[Write], allowed: Collection[int]) -> list[str]:
    """Return the writes of other replicas than the metrics needed."""
    return [f"{path} was set to {replicas}" for path, replicas in scales(writes) if replicas not in allowed]


def repeated_scales(writes: Sequence[Write]) -> list[str]:
    """Return the writes of a scale that set what the write before had set: the same decision was written twice.

    If the client ended before there was a status, it is not known whether the write was executed.
    """
    last: dict[str, int] = {}
    repeated = []
    for write in writes:
        if write.status is None:
            last.pop(write.path, None)
        for path, replicas in scales([write]):
            if last.get(path) == replicas:
                repeated.append(f"{path} was set to {replicas} twice")
            last[path] = replicas
    return repeated


async def _leaks(environment: Environment, before: Before) -> list[str]:
    """Return what the processes use more than before; connections and tasks have a minute to end."""
    leaks: list[str] = []
    for process in environment.processes:
        was = before.usage.get(process.child.pid)
        if was is None or not process.is_alive:  # the scenario has started it
            continue

        try:
            await eventually(partial(_uses_as_much, process, was), every=0.5)
        except AssertionError as error:
            leaks.append(f"{process.child.name}: {error}")
    return leaks


async def _uses_as_much(process: MeasuredProcess, before: Usage) -> bool:
    more = compare(before, await process.usage())
    assert not more, ", ".join(more)
    return True


def compare(before: Usage, after: Usage) -> list[str]:
    """Return what is used more than before, and more than may be."""
    leaks = []
    more = after.tasks - before.tasks
    del more[CONNECTION]
    if more.total() > MORE_TASKS:
        names = ", ".join(f"{count} of {name}" for name, count in more.most_common())
        leaks.append(f"{before.tasks.total()} tasks before, {after.tasks.total()} after; new: {names}")
    if after.files > before.files + MORE_FILES:
        leaks.append(f"{before.files} open files before, {after.files} after")
    if after.memory_mib > before.memory_mib + MORE_MEMORY_MIB:
        leaks.append(f"{before.memory_mib:.0f} MiB before, {after.memory_mib:.0f} MiB after")
    if after.peak_mib > MEMORY_LIMIT_MIB:
        leaks.append(f"{after.peak_mib:.0f} MiB at most, above the manifests' limit")
    return leaks
