"""The query for the series of an external metric that were above their activation threshold for some time.

There is no state between requests: Prometheus evaluates the rule's query over the time. So all replicas agree, and a
restart forgets nothing.
"""

from __future__ import annotations

from adapter.promql import as_vector
from adapter.rules.schedule_spec import Activation

_USUAL_STEP_SECONDS = 15.0
_FEWEST_STEPS = 4
_MOST_STEPS = 120


def recently_active_query(query: str, activation: Activation) -> str:
    """Return the query for the series that were at the threshold or above it during `for`, with their largest value.

    Prometheus evaluates the rule's query every 15 s, or for long times at 120 steps: a shorter peak may be missed.
    """
    assert activation.for_ is not None, "without a time, only the present value counts"
    seconds = round(activation.for_)
    step = min(_USUAL_STEP_SECONDS, max(1.0, seconds / _FEWEST_STEPS))
    step = max(step, seconds / _MOST_STEPS)
    # The line break ends a comment.
    return f"max_over_time(({as_vector(query)}\n)[{seconds}s:{round(step)}s]) >= {_threshold(activation)}"


def activated_query(query: str, activation: Activation) -> str:
    """Return one query for the values that the adapter serves, for recorded load: 0 where a series is not active."""
    query = as_vector(query)
    active = f"({query}\n) >= {_threshold(activation)}"
    if activation.for_ is not None:
        active = f"clamp_min({query}\n, 0.001) and ({active} or {recently_active_query(query, activation)})"
    return f"({active}) or 0 * ({query}\n)"


def _threshold(activation: Activation) -> str:
    return f"{activation.threshold // 1000}.{activation.threshold % 1000:03}"
