"""Events about HPAs and ConfigMaps whose rules are not served, since these objects have no status for it."""

from __future__ import annotations

from typing import Final

from adapter.catalog.rule_states import Reason
from adapter.rule_objects.annotations import HPA, OWN_HPA
from adapter.rule_objects.state import ObjectState
from adapter.rule_objects.status import not_served
from adapter.rules.objects import CONFIG_MAP, ObjectName
from kube.controller.events import EventRecorder, ObjectReference
from kube.controller.flowcontrol import ThrottledClient

COMPONENT: Final = "milliscale-adapter"
"""The source of the events."""

API_VERSIONS: Final = {HPA: "autoscaling/v2", OWN_HPA: "milliscale.io/v1", CONFIG_MAP: "v1"}
"""The kinds of objects that have events."""

# What the author of the rules can change; not that Prometheus cannot be reached.
_REASONS: Final = frozenset(
    {Reason.INVALID, Reason.CONFLICT, Reason.TOO_MANY_RULES, Reason.TOO_MANY_METRICS, Reason.QUERY_FAILED}
)


class RuleEvents:
    """Writes an event when an object's rules are not served, and again when the reason or its message changes."""

    def __init__(self, client: ThrottledClient) -> None:
        self._recorder = EventRecorder(client, component=COMPONENT)
        self._recorded: dict[ObjectName, tuple[str, str, str]] = {}

    async def run(self) -> None:
        """Send the events, until cancelled."""
        await self._recorder.run()

    def update(self, name: ObjectName, state: ObjectState | None) -> None:
        """Record an event if an object's state is new and its author has to know it; None: the object was deleted."""
        if state is None or state.reason is Reason.READY:
            self._recorded.pop(name, None)
            return
        if state.reason not in _REASONS:
            return
        verdict, uid = not_served(state), state.object.uid
        if self._recorded.get(name) == (uid, verdict.reason, verdict.message):
            return
        self._recorded[name] = uid, verdict.reason, verdict.message
        object_name, _, part = name.name.partition(" ")  # such as metrics[0]
        reference = ObjectReference(
            api_version=API_VERSIONS[name.kind],
            kind=name.kind.partition(".")[0],
            namespace=name.namespace,
            name=object_name,
            uid=uid,
            resource_version="",
        )
        message = f"{part}: {verdict.message}" if part else verdict.message
        self._recorder.record(reference, "Warning", verdict.reason, message)
