"""What the adapter's commands say once of a mistake that all rules have; tests/mistakes has the others."""

from __future__ import annotations

import asyncio
from pathlib import Path

from aiohttp import web
from click.testing import CliRunner

from adapter.cli import main
from tests.adapter.diagnosis_env import CLI_RULES
from tests.web_servers import served


def said(*arguments: str) -> tuple[int, list[str]]:
    """Return a command's exit status, and the lines of its output about mistakes."""
    result = CliRunner().invoke(main, arguments, env={"KUBERNETES_SERVICE_HOST": None})
    assert result.exception is None or isinstance(result.exception, SystemExit)
    lines = [line.strip() for line in result.output.splitlines()]
    return result.exit_code, [line for line in lines if "rror: " in line or line.startswith("--prometheus-url")]


async def test_address_without_prometheus_api_is_one_error_for_all_rules(tmp_path: Path) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text(CLI_RULES + CLI_RULES.removeprefix("\nrules:\n").replace("hits", "errors"))
    async with served(web.Application()) as url:
        address = url.replace("//", "//user:secret@")
        status, sentences = await asyncio.to_thread(said, "check", str(rules), f"--prometheus-url={address}")
    error = (
        "error: its series cannot be listed: Prometheus answered with status 404: there is no Prometheus API at this"
        " address; is a path prefix missing? (and those of 1 other rule) [not-listed]"
    )
    assert (status, sentences) == (1, [error, f"--prometheus-url is {url}"])


def test_process_outside_of_a_pod_takes_one_kubeconfig_for_all_purposes(tmp_path: Path) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text(CLI_RULES)
    (tmp_path / "kubeconfig").write_text("[]")
    status, sentences = said("serve", f"--config={rules}")
    assert (status, sentences[0].rpartition("; ")[2]) == (1, "give --kubeconfig")
    status, [sentence] = said("serve", f"--config={rules}", f"--kubeconfig={tmp_path / 'kubeconfig'}")
    assert status == 1
    assert sentence.startswith(f"Error: kubeconfig {tmp_path / 'kubeconfig'}: ")
