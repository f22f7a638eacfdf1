"""The controller's settings: those of a running autoscaler, which it serves, or those that explain the real replicas.

kube-controller-manager does not serve its flags to users. So the spec that was in force is replayed over the first
hours with usual values of each setting, as a `Shadow` of the real controller: with its settings, it decides nearly all
that was decided, and nothing else.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Collection, Sequence
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
from replay.shadow import SeenScale, Shadow, seen_scales
from replay.simulation import Settings, simulate, sync_period_ms

FIELDS: Final = (
    "downscale_stabilization_ms",
    "tolerance",
    "cpu_initialization_period_ms",
    "initial_readiness_delay_ms",
    "scale_to_zero",
)
"""Fields of Config that have a flag, whose parameter has the same name."""
_MAX_MS: Final = 24 * 3_600_000
_ENOUGH_SCALES: Final = 50
"""The first hours end with so many scale events, or after a day."""
_USUAL: Final = {
    "downscale_stabilization_ms": (300_000, 0, 30_000, 60_000, 90_000, 120_000, 180_000, 240_000, 600_000),
    "tolerance": (0.1, 0.02, 0.05, 0.08, 0.15, 0.2),
    "initial_readiness_delay_ms": (30_000, 10_000, 60_000),
    "step": (15_000, 5_000, 10_000, 20_000, 30_000, 60_000),
}
"""{parameter of a flag: its values, kube-controller-manager's default first}; durations in milliseconds."""
_TOGETHER: Final = (("step", "downscale_stabilization_ms", "tolerance"), ("initial_readiness_delay_ms",))
_FEW_MISTAKES: Final = 5.0
_CHANCE: Final = 1.0
"""Of two sync periods, the longer one may have so many fewer mistakes by chance."""
_PHASES: Final = 4
_FEW_SCALES: Final = 3
"""In which the phase of the reconciliations stays the same."""
_LATE_MS: Final = 30_000
"""The real replicas are seen so much later than they change, and a sample was perhaps not used at once."""
_MOST_MISTAKES: Final = 0.4
"""As a share of the real scale events."""


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
    if not names:
        return settings, ""
    replicas = load.replicas
    known = () if replicas is None else replicas.segments(load.start_ms, load.end_ms)
    start_ms = next((start_ms for start_ms, _, value in known if not math.isnan(value)), None)
    if replicas is None or start_ms is None:
        return (
            settings,
            "Assumed: the controller has the default settings, but for those given; real replicas would show them.",
        )
    load = dataclasses.replace(load, start_ms=start_ms, end_ms=min(load.end_ms, start_ms + _MAX_MS))
    scales = seen_scales(replicas, load.start_ms, load.end_ms)
    if len(scales) > _ENOUGH_SCALES:
        load = dataclasses.replace(load, end_ms=scales[_ENOUGH_SCALES].since_ms)
        scales = scales[:_ENOUGH_SCALES]
    length = duration((load.end_ms - load.start_ms) / 1000)
    count = sum(not each.is_gap for each in scales)
    if not count:
        return settings, (
            f"The real replicas do not change in the first {length}, so they do not show the controller's settings: "
            "those given and the defaults are assumed."
        )
    nearest, mistakes = settings, 0.0
    shown = []
    for together in _TOGETHER:
        if group := [name for name in together if name in names]:
            mistakes, values = _by_shadow(hpa, load, nearest, scales, group)
            nearest = _with(nearest, values)
            shown += [f"{_words(name)} {_text(name, value)}" for name, value in values.items()]
    if mistakes == math.inf:
        return dataclasses.replace(settings, explains_reality=False), (
            f"No usual settings of a controller explain the {_counted(count)} in the first {length}: give the "
            "controller's flags, and the spec that was in force as the first --hpa. The defaults are assumed."
        )
    return nearest, (
        f"The real replicas are explained by {', '.join(shown)} ({math.ceil(mistakes)} wrong for "
        f"{_counted(count)} in the first {length}), which are assumed for all of the time."
    )


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
    hpa: HPA, load: Load, settings: Settings, real: Sequence[SeenScale], names: Sequence[str]
) -> tuple[float, dict[str, Any]]:
    """Return the fewest mistakes of a shadow and the values of some settings with which it makes them.

    The mistakes are infinite if they are too many with any values.
    """
    candidates = [dict(zip(names, each, strict=True)) for each in itertools.product(*(_USUAL[name] for name in names))]
    fewest, best = math.inf, candidates[0]
    most = _MOST_MISTAKES * sum(not each.is_gap for each in real)
    for limit in (min(_FEW_MISTAKES, most), most):  # so that most replays end early
        for values in candidates:
            mistakes = _mistakes(hpa, load, _with(settings, values), real, min(limit, fewest))
            if mistakes < fewest - (_CHANCE if values.get("step") != best.get("step") else 0):
                fewest, best = mistakes, values
        if fewest < math.inf:
            break
    return fewest, best


def _mistakes(hpa: HPA, load: Load, settings: Settings, real: Sequence[SeenScale], most: float) -> float:
    """Return how many scale events a shadow has that reality does not have, or the reverse.

    The times of the real reconciliations are not known, and move slowly. So in each few events that phase counts which
    makes the fewest mistakes. The result is infinite if it is more than `most`, for which no replay need end. `real` is
    as `Shadow` has it.
    """
    period_ms = sync_period_ms(hpa, settings)
    shadows = []
    for phase in range(_PHASES):
        shadow = Shadow(real, late_ms=_LATE_MS)
        offset_ms = settings.offset_ms + period_ms * phase // _PHASES
        steps = simulate(hpa, load, dataclasses.replace(settings, offset_ms=offset_ms), merge=True, shadow=shadow)
        shadows.append((shadow, steps))
    mistakes = 0.0
    for start in range(0, len(real), _FEW_SCALES):
        end = start + _FEW_SCALES if start + _FEW_SCALES < len(real) else math.inf
        fewest = most - mistakes + 0.5
        for shadow, steps in shadows:
            while shadow.scales < start and next(steps, None) is not None:
                pass
            before = shadow.mistakes
            while shadow.scales < end and shadow.mistakes - before < fewest and next(steps, None) is not None:
                pass
            fewest = min(fewest, shadow.mistakes - before)
        mistakes += fewest
        if mistakes > most:
            return math.inf
    return mistakes


def _with(settings: Settings, values: dict[str, Any]) -> Settings:
    flags = {name: value for name, value in values.items() if name != "step"}
    config = dataclasses.replace(settings.config, **flags)
    return dataclasses.replace(settings, config=config, step_ms=values.get("step", settings.step_ms))


def _words(name: str) -> str:
    return "sync period" if name == "step" else name.removesuffix("_ms").replace("_", " ")


def _text(name: str, value: Any) -> str:
    return f"{value:g}" if name == "tolerance" else duration(value / 1000)


def _counted(scales: int) -> str:
    return "1 scale event" if scales == 1 else f"{scales} scale events"
