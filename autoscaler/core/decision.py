"""A decision on one HPA with all that explains it, and the end of the step that follows it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from autoscaler.core.evaluate import Evaluation
from autoscaler.core.history import History
from autoscaler.core.model import HPA, Status
from autoscaler.core.normalize import Normalized
from autoscaler.core.observation import Observation
from autoscaler.core.overrides import Held, StandIn
from autoscaler.core.proposal import Tolerance


@dataclass(frozen=True, slots=True)
class Event:
    """An event about the HPA: `type` is Normal or Warning."""

    type: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What to do about one HPA and why; `conclude` completes it."""

    observation: Observation
    now_ms: int
    """When it was made, in milliseconds since the Unix epoch."""
    monotonic_ms: int
    """The same by the history's clock."""
    current_replicas: int | None = None
    """`spec.replicas` of the scale; None if that could not be read."""
    tolerance: Tolerance | None = None
    """What the metrics were judged by; None if they did not matter."""
    evaluations: tuple[Evaluation, ...] = ()
    """One per metric; empty if the metrics did not matter."""
    winner: Evaluation | None = None
    """The metric that asks for the most replicas; None if there is none, or something stands in for it."""
    stand_in: StandIn | None = None
    """What asked for replicas in place of metrics that keep failing; None: nothing had to."""
    normalized: Normalized | None = None
    """How the winner's or the stand-in's proposal was stabilised and limited; None if the metrics did not decide."""
    scale_to: int | None = None
    """The replica count to write to the scale; None: leave it alone."""
    rescale_reason: str = ""
    """Why, in the words of the event."""
    held: Held | None = None
    """The scale that a pause held back, if any; `scale_to` is None then. Or the scale-down that stale objects did."""
    status: Status
    """The HPA's status as far as it is known before the scale is written."""
    events: tuple[Event, ...] = ()
    """Events before the status is written."""
    late_events: tuple[Event, ...] = ()
    """Events after the status is written."""
    error: str | None = None
    """What the step returns as its error, even if it scales."""
    failed: bool = False
    """The step ends early with `error`: no replica count was found."""
    history: History
    """The memory with this step's recommendation; a scale that succeeds is added by `conclude`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The end of one step."""

    status: Status | None
    """The status to store; None: nothing changed."""
    events: tuple[Event, ...]
    """To emit before the status is stored, in order."""
    late_events: tuple[Event, ...]
    """To emit after the status is stored, in order."""
    error: str | None
    """The error that the step returns; None: all went well."""
    history: History
    """The memory for the next step."""
    failed: bool
    """The step ended early with `error`; a status that cannot be stored is not worth an error of its own."""

    def status_not_stored(self, hpa: HPA, message: str) -> Outcome:
        """This outcome if the status could not be stored, for the reason `message`."""
        event = Event("Warning", "FailedUpdateStatus", message)
        error = self.error if self.failed else f"failed to update status for {hpa.name}: {message}"
        return replace(self, status=None, late_events=(event, *self.late_events), error=error)
