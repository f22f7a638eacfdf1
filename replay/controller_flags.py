"""The controller's settings: those of a running autoscaler, which it serves, or those that explain the real replicas.

kube-controller-manager does not serve its flags to users. So the spec that was in force is replayed over the first
hours with usual values of each setting, as a `Shadow` of the real controller: with its settings, it decides nearly all
that was decided. Of those that do so, the ones are used whose own replicas are nearest to the real ones, if they are
near enough. A default is changed only for a clear gain, since several sync periods may explain the same replicas.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import statistics
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

import click

from autoscaler.commands.debug_client import fetch_config
from autoscaler.commands.flags import config_options
from autoscaler.core.config import Config
from autoscaler.core.model import HPA, ResourceMetric
from kube.process.flags import GoCommand
from kube.process.runtime import run
from replay.load import Load, Series
from replay.output.comparison import duration
from replay.results import Replayed
from replay.shadow import Shadow, seen_scales
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
_GROUPS: Final = (("downscale_stabilization_ms", "tolerance"), ("step",))
"""Each of the first two may make up for a wrong value of the other."""
_STARTS_MS: Final = (15_000, 60_000)
_FEW_MISTAKES: Final = 0.3
"""Of a shadow, as a share of the real scale events: so few that its settings are those of the controller."""
_SAME_MISTAKES: Final = 1.0
"""So many more are within chance."""
_PHASES: Final = 4
_FEW_SCALES: Final = 3
"""In which the phase of the reconciliations stays the same."""
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
    if load.replicas is None or not names:
        return settings, ""
    known = load.replicas.segments(load.start_ms, load.end_ms)
    start_ms = next((start_ms for start_ms, _, value in known if not math.isnan(value)), load.end_ms)
    load = dataclasses.replace(load, start_ms=start_ms, end_ms=min(load.end_ms, start_ms + _MAX_MS))
    reality = replay_reality(load, settings)
    if reality is None:
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
        _by_shadow(hpa, load, settings, [name for name in names if any(name in each for each in _GROUPS)]),
    )
    nearest = _with(settings, found)
    replayed = replay_hpa(hpa, load, nearest, sentences=False)
    hours, events = _compared(replayed, load)
    shown = ", ".join(f"{_words(name)} {_text(name, value)}" for name, value in found.items())
    compared = (
        f"{hours:+.1%} pod-hours, {events} instead of {reality.summary.scale_events} scale events in the first {length}"
    )
    allowed = max(_SCALES * reality.summary.scale_events, math.sqrt(reality.summary.scale_events))
    if abs(hours) > _MOST_HOURS or abs(events - reality.summary.scale_events) > allowed:
        return dataclasses.replace(settings, explains_reality=False), (
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


def _by_shadow(hpa: HPA, load: Load, settings: Settings, names: Sequence[str]) -> list[dict[str, Any]]:
    """Return the values of settings with which a shadow makes the fewest mistakes, and those that may be right, too.

    The values of some settings are changed for others as long as that makes fewer mistakes. If many are left, that is
    repeated from another sync period, because with a wrong one no change of the others may help.
    """
    if not names:
        return [{}]
    assert load.replicas is not None
    real = seen_scales(load.replicas, load.start_ms, load.end_ms)
    groups = [group for each in _GROUPS if (group := [name for name in each if name in names])]
    tried: list[tuple[float, dict[str, Any]]] = []
    for step_ms in _STARTS_MS if "step" in names else [settings.step_ms]:
        best = {name: _USUAL[name][0] if name != "step" else step_ms for name in names}
        fewest = _mistakes(hpa, load, _with(settings, best), real, math.inf)
        tried.append((fewest, best))
        unchanged = 0
        for group in itertools.cycle(groups):
            if unchanged == len(groups):
                break
            unchanged += 1
            start = dict(best)
            for each in itertools.product(*(_USUAL[name] for name in group)):
                values = start | dict(zip(group, each, strict=True))
                if any(values == other for _, other in tried):
                    continue
                mistakes = _mistakes(hpa, load, _with(settings, values), real, fewest + _SAME_MISTAKES)
                tried.append((mistakes, values))
                if mistakes < fewest:
                    best, fewest, unchanged = values, mistakes, 1
        if fewest <= _FEW_MISTAKES * len(real):
            break
    least = min(mistakes for mistakes, _ in tried) + _SAME_MISTAKES
    return [values for mistakes, values in tried if mistakes <= least]


def _change_ms(series: Series) -> float:
    """Return the median time between two changes of a value, which long times without a change do not prolong."""
    pairs = itertools.pairwise(zip(series.times_ms, series.values, strict=True))
    changes = [time_ms for (_, before), (time_ms, after) in pairs if before != after]
    return statistics.median([after - before for before, after in itertools.pairwise(changes)] or [math.inf])


def _mistakes(hpa: HPA, load: Load, settings: Settings, real: Sequence[tuple[int, int, int]], most: float) -> float:
    """Return how many scale events a shadow has that reality does not have, or the reverse.

    The times of the real reconciliations are not known, and move slowly. So where they do not see each value of a
    metric, that phase counts which makes the fewest mistakes in each few events. The result is infinite if it is more
    than `most`, for which no replay need end. `real` is as `Shadow` has it.
    """
    period_ms = sync_period_ms(hpa, settings)
    shadows = []
    phases = 1 if all(period_ms <= _change_ms(series) for series in load.series.values()) else _PHASES
    for phase in range(phases):
        shadow = Shadow(real, late_ms=_LATE_MS)
        offset_ms = settings.offset_ms + period_ms * phase // phases
        steps = simulate(hpa, load, dataclasses.replace(settings, offset_ms=offset_ms), merge=True, shadow=shadow)
        shadows.append((shadow, steps))
    mistakes = 0.0
    for scales in itertools.chain(range(_FEW_SCALES, len(real), _FEW_SCALES), [math.inf]):
        fewest = math.inf
        for shadow, steps in shadows:
            before = shadow.mistakes
            while shadow.scales < scales and shadow.mistakes - before < fewest and next(steps, None) is not None:
                pass
            fewest = min(fewest, shadow.mistakes - before)
        mistakes += fewest
        if mistakes > most:
            return math.inf
    return mistakes


def _nearest(
    names: Sequence[str], distance: Callable[[dict[str, Any], float], float], alike: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    """Return the value of each setting with the least distance.

    Args:
        names: the settings.
        distance: returns the distance with some values, or infinity if it is more than a limit.
        alike: values of some settings, between which nothing else decides.
    """
    values = {name: _USUAL[name][0] for name in names} | alike[0]
    least = distance(values, math.inf)
    others = [[{name: value} for value in _USUAL[name]] for name in names if name not in alike[0]]
    for group in (alike, *others):
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
        events, before = 0, None
        for step in simulate(
            hpa, load, dataclasses.replace(settings, offset_ms=settings.offset_ms + phase), merge=True
        ):
            for start_ms, end_ms, value in load.replicas.segments(step.time_ms, step.end_ms):
                if not math.isnan(value):
                    distance += abs(step.desired_replicas - value) * (end_ms - start_ms) / real_pods / 2
                    events += step.desired_replicas != (step.replicas if before is None else before)
                    before = step.desired_replicas
            if distance > most:
                return math.inf
        distance += abs(events - real_events) / real_events / 10
    return distance


def _compared(replayed: Replayed, load: Load) -> tuple[float, int]:
    """Return the relative difference of the pod-hours, and the scale events, where the real replicas are recorded."""
    assert load.replicas is not None
    own = real = 0.0
    events, before = 0, replayed.initial_replicas
    for start_ms, end_ms, replicas in replayed.replicas:
        for from_ms, to_ms, value in load.replicas.segments(start_ms, end_ms):
            if not math.isnan(value):
                own += replicas * (to_ms - from_ms)
                real += value * (to_ms - from_ms)
                events += replicas != before
                before = replicas
    return own / real - 1, events


def _words(name: str) -> str:
    return "sync period" if name == "step" else name.removesuffix("_ms").replace("_", " ")


def _text(name: str, value: Any) -> str:
    return f"{value:g}" if name == "tolerance" else duration(value / 1000)
