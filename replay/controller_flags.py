"""The controller's settings: those of a running autoscaler, which it serves, or those that explain the real replicas.

kube-controller-manager does not serve its flags to users. So the spec that was in force is replayed over the first
hours with usual values of each setting. First as a shadow, which finds the real replicas at each reconciliation: if it
decides nearly all that was decided with some settings, they are the controller's. That is so for a controller that saw
nearly every sample. Otherwise, those settings are used whose replicas are nearest to the real ones, if they are near
enough. A default is changed only for a clear gain, since several sync periods may explain the same replicas.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

import click

from autoscaler.commands.debug_client import fetch_config
from autoscaler.commands.flags import config_options
from autoscaler.core.config import Config
from autoscaler.core.model import HPA, ResourceMetric
from kube.process.flags import GoCommand
from kube.process.runtime import run
from replay.load import Load
from replay.output.comparison import duration
from replay.results import Replayed
from replay.simulation import Settings, replay_hpa, replay_reality, simulate, sync_period_ms

FIELDS: Final = (
    "downscale_stabilization_ms",
    "tolerance",
    "cpu_initialization_period_ms",
    "initial_readiness_delay_ms",
    "scale_to_zero",
)
"""Fields of Config that have a flag, whose parameter has the same name."""
_HOUR_MS: Final = 3_600_000
_MAX_MS: Final = 24 * _HOUR_MS
_ENOUGH_SCALES: Final = 50
"""The first hours end with so many scale events, or after a day."""
_GAIN: Final = 0.05
_USUAL: Final = {
    "downscale_stabilization_ms": (300_000, 0, 30_000, 60_000, 90_000, 120_000, 180_000, 240_000, 600_000),
    "tolerance": (0.1, 0.02, 0.05, 0.08, 0.15, 0.2),
    "initial_readiness_delay_ms": (30_000, 10_000, 60_000),
    "step": (15_000, 5_000, 10_000, 20_000, 30_000, 60_000),
}
"""{parameter of a flag: its values, kube-controller-manager's default first}; durations in milliseconds."""
_TOGETHER: Final = ("downscale_stabilization_ms", "tolerance")
_FEW_MISTAKES: Final = 0.12
"""Of a shadow, as a share of the real scale events: so few that its settings are those of the controller. One with a
shorter sync period than the controller's may have 14 % or more with a stabilization that is too short."""
_SAME_MISTAKES: Final = 1.0
"""So many more are within chance."""
_LATE_MS: Final = 30_000
"""The real replicas are seen so much later than they change, and a sample was perhaps not used at once."""
_MOST_HOURS: Final = 0.03
_SCALES: Final = 0.15
"""Of few scale events, more differ by chance: the time of each reconciliation is not known."""


@click.command(cls=GoCommand)
@config_options
def _read(*, config: Config) -> Config:
    return config


_OPTIONS: Final = frozenset(name for parameter in _read.params for name in parameter.opts)


def running_config(server: str, given: Config, given_flags: Collection[str]) -> tuple[Config, str]:
    """Return the settings of the autoscaler at a URL, and a note if they are not known.

    Args:
        server: the URL.
        given: the user's settings.
        given_flags: the parameters of `FIELDS` that the user gave, which take precedence.
    """
    try:
        flags = run(fetch_config(server)).flags
        arguments = [f"--{name}={text}" for name, text in flags.items() if f"--{name}" in _OPTIONS]
        running: Config = _read.main(arguments, standalone_mode=False)
    except click.ClickException as error:
        note = f"The autoscaler's flags are not known ({error.message}), so those given here and the defaults count."
        return given, note
    return dataclasses.replace(running, **{name: getattr(given, name) for name in given_flags}), ""


def fit(hpa: HPA, load: Load, settings: Settings, given: Collection[str]) -> tuple[Settings, str]:
    """Return the settings that explain the recorded replicas, and a sentence about them.

    Args:
        hpa: the spec that was in force.
        load: the load, with the real replicas if they are recorded.
        settings: otherwise.
        given: the parameters of the flags that the user gave; they are not changed.
    """
    names = unknown(hpa, given)
    load = dataclasses.replace(load, end_ms=min(load.end_ms, load.start_ms + _MAX_MS))
    reality = replay_reality(load, settings)
    if reality is None or not names:
        return settings, ""
    if len(reality.scales) > _ENOUGH_SCALES:
        load = dataclasses.replace(load, end_ms=reality.scales[_ENOUGH_SCALES].time_ms)
        reality = replay_reality(load, settings)
        assert reality is not None
    length = duration((load.end_ms - load.start_ms) / 1000)
    if not reality.scales:
        return settings, (
            f"The real replicas do not change in the first {length}, so they do not show the controller's settings: "
            "those given and the defaults are assumed."
        )
    found = _nearest(
        names,
        lambda values, most: _distance(hpa, load, _with(settings, values), reality, most),
        together=_by_shadow(hpa, load, settings, reality, [name for name in _TOGETHER if name in names]),
    )
    nearest = _with(settings, found)
    replayed = replay_hpa(hpa, load, nearest, sentences=False)
    hours = _pod_hours(replayed, load)
    shown = ", ".join(f"{_words(name)} {_text(name, value)}" for name, value in found.items())
    compared = (
        f"{hours:+.1%} pod-hours, {replayed.summary.scale_events} instead of {reality.summary.scale_events} scale "
        f"events in the first {length}"
    )
    allowed = max(_SCALES * reality.summary.scale_events, math.sqrt(reality.summary.scale_events))
    if abs(hours) > _MOST_HOURS or abs(replayed.summary.scale_events - reality.summary.scale_events) > allowed:
        return settings, (
            f"No usual settings of a controller explain the real replicas; the nearest are {shown} ({compared}): give "
            "the controller's flags, and the spec that was in force as the first --hpa. The defaults are assumed."
        )
    return nearest, f"The real replicas are explained by {shown} ({compared}), which are assumed for all of the time."


def unknown(hpa: HPA, given: Collection[str]) -> list[str]:
    """Return the parameters of the flags that the user did not give, and that matter to an HPA."""
    return [name for name in _USUAL if name not in given and _matters(name, hpa)]


def _matters(name: str, hpa: HPA) -> bool:
    """Return True if decisions depend on the setting: the HPA has no annotation and no behavior in place of it."""
    behavior = hpa.spec.behavior
    up, down = (None, None) if behavior is None else (behavior.scale_up, behavior.scale_down)
    if getattr(hpa.overrides, "sync_period" if name == "step" else name) is not None:
        return False
    match name:
        case "downscale_stabilization_ms":
            return down is None or down.stabilization_window_seconds is None
        case "tolerance":
            return up is None or up.tolerance is None or down is None or down.tolerance is None
        case "initial_readiness_delay_ms":
            return any(isinstance(spec.source, ResourceMetric) for spec in hpa.spec.metrics)
    return True


def _by_shadow(
    hpa: HPA, load: Load, settings: Settings, reality: Replayed, names: Sequence[str]
) -> list[dict[str, Any]]:
    """Return the values of some settings with which a shadow makes few mistakes; all values if it never does."""
    if not names:
        return [{}]
    real = [(each.time_ms, each.desired_replicas) for each in reality.scales]
    best = {name: _USUAL[name][0] for name in names}
    fewest = _mistakes(hpa, load, _with(settings, best), real, math.inf)
    near = [(fewest, best)]
    for name in [*names, *names]:  # again, since the other one was a default
        for value in _USUAL[name]:
            tried = {**best, name: value}
            if tried in [each for _, each in near]:
                continue
            mistakes = _mistakes(hpa, load, _with(settings, tried), real, fewest + _SAME_MISTAKES)
            near.append((mistakes, tried))
            if mistakes < fewest:
                best, fewest = tried, mistakes
    if fewest > _FEW_MISTAKES * len(real):
        return [
            dict(zip(names, values, strict=True)) for values in itertools.product(*(_USUAL[each] for each in names))
        ]
    return [values for mistakes, values in near if mistakes <= fewest + _SAME_MISTAKES]


def _mistakes(hpa: HPA, load: Load, settings: Settings, real: Sequence[tuple[int, int]], most: float) -> float:
    """Return how many scale events a shadow has that reality does not have, or the reverse; see `simulate`.

    An event with other replicas is half a mistake. It is infinite if it is more than `most`, for which a replay need
    not end. `real` has the time and the replicas of each real event.
    """
    within_ms = max(sync_period_ms(hpa, settings), _LATE_MS) + _LATE_MS
    decided: list[tuple[int, int]] = []
    mistakes = 0.0
    for step in simulate(hpa, load, settings, merge=True, shadow=True):
        if step.decision.scale_to is not None:
            decided.append((step.time_ms, step.decision.scale_to))
            mistakes += not any(step.time_ms <= time_ms <= step.time_ms + within_ms for time_ms, _ in real)
            if mistakes > most:
                return math.inf
    for time_ms, replicas in real:
        before = [each for at_ms, each in decided if time_ms - within_ms <= at_ms <= time_ms]
        mistakes += (0.0 if replicas in before else 0.5) if before else 1.0
    return mistakes


def _nearest(
    names: Sequence[str],
    distance: Callable[[dict[str, Any], float], float],
    *,
    together: Sequence[dict[str, Any]],
) -> dict[str, Any]:
    """Return the value of each setting with the least distance.

    Args:
        names: the settings.
        distance: returns the distance with some values, or infinity if it is more than a limit.
        together: values of stabilization and tolerance, of which each may make up for a wrong value of the other.
    """
    values = {name: _USUAL[name][0] for name in names}
    if not any(each.items() <= values.items() for each in together):
        values |= together[0]
    least = distance(values, math.inf)
    others = [[{name: value} for value in _USUAL[name]] for name in names if name not in _TOGETHER]
    for group in (together, *others):
        start = dict(values)
        for each in group:
            tried, most = start | each, (1 - _GAIN) * least
            if tried != values and (found := distance(tried, most)) < most:
                values, least = tried, found
    return values


def _with(settings: Settings, values: dict[str, Any]) -> Settings:
    flags = {name: value for name, value in values.items() if name != "step"}
    config = dataclasses.replace(settings.config, **flags)
    return dataclasses.replace(settings, config=config, step_ms=values.get("step", settings.step_ms))


def _distance(hpa: HPA, load: Load, settings: Settings, reality: Replayed, most: float) -> float:
    """Return the difference of the replicas as a share of the real ones, and a fifth of that in scale events.

    It is the mean of two replays, because the times of the real reconciliations are not known: one that begins with the
    load favors short sync periods, one that begins half a period later long ones. It is infinite if it is more than
    `most`, for which a replay need not end.
    """
    assert load.replicas is not None
    real_events, real_pods = reality.summary.scale_events, reality.summary.pod_hours * _HOUR_MS
    distance = 0.0
    for phase in (0, sync_period_ms(hpa, settings) // 2):
        events = 0
        for step in simulate(
            hpa, load, dataclasses.replace(settings, offset_ms=settings.offset_ms + phase), merge=True
        ):
            for start_ms, end_ms, value in load.replicas.segments(step.time_ms, step.end_ms):
                if not math.isnan(value):
                    distance += abs(step.desired_replicas - value) * (end_ms - start_ms) / real_pods / 2
            if distance > most:
                return math.inf
            events += step.desired_replicas != step.replicas
        distance += abs(events - real_events) / real_events / 10
    return distance


def _pod_hours(replayed: Replayed, load: Load) -> float:
    """Return the relative difference of the pod-hours, where the real replicas are recorded."""
    assert load.replicas is not None
    own = real = 0.0
    for start_ms, end_ms, replicas in replayed.replicas:
        for from_ms, to_ms, value in load.replicas.segments(start_ms, end_ms):
            if not math.isnan(value):
                own += replicas * (to_ms - from_ms)
                real += value * (to_ms - from_ms)
    return own / real - 1


def _words(name: str) -> str:
    return "sync period" if name == "step" else name.removesuffix("_ms").replace("_", " ")


def _text(name: str, value: Any) -> str:
    return f"{value:g}" if name == "tolerance" else duration(value / 1000)
