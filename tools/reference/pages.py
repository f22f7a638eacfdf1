"""The pages of docs/reference, each with the function that returns its text."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from adapter.cli import main as adapter
from adapter.commands.ignored_flags import IGNORED
from adapter.settings import DEFAULTS as ADAPTER_SETTINGS
from autoscaler.cli import main as autoscaler
from autoscaler.settings import DEFAULTS as AUTOSCALER_SETTINGS
from kubectl_milliscale.cli import main as plugin
from tools.reference.commands import command_sections, ignored_table
from tools.reference.metrics import metrics_page
from tools.reference.settings import settings_tables

FOLDER: Final = Path(__file__).resolve().parents[2] / "docs/reference"

_COMMANDS: Final = {"adapter": "serve", "autoscaler": "run"}
_CHART_VALUES: Final = {"adapter": "settings", "autoscaler": "autoscaler.settings"}

_GENERATED: Final = "<!-- Generated from the code by `make reference`; a test compares. -->\n\n"


def _adapter_flags() -> str:
    return (
        f"# Flags of the adapter\n\n{_GENERATED}"
        "`milliscale-adapter` in the image, `python -m adapter` in a clone. Arguments that begin with a flag are "
        "those of `serve`. How the flags differ from prometheus-adapter's: [migrating.md](../migrating.md#flags).\n\n"
        + command_sections(adapter, "milliscale-adapter", ("serve", "check", "explain", "forecast", "schedule"))
        + "`migrate-keda` works here, too: [kubectl-flags.md](kubectl-flags.md#kubectl-milliscale-migrate-keda).\n\n"
        + "## Flags without effect\n\n"
        "These flags of prometheus-adapter are accepted, so that its arguments work unchanged. Each that is given is "
        "logged at the start, with the reason.\n\n" + ignored_table(IGNORED)
    )


def _autoscaler_flags() -> str:
    return (
        f"# Flags of the autoscaler\n\n{_GENERATED}"
        "`milliscale-autoscaler` in the image, `python -m autoscaler` in a clone. `replay` and `tune` have "
        "[their own page](replay-flags.md).\n\n"
        + command_sections(autoscaler, "milliscale-autoscaler", ("run", "explain", "migrate", "shadow-report"))
    )


def _replay_flags() -> str:
    return (
        f"# Flags of replay and tune\n\n{_GENERATED}"
        "Commands of the autoscaler that compute decisions over recorded load: [replay.md](../replay.md).\n\n"
        + command_sections(autoscaler, "milliscale-autoscaler", ("replay", "tune", "advise"))
    )


def _plugin_flags() -> str:
    return (
        f"# Flags of kubectl milliscale\n\n{_GENERATED}The kubectl plugin: [kubectl.md](../kubectl.md).\n\n"
        + command_sections(
            plugin, "kubectl milliscale", ("status", "explain", "replay", "tune", "advise", "check", "migrate-keda")
        )
    )


def _settings(process: str, tree: object) -> str:
    return (
        f"# Settings of the {process}\n\n{_GENERATED}"
        "```console\n"
        f"$ milliscale-{process} {_COMMANDS[process]} --setting=api_server.request_seconds=1m\n"
        "```\n\n"
        f"Limits, timeouts and periods without a [flag]({process}-flags.md) of their own, since their defaults suit "
        f"nearly every cluster. The Helm chart has the map `{_CHART_VALUES[process]}` for them. The end of a name is "
        "its unit: `_seconds` are durations such as `1m30s`, `_bytes` quantities such as `64Mi`, others plain numbers. "
        "`/debug/config` shows those that are given.\n\n"
    ) + settings_tables(tree)


def _metrics() -> str:
    return f"# Metrics\n\n{_GENERATED}{metrics_page()}"


def text(name: str) -> str:
    """Return the text of a page."""
    return PAGES[name]().rstrip("\n") + "\n"


PAGES: Final[dict[str, Callable[[], str]]] = {
    "adapter-flags.md": _adapter_flags,
    "autoscaler-flags.md": _autoscaler_flags,
    "replay-flags.md": _replay_flags,
    "kubectl-flags.md": _plugin_flags,
    "metrics.md": _metrics,
    "adapter-settings.md": lambda: _settings("adapter", ADAPTER_SETTINGS),
    "autoscaler-settings.md": lambda: _settings("autoscaler", AUTOSCALER_SETTINGS),
}
