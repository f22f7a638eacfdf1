"""The adapter's /debug/config."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

from adapter.cli import serve
from adapter.commands import serve as pages
from adapter.commands.flags import ServeOptions
from adapter.rules import RulesFile, reading

SECRET = "hunter2"
RULES = f"""
prometheusServers:
  mimir:
    url: https://someone:{SECRET}@mimir.example/prometheus
    headers: {{X-Api-Key: {SECRET}}}
    queryParameters: {{key: {SECRET}}}
    proxyUrl: http://someone:{SECRET}@proxy.example:3128
    tokenFile: /etc/mimir/token
  cloud:
    url: https://cloud.example
    auth:
      oauth2:
        tokenUrl: https://login.example
        clientId: adapter
        clientSecretFile: /etc/cloud/secret
        endpointParams: {{password: {SECRET}}}
        proxyUrl: http://someone:{SECRET}@proxy.example:3128
externalRules:
- name: queue_depth
  query: sum(queue_depth)
forwardExternal:
- name: keda
  url: https://keda.example
  headers: {{X-Api-Key: {SECRET}}}
"""


def options(config: Path, *arguments: str) -> ServeOptions:
    context = serve.make_context("serve", [f"--config={config}", *arguments])
    unused: Any = None
    return ServeOptions(
        config=config,
        prometheus=unused,
        catalog=unused,
        kubernetes=unused,
        serving=unused,
        auth=unused,
        flags=pages.flags_of(context),
    )


async def test_page_has_flags_and_rules_without_secrets(tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(RULES)
    given = options(
        tmp_path / "rules.yaml",
        f"--prometheus-url=https://someone:{SECRET}@p.example/?token={SECRET}",
        f"--prometheus-header=X-Api-Key={SECRET}",
        f"--prometheus-query-parameter=key={SECRET}",
        f"--prometheus-proxy-url=http://someone:{SECRET}@proxy.example",
        "--prometheus-auth={oauth2: {tokenUrl: 'https://login.example', clientId: adapter, clientSecretFile: /s,"
        f" endpointParams: {{password: {SECRET}}}, proxyUrl: 'http://someone:{SECRET}@proxy.example'}}}}",
        "--metric-rules",
    )
    page = await pages.config_page(given)
    assert SECRET not in msgspec.json.encode(page).decode()
    assert page.flags["prometheus-url"] == "https://<secret>@p.example/?<secret>"
    assert page.flags["metric-rules"] == "true"
    assert page.rules["externalRules"] == [{"name": "queue_depth", "query": "sum(queue_depth)"}]
    assert page.rules["prometheusServers"]["mimir"]["tokenFile"] == "/etc/mimir/token"
    assert "connections" not in page.flags, "only given flags are shown"


@pytest.mark.parametrize(
    "text",
    [
        *(None, "a: [", "", "rules: []\n---\nrules: []"),
        f"common: &headers {{X-Api-Key: {SECRET}}}\nprometheusServers: {{a: {{url: 'http://a', headers: *headers}}}}",
        f"prometheusServers: {{a: {{url: 'http://a', password: {SECRET}}}}}",
        f"prometheusServers: {{a: {{url: 'http://a', headers: [{SECRET}]}}}}",
    ],
)
async def test_page_without_valid_rules_has_the_flags(text: str | None, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "rules.yaml").write_text(text)
    page = await pages.config_page(options(tmp_path / "rules.yaml"))
    assert (set(page.flags), page.rules) == ({"config"}, None)


async def test_page_is_read_in_a_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rules.yaml").write_text(RULES)
    loop, read = threading.current_thread(), []

    def decode_rules(*arguments: Any, **named: Any) -> RulesFile:
        read.append(threading.current_thread() is loop)
        return reading.decode_rules(*arguments, **named)

    monkeypatch.setattr(pages, "decode_rules", decode_rules)
    await pages.config_page(options(tmp_path / "rules.yaml"))
    assert read == [False]
