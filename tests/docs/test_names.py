"""The flags, metrics, targets and files that the documentation names exist."""

import re
from pathlib import Path

import click
import pytest

from adapter.cli import main as adapter
from adapter.commands.ignored_flags import IGNORED
from autoscaler.cli import main as autoscaler
from kubectl_milliscale.cli import main as plugin
from playground.cli import demo
from tests.chaos.etcd_scenarios import SCENARIOS as ETCD_SCENARIOS
from tests.chaos.scenarios import SCENARIOS
from tests.docs.blocks import ROOT, pages
from tools.reference.metrics import adapter_metrics, autoscaler_metrics, exposed_name, health_metrics

PAGES = [pytest.param(path, id=path.name) for path in pages()]
# Flags of other programs, and of the benchmarks.
OTHERS = {
    "--as": "kubectl",
    "--certificate-identity": "cosign",
    "--certificate-oidc-issuer": "cosign",
    "--check": "sha256sum",
    "--controllers": "kube-controller-manager",
    "--enable-feature": "Prometheus",
    "--help": "all",
    "--only": "tests.chaos",
    "--raw": "kubectl",
    "--seed": "tests.chaos",
    "--type": "kubectl",
    "--gil": "py-spy",
    "--endpoint": "Thanos",
    "--endpoint-strict": "Thanos",
    "--no-query.partial-response": "Thanos",
    "--set": "helm",
    "--hpas": "bench",
    "--controller": "bench",
    "--quick": "bench",
    "--real-time": "bench",
    "--freshness": "bench",
    "--seconds": "bench",
    "--warm-up": "bench",
    "--wide-series": "bench",
    "--flag": "bench",
    "--prometheus-server": "kube-metrics-adapter",
    "--additional-prometheus-server": "kube-metrics-adapter",
    "--metrics-ttl": "kube-metrics-adapter",
    "--enable-apiservice-patching": "KEDA's operator",
    "--enable-cert-rotation": "KEDA's operator",
}
RECORDING_RULES = {"horizontal_pod_autoscaler_controller_hpas"}  # reason:...:count


def flags_of(command: click.Command) -> set[str]:
    flags = {name.strip() for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            subcommand = command.get_command(context, name)
            assert subcommand is not None
            flags |= flags_of(subcommand)
    return flags


def inline_code(page: Path) -> list[str]:
    text = re.sub(r"^( *)```.*?^\1```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    return re.findall(r"`([^`\n]+)`", text)


@pytest.mark.parametrize("page", PAGES)
def test_flags_exist(page: Path) -> None:
    known = set().union(*map(flags_of, (adapter, autoscaler, plugin, demo))) | set(IGNORED) | set(OTHERS)
    named = {flag for code in inline_code(page) for flag in re.findall(r"(?<![\w-])--[a-z][a-z0-9.-]*\w", code)}
    prefixes = {flag for code in inline_code(page) for flag in re.findall(r"(--[\w-]+-)(?:\*|\.\.\.)", code)}
    named = {flag for flag in named if not any(f"{flag}-" == prefix for prefix in prefixes)}
    assert named <= known
    assert all(any(flag.startswith(prefix) for flag in known) for prefix in prefixes)


@pytest.mark.parametrize("page", PAGES)
def test_own_metrics_exist(page: Path) -> None:
    metrics = [*adapter_metrics(), *autoscaler_metrics(), *health_metrics()]
    known = {exposed_name(metric) for metric in metrics}
    named = set(
        re.findall(
            r"\b(?:milliscale_(?:adapter|autoscaler)|horizontal_pod_autoscaler_controller)_[a-z_]+[a-z]",
            page.read_text(),
        )
    )
    assert {name.removesuffix("_bucket") for name in named} <= known | RECORDING_RULES


@pytest.mark.parametrize("page", PAGES)
def test_targets_of_make_exist(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert {code.split()[1] for code in inline_code(page) if code.startswith("make ")} <= targets


def test_every_target_of_make_is_documented() -> None:
    text = "".join(page.read_text() for page in pages())
    targets = set(re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert {target for target in targets if f"make {target}" not in text} <= {"help", "unit", "clean", "fuzz-setup"}


def test_every_scenario_of_chaos_tests_has_a_row() -> None:
    text = (ROOT / "docs/reliability.md").read_text()
    rows = re.findall(r"^\| `([a-z][a-z0-9-]*)` \|", text, re.MULTILINE)
    assert sorted(rows) == sorted({scenario.name for scenario in (*SCENARIOS, *ETCD_SCENARIOS)})
