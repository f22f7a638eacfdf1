"""Commands of docs/rules-check.md with a real Prometheus: they print what the page shows."""

import asyncio
import re
import shlex
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from click.testing import CliRunner

from adapter.cli import main
from playground.prometheus import PrometheusServer, openmetrics
from tests.docs.blocks import blocks, commands
from tests.samples import counter, gauge

PAGE = "docs/rules-check.md"
SHOWN = [
    (command, output)
    for block in blocks("console")
    if block.page == PAGE
    for command, output in commands(block)
    if output
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def prometheus(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    depth = gauge("queue_depth", 120, namespace="shop", queue="orders")
    loaded = [
        counter("http_errors_total", 2, namespace="shop", pod_name="web-0"),
        counter("http_debug_total", 1, namespace="shop"),
        counter("http_requests_total", 40, namespace="shop", pod="web-0"),
        counter("http_requests_total", 60, namespace="shop", pod="web-1"),
        depth,
    ]
    async with PrometheusServer(tmp_path_factory.mktemp("examples"), samples=openmetrics(loaded)) as server:
        yield server.url


def test_page_shows_commands_with_their_output() -> None:
    assert len(SHOWN) == 7


@pytest.mark.e2e
@pytest.mark.xdist_group("docs-examples")
@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(("command", "output"), SHOWN, ids=[command[:-1] for command, _ in SHOWN])
async def test_command_prints_what_the_page_shows(
    command: str, output: str, prometheus: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = next(block.text for block in blocks("yaml") if block.page == PAGE)
    if "s0-queue" in command:
        rules += next(
            block.text
            for block in blocks("yaml")
            if block.page == "docs/rules.md" and block.text.startswith("forwardExternal:\n  url")
        )
    (tmp_path / "rules.yaml").write_text(rules)
    metric_rule = next(block.text for block in blocks("yaml") if block.page == PAGE and "MetricRule" in block.text)
    (tmp_path / "metric-rules.yaml").write_text(metric_rule)
    monkeypatch.chdir(tmp_path)
    arguments = shlex.split(command.replace("http://127.0.0.1:9090", prometheus), comments=True)[3:]
    result = await asyncio.to_thread(CliRunner().invoke, main, arguments)
    assert plain(result.output) == plain(output)


def plain(text: str) -> list[str]:
    """The lines, with samples of one age."""
    return [re.sub(r"was \d+ s old", "was 2 s old", line.rstrip()) for line in text.splitlines()]
