"""The differences that are known: each is in docs/autoscaler.md ("Differences from Kubernetes"), with its reason there.

Whatever no predicate here recognizes is a failure of the run.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from kube.values.quantity import Quantity, QuantityError
from tests.e2e.fuzz.cases import Phase, Pod
from tests.e2e.fuzz.responses import Response


@dataclass(frozen=True, slots=True)
class Difference:
    """One field in which the twins differ at the end of a phase."""

    case: str
    phase: int
    field: str
    theirs: Any
    ours: Any
    state: Phase

    def __str__(self) -> str:
        place = f"{self.case}, phase {self.phase}, {self.field}"
        return f"{place}:\n  Kubernetes: {self.theirs!r}\n  autoscaler: {self.ours!r}"


def allowed_class(difference: Difference) -> str | None:
    """The name of the class that allows a difference."""
    return next((name for name, allows in ALLOWED.items() if allows(difference)), None)


_ANY_POD = re.compile(
    r"missing request for \S+ in container \S+ of Pod \S+|missing pod-level request for \S+ in Pod \S+"
    r"|container \S+ not found in Pod \S+"
)


def neutral(text: str, namespace: str) -> str:
    """A text without what has to differ: the namespace, and the pod that Kubernetes happens to come across first."""
    return _ANY_POD.sub("a pod without a request", text.replace(namespace, "NAMESPACE").replace(" (milliscale.io)", ""))


# --- numbers beyond 64 bits ----------------------------------------------------------------------------------------


def _beyond_64_bits(difference: Difference) -> bool:
    """A value that Kubernetes' integers cannot hold; what it makes of it decides everything after."""
    return any(map(_wraps, _values([response.items for response in difference.state.responses.values()])))


def _values(response: object, resource: str | None = None) -> Iterator[str]:
    """The quantities in a response, of usages those of one resource only where it is given."""
    match response:
        case {"usage": dict() as usage}:
            yield from (str(value) for name, value in usage.items() if resource in (None, name))
        case dict():
            yield from (str(response["value"]),) if "value" in response else ()
            for each in response.values():
                yield from _values(each, resource)
        case list() | tuple():
            for each in response:
                yield from _values(each, resource)


def _wraps(text: str) -> bool:
    try:
        quantity = Quantity.parse(text)
    except QuantityError:
        return False
    nanos = quantity.mantissa * 10 ** (quantity.exponent + 9)
    # A long number below zero wraps in nanos, any other in thousandths; a sum of such numbers may wrap, too.
    return abs(nanos) // 10**6 > 2**60 or (quantity.long and nanos < -(2**63))


_PODS = 30
"""More than the pods, or series, of a case: what a ratio may be multiplied by."""


def _beyond_32_bits(difference: Difference) -> bool:
    """A number of replicas, or of percent, that Kubernetes' integers may not hold: it depends on the processor."""
    return any(_ratio(metric, difference.state) * _PODS >= 2**31 for metric in difference.state.spec["metrics"])


def _ratio(metric: dict[str, Any], state: Phase) -> float:
    """How many times its target a metric may be at most; for a utilization in percent, against the least request."""
    fields = metric[metric["type"][0].lower() + metric["type"][1:]]
    target = fields["target"]
    name = fields.get("name")
    response = state.responses.get("resource" if name else fields["metric"]["name"])
    values = [] if response is None or response.items is None else list(_values(response.items, name))
    largest = max((abs(_milli(text)) for text in values), default=0)
    if "averageUtilization" in target:
        requests = (abs(_milli(text)) for pod in state.pods for text in _requests(pod, name))
        return 100 * largest / min(filter(None, requests), default=1)
    return largest / (abs(_milli(str(target.get("averageValue", target.get("value"))))) or 1)


def _requests(pod: Pod, resource: str) -> Iterator[str]:
    spec = pod.manifest["spec"]
    for each in (spec, *spec["containers"], *spec.get("initContainers", ())):
        yield from filter(None, [each.get("resources", {}).get("requests", {}).get(resource)])


def _milli(text: str) -> int:
    return Quantity.parse(text).milli_value() if _parses(text) else 0


# --- texts ---------------------------------------------------------------------------------------------------------

_AFTER_API = re.compile(r"(?:unable to fetch metrics|no metrics returned) from (\w+) metrics API.*", re.DOTALL)


def _undecodable(difference: Difference) -> bool:
    """A response that is not what was asked for: both fail, and each says so in its decoder's words."""
    responses = difference.state.responses.values()
    if not any(map(_is_odd, responses)):
        return False
    if any(each.kind == "undecodable" for each in responses) and difference.field in (
        "ScalingActive.message",
        "events",
    ):
        return True  # the condition's status and reason are fields of their own
    return _same(difference, lambda text: _AFTER_API.sub(r"no metrics from \1", text))


def _is_odd(response: Response) -> bool:
    if response.items is None:
        return response.code == 200
    return any(not _parses(value) for value in _values(response.items)) or response.kind == "odd"


def _parses(text: str) -> bool:
    try:
        Quantity.parse(text)
    except QuantityError:
        return False
    return True


def _null_item(difference: Difference) -> bool:
    """An item that is null, which Kubernetes takes for one without a name and with the value 0."""
    return any("[null]" in response.body for response in difference.state.responses.values())


def _list_kind(difference: Difference) -> bool:
    """Kubernetes takes "DeploymentList" for a kind and asks for a resource "deploymentlists", which there is not."""
    if not difference.state.spec["scaleTargetRef"]["kind"].endswith("List"):
        return False
    not_found = "the server could not find the requested resource"
    return _same(difference, lambda text: re.sub(r'no matches for kind "\w+List" in group "\w+"', not_found, text))


def _same(difference: Difference, rewritten: Callable[[str], str]) -> bool:
    theirs, ours = difference.theirs, difference.ours
    if isinstance(theirs, list) and isinstance(ours, list):
        return {rewritten(str(each)) for each in theirs} == {rewritten(str(each)) for each in ours}
    return isinstance(theirs, str) and isinstance(ours, str) and rewritten(theirs) == rewritten(ours)


def _average_of_nothing(difference: Difference) -> bool:
    """The average over no replicas, which Kubernetes shows as some number and the autoscaler not at all."""
    shown = difference.field.startswith("currentMetrics[") and difference.field.endswith(".current.averageValue")
    return shown and not difference.state.target.status_replicas and difference.ours is None


ALLOWED: dict[str, Callable[[Difference], bool]] = {
    "numbers beyond 64 bits": _beyond_64_bits,
    "numbers beyond 32 bits": _beyond_32_bits,
    "words about undecodable responses": _undecodable,
    "items that are null": _null_item,
    "kinds of lists": _list_kind,
    "averages of no replicas": _average_of_nothing,
}
ENDS_CASE = frozenset({"numbers beyond 64 bits", "numbers beyond 32 bits", "items that are null"})
"""After such a difference the twins are not in the same state any more."""
