"""The settings of a running autoscaler, which it serves under /debug/config."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from typing import Final

import click

from autoscaler.commands.debug_client import fetch_config
from autoscaler.commands.flags import config_options
from autoscaler.core.config import Config
from kube.process.flags import GoCommand
from kube.process.runtime import run

FIELDS: Final = {
    "downscale_stabilization": "downscale_stabilization_ms",
    "tolerance": "tolerance",
    "cpu_initialization_period": "cpu_initialization_period_ms",
    "initial_readiness_delay": "initial_readiness_delay_ms",
    "feature_gates": "scale_to_zero",
}
"""{parameter of a flag: field of Config}."""


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
    return dataclasses.replace(running, **{FIELDS[name]: getattr(given, FIELDS[name]) for name in given_flags}), ""
