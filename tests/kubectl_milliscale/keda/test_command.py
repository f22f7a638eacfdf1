"""The command migrate-keda: its output, its messages and its exit status."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from adapter.cli import main as adapter
from adapter.rules import load_rules
from kubectl_milliscale.cli import main

DATA = Path("tests/data/keda")
FINE = """
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata: {name: fine, namespace: shop}
spec:
  scaleTargetRef: {name: fine}
  minReplicaCount: 1
  triggers:
  - type: prometheus
    metadata: {serverAddress: 'http://prometheus.monitoring:9090', query: 'sum(up{namespace="shop"})', threshold: '5'}
"""


def migrate(*arguments: object, text: str | None = None) -> Result:
    return CliRunner().invoke(main, ["migrate-keda", *map(str, arguments)], input=text)


def objects(result: Result) -> list[dict[str, Any]]:
    return [document for document in yaml.safe_load_all(result.stdout) if document is not None]


def test_output_is_a_manifest_and_the_servers_are_a_comment() -> None:
    result = migrate("-", text=FINE)
    assert (result.exit_code, result.stderr) == (0, "")
    assert [(each["kind"], each["metadata"]["name"]) for each in objects(result)] == [
        ("MetricRule", "fine-prometheus"),
        ("HorizontalPodAutoscaler", "fine"),
    ]
    assert result.stdout.startswith(
        "# Add these servers to the rules file of the adapter (--config):\n#\n"
        "#   prometheusServers:\n#     prometheus:\n#       url: http://prometheus.monitoring:9090\n"
        "#       tenants: true\n---\n"
        "# ScaledObject shop/fine\napiVersion: milliscale.io/v1\n"
    )


def test_servers_of_the_comment_are_valid_in_the_rules_file_and_are_then_known(tmp_path: Path) -> None:
    files = [DATA / "rendered.yaml", DATA / "exported.yaml"]
    result = migrate(*files)
    comment = result.stdout.partition("---")[0].splitlines()[2:]
    (tmp_path / "rules.yaml").write_text("\n".join(line.removeprefix("#   ") for line in comment))
    assert set(load_rules(tmp_path / "rules.yaml").prometheus_servers) == {"mimir", "prometheus-server"}
    (tmp_path / "plain.yaml").write_text(FINE.replace("prometheus.monitoring:9090", "prometheus-server.monitoring"))
    again = migrate(tmp_path / "plain.yaml", "--config", tmp_path / "rules.yaml")
    assert "prometheusServers" not in again.stdout
    assert objects(again)[0]["spec"]["prometheus"] == "prometheus-server"


def test_rules_for_the_server_of_the_flag_name_no_server() -> None:
    result = migrate("-", "--prometheus-url=http://prometheus.monitoring.svc:9090/", text=FINE)
    assert "prometheusServers" not in result.stdout
    assert "prometheus" not in objects(result)[0]["spec"]


def test_what_is_not_moved_is_on_stderr_and_in_comments_and_the_status_is_1() -> None:
    result = migrate(DATA / "unmovable.yaml", "--tenant-label=")
    assert result.exit_code == 1
    assert result.stderr.splitlines() == [
        "ScaledObject shop/orders: not moved: triggers[0] (kafka): only prometheus, cron, cpu and memory can be moved",
        "ScaledObject shop/support: not moved: advanced.scalingModifiers: write the formula in PromQL",
        "ScaledJob shop/transcode: not moved: an HPA scales no Jobs; keep KEDA for it",
        "ScaledObject old: not moved: it is of KEDA 1 (keda.k8s.io/v1alpha1); write it for keda.sh/v1alpha1 first",
        "ScaledObject shop/broken: not moved: it is invalid: Expected `int`, got `str` (spec.minReplicaCount)",
    ]
    for line in result.stderr.splitlines():
        name, _, problem = line.partition(": ")
        assert f"# {name}\n# - {problem}\n" in result.stdout
    assert [each["metadata"]["name"] for each in objects(result)] == ["fine-prometheus", "fine"]


@pytest.mark.parametrize(
    ("query", "is_named"),
    [
        ("sum(jobs)", True),
        ('sum(jobs{namespace="queues"})', True),
        ('sum(jobs{namespace="shop"}) / sum(workers)', True),
        ('sum(jobs{namespace=~"shop"})', True),
        ('sum(jobs{namespace="shop"})', False),
    ],
)
def test_query_that_the_tenant_label_may_empty_is_named_and_the_status_is_1(query: str, is_named: bool) -> None:
    text = FINE.replace('sum(up{namespace="shop"})', query)
    result = migrate("-", text=text)
    assert result.exit_code == int(is_named)
    assert ('the adapter adds namespace="shop" to the query' in result.stderr) is is_named
    assert migrate("-", "--tenant-label=", text=text).exit_code == 0
    assert migrate("-", text=text.replace("threshold:", "ignoreNullValues: 'false', threshold:")).exit_code == 0


def test_commands_of_the_help_have_a_line_each() -> None:
    help_text = CliRunner().invoke(main, ["migrate-keda", "--help"]).output
    assert "    kubectl milliscale migrate-keda keda.yaml > milliscale.yaml" in help_text.splitlines()


def test_first_name_of_the_command_still_works() -> None:
    result = CliRunner().invoke(adapter, ["migrate-keda", "-"], input=FINE)
    assert (result.exit_code, result.output) == (0, migrate("-", text=FINE).output)


def test_query_of_several_lines_is_a_block() -> None:
    assert "  query: |-\n    histogram_quantile(0.99,\n" in migrate(DATA / "rendered.yaml").stdout


def test_line_breaks_and_control_characters_of_names_stay_in_the_comment() -> None:
    """A name must not end the comment, and so add to the manifest that is applied, nor reach the terminal."""
    name = '"fine\\nkind: Secret\\rdata: {}\\u2028\\0\\e[31m"'
    for text in (FINE.replace("name: fine,", f"name: {name},"), FINE.replace("type: prometheus", f"type: {name}")):
        result = migrate("-", text=text)
        assert result.exit_code == 1
        assert objects(result) == []
        assert not [line for line in result.stdout.splitlines() if not line.startswith(("#", "---"))]
        assert all(line.isprintable() for line in result.output.splitlines())


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        ([DATA / "missing.yaml"], 1, "Error: tests/data/keda/missing.yaml: cannot be read: No such file or directory"),
        ([DATA / "unmovable.yaml", "--config", DATA / "missing"], 1, "Error: tests/data/keda/missing: cannot be read"),
        ([], 2, "Missing argument 'FILE...'"),
    ],
)
def test_unusable_arguments_are_errors(arguments: list[object], status: int, message: str) -> None:
    result = migrate(*arguments)
    assert (result.exit_code, message in result.stderr, result.stdout) == (status, True, "")
