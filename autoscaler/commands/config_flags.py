"""The flags that decisions depend on, with kube-controller-manager's names, units and defaults.

The running loop has them, and so has whatever computes a decision apart from it. Together they become one Config.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import click

from autoscaler.core.config import Config
from kube.durations import DURATION
from kube.flags import BOOL, FINITE

_F = TypeVar("_F", bound=Callable[..., Any])

_GATES = ("HPAScaleToZero",)
_DEFAULTS = Config()


def config_options(function: _F) -> _F:
    """Add the flags; their values are passed on together, as `config`."""

    @functools.wraps(function)
    def wrapper(
        *,
        downscale_stabilization: float,
        tolerance: float,
        cpu_initialization_period: float,
        initial_readiness_delay: float,
        feature_gates: dict[str, bool],
        **others: Any,
    ) -> Any:
        config = Config(
            tolerance=tolerance,
            downscale_stabilization_ms=_milliseconds(downscale_stabilization),
            cpu_initialization_period_ms=_milliseconds(cpu_initialization_period),
            initial_readiness_delay_ms=_milliseconds(initial_readiness_delay),
            scale_to_zero=feature_gates.get("HPAScaleToZero", _DEFAULTS.scale_to_zero),
        )
        return function(config=config, **others)

    for option in reversed(_OPTIONS):
        option(wrapper)
    return wrapper  # type: ignore[return-value]  # click looks at the parameters that the options declare, not here


class _FeatureGates(click.ParamType[dict[str, bool]]):
    """`Name=true,Other=false`, as {name: on}."""

    name = "gates"

    def convert(
        self, value: str | dict[str, bool], param: click.Parameter | None, ctx: click.Context | None
    ) -> dict[str, bool]:
        """Parse the text of the flag; every fault names the part that is wrong."""
        if isinstance(value, dict):
            return value
        gates = {}
        for part in filter(None, (part.strip() for part in value.split(","))):
            name, _, switch = part.partition("=")
            if name not in _GATES:
                self.fail(f"unknown feature gate {name!r}; known: {', '.join(_GATES)}", param, ctx)
            gates[name] = BOOL.convert(switch, param, ctx)
        return gates


_OPTIONS = (
    click.option(
        "--horizontal-pod-autoscaler-downscale-stabilization",
        "downscale_stabilization",
        type=DURATION,
        default="5m0s",
        show_default=True,
        help="Time for which a higher recommendation holds a scale-down back, where the HPA sets no window of its own.",
    ),
    click.option(
        "--horizontal-pod-autoscaler-tolerance",
        "tolerance",
        type=FINITE,
        default=_DEFAULTS.tolerance,
        show_default=True,
        help="How far the ratio of a metric to its target may be from 1 without effect.",
    ),
    click.option(
        "--horizontal-pod-autoscaler-cpu-initialization-period",
        "cpu_initialization_period",
        type=DURATION,
        default="5m0s",
        show_default=True,
        help="Time after a pod's start in which its CPU samples may be skipped.",
    ),
    click.option(
        "--horizontal-pod-autoscaler-initial-readiness-delay",
        "initial_readiness_delay",
        type=DURATION,
        default="30s",
        show_default=True,
        help="Time after a pod's start in which changes of readiness count as its first becoming ready.",
    ),
    click.option(
        "--feature-gates",
        "feature_gates",
        type=_FeatureGates(),
        default="",
        help=f"Comma-separated Name=true|false. Known: {', '.join(_GATES)} (default: true, as in Kubernetes 1.37).",
    ),
)


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1000)
