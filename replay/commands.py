"""The commands `replay` and `tune`. What only some runs need, such as plotly, is imported when it is needed."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TextIO

import click

from adapter.commands.options import PrometheusAccess
from adapter.commands.prometheus_auth import authorized_options
from adapter.commands.session import has_prometheus
from adapter.prometheus import PrometheusConfigError
from adapter.rules import RulesError, RulesFile
from adapter.rules.manifests import load_manifest_rules
from autoscaler.commands.explain import OutputFormat
from autoscaler.core.config import Config
from kube.flags import flag_section
from replay.cluster import connected, read_cluster_hpa
from replay.compare import compare
from replay.csv_source import read_csv
from replay.flags import HPAReference, LoadOptions, ModelOptions, Moment, common_flags
from replay.hpa_files import HPAFile, read_hpa_file
from replay.load import Load, ReplayError
from replay.simulation import Settings, capacity_of

_DEFAULT_FROM: Final = Moment(ago_ms=24 * 3_600_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """The HPAs, and the load that they are replayed on."""

    files: Sequence[HPAFile]
    load: Load
    settings: Settings
