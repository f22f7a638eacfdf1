"""Reports about objects with rules, for /debug and the pages."""

from __future__ import annotations

from collections.abc import Iterator

from adapter.catalog.rule_states import Reason
from adapter.diagnosis.report import ObjectReport
from adapter.rule_objects.controller import RuleObjects
from adapter.rule_objects.state import ObjectState
from kube.aio.pace import in_slices

_SHOWN_PROBLEMS = 10


async def object_reports(objects: RuleObjects, *, namespace: str = "") -> tuple[ObjectReport, ...]:
    """Return the reports of all objects that serve a namespace, or of all, by kind, namespace and name."""
    names = sorted(one.name for one in objects.objects() if not namespace or one.name.namespace in ("", namespace))
    reports = []
    async for name in in_slices(names):
        state = objects.state(name)
        if state is not None:
            reports.append(object_report(state))
    return tuple(reports)


def object_report(state: ObjectState) -> ObjectReport:
    """Return the report of an object."""
    name = state.object.name
    return ObjectReport(
        kind=name.kind,
        namespace=name.namespace,
        name=name.name,
        reason=state.reason.value,
        message=state.message,
        metrics=state.metrics,
    )


def object_problems(objects: RuleObjects, namespace: str) -> Iterator[str]:
    """Yield why objects that could serve a namespace, or any, serve nothing; for `explain`."""
    found = (objects.state(one.name) for one in objects.objects() if one.name.namespace in ("", namespace))
    failed = [state for state in found if state is not None and state.reason is not Reason.READY]
    for state in failed[:_SHOWN_PROBLEMS]:
        yield f"{state.object.name} is not served ({state.reason}): {state.message}"
    if len(failed) > _SHOWN_PROBLEMS:
        yield f"{len(failed) - _SHOWN_PROBLEMS} more objects are not served"
