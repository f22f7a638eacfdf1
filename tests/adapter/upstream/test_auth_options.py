"""`auth`, `queryParameters`, `proxyUrl` and `insecureSkipVerify` in the rules file and as flags."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from adapter.cli import main
from adapter.prometheus import PrometheusClient, PrometheusConfigError, PrometheusOptions, PrometheusUnavailable
from adapter.prometheus.errors import refusal
from adapter.rules import RulesError
from adapter.rules.reading import parse_rules
from adapter.upstream import Auth, AzureAuth, GoogleAuth, OAuth2Auth, SigV4Auth
from adapter.upstream.access import AZURE_SCOPE
from tests.adapter.scripted_prometheus import scripted
from tests.imports import imported

OAUTH2 = "tokenUrl: 'https://login/token', clientId: a, clientSecretFile: /s"


def server(text: str) -> PrometheusOptions:
    """Return the server of a rules file with these keys."""
    return parse_rules(f"prometheusServers: {{a: {{{text}}}}}", source="rules.yaml").prometheus_servers["a"]


def test_forms_of_auth_are_read() -> None:
    forms = {
        "{sigv4: {region: eu-west-1}}": SigV4Auth(region="eu-west-1", role_arn="", external_id="", service="aps"),
        "{sigv4: {region: eu-west-1, roleArn: 'arn:aws:iam::1:role/a', externalId: b, service: es}}": SigV4Auth(
            region="eu-west-1", role_arn="arn:aws:iam::1:role/a", external_id="b", service="es"
        ),
        "{google: {}}": GoogleAuth(),
        "{azure: {}}": AzureAuth(client_id="", scope=AZURE_SCOPE),
        "{azure: {clientId: 00-11, scope: api://a/.default}}": AzureAuth(client_id="00-11", scope="api://a/.default"),
        f"{{oauth2: {{{OAUTH2}, scopes: [a, b]}}}}": OAuth2Auth(
            token_url="https://login/token", client_id="a", client_secret_file=Path("/s"), scopes=("a", "b")
        ),
    }
    for text, form in forms.items():
        auth = server(f"url: 'https://p', auth: {text}").auth
        assert isinstance(auth, Auth)
        assert form in (auth.sigv4, auth.google, auth.azure, auth.oauth2)
    oauth2 = server(
        f"url: 'https://p', auth: {{oauth2: {{{OAUTH2}, endpointParams: {{resource: [x, y]}}, caFile: /ca,"
        " proxyUrl: 'http://proxy:1'}}"
    ).auth
    assert oauth2 is not None
    assert oauth2.oauth2 is not None
    assert oauth2.oauth2.endpoint_params == (("resource", "x"), ("resource", "y"))
    assert (oauth2.oauth2.ca_file, oauth2.oauth2.proxy_url) == (Path("/ca"), "http://proxy:1")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("auth: {}", ".auth: expected exactly one of sigv4, google, azure and oauth2, got none"),
        ("auth: {google: {}, azure: {}}", ".auth: expected exactly one of sigv4, google, azure and oauth2, got google"),
        ("auth: {oauth: {}}", ".auth: unknown key `oauth`"),
        ("auth: {sigv4: {}}", ".auth.sigv4.region: this key is required"),
        ("auth: {sigv4: {region: 'EU/1'}}", ".auth.sigv4: region: expected a name such as eu-west-1"),
        ("auth: {sigv4: {region: a, roleArn: reader}}", ".auth.sigv4: roleArn: expected the ARN of a role"),
        ("auth: {sigv4: {region: a, externalId: b}}", ".auth.sigv4: externalId: is sent when roleArn is assumed"),
        ("auth: {oauth2: {clientId: a, clientSecretFile: b, tokenUrl: 'http://u:p@x'}}", ".auth.oauth2: tokenUrl: "),
        ("auth: {oauth2: {tokenUrl: 'https://x', clientId: a}}", ".auth.oauth2.clientSecretFile: this key is required"),
        (f"auth: {{oauth2: {{{OAUTH2}, scopes: ['a b']}}}}", ".auth.oauth2: scopes: a scope has no spaces"),
        (f"auth: {{oauth2: {{{OAUTH2}, endpointParams: {{scope: b}}}}}}", ".auth.oauth2: endpointParams: scope is set"),
        (
            f"auth: {{oauth2: {{{OAUTH2}, endpointParams: {{a: {{}}}}}}}}",
            ".auth.oauth2.endpointParams: a: expected text",
        ),
        ("auth: {google: {}}, tokenFile: /t", "give Prometheus auth or a token file, not both"),
        ("auth: {google: {}}, username: a, passwordFile: /p", "give Prometheus auth or a name and password, not both"),
        ("auth: {google: {}}, headers: {authorization: a}", "give Prometheus auth or the header Authorization"),
        ("proxyUrl: 'socks5://hunter2@a'", "proxyUrl: expected the URL of a proxy"),
        ("proxyUrl: 'http://hunter2@a/path'", "proxyUrl: expected the URL of a proxy"),
        ("queryParameters: {query: up}", "queryParameters: query is set by the adapter"),
        ("queryParameters: {a: {b: c}}", ".queryParameters: a: expected text, or a list of texts"),
        ("insecureSkipVerify: true, caFile: /ca", "a CA file or skip the verification of its certificate, not both"),
    ],
)
def test_invalid_options_say_what_to_change(text: str, message: str) -> None:
    with pytest.raises(RulesError) as refused:
        server(f"url: 'https://p', {text}")
    assert str(refused.value).startswith("rules.yaml: prometheusServers.a")
    assert message in str(refused.value)
    assert "hunter2" not in str(refused.value)


def test_password_in_the_url_excludes_auth() -> None:
    with pytest.raises(RulesError, match="give Prometheus auth or a password in the URL, not both"):
        server("url: 'https://u:p@a', auth: {google: {}}")


def test_both_names_of_insecure_skip_verify() -> None:
    for name in ("insecureSkipVerify", "insecureSkipTLSVerify"):
        assert server(f"url: 'https://a', {name}: true").insecure_skip_tls_verify
        assert not server(f"url: 'https://a', {name}: false").insecure_skip_tls_verify
    forward = parse_rules("forwardExternal: {url: 'https://a', insecureSkipVerify: yes}", source="f")
    assert "insecure_skip_tls_verify=True" in repr(forward)


@pytest.mark.parametrize("verb", ["GET", "POST"])
async def test_query_parameters_are_in_the_url_of_each_request(verb: str) -> None:
    text = f"""
prometheusServers:
  a:
    url: http://a
    verb: {verb}
    queryParameters:
      dedup: true
      max_source_resolution: 5m
      storeMatch[]: ['{{region="eu"}}', '{{region="us"}}']
"""
    parameters = parse_rules(text, source="f").prometheus_servers["a"].query_parameters
    async with scripted() as prometheus:
        options = PrometheusOptions(url=prometheus.url, verb=verb, query_parameters=parameters)
        async with PrometheusClient(options) as client:
            await client.instant("a + b")
    ((_, _, received),) = prometheus.requests
    assert received["query"] == "a + b"
    assert (received["dedup"], received["max_source_resolution"]) == ("true", "5m")
    assert parameters[-2:] == (("storeMatch[]", '{region="eu"}'), ("storeMatch[]", '{region="us"}'))


def test_flags_have_the_same_forms() -> None:
    for text, message in {
        "{sigv4: {}}": "sigv4.region: this key is required",
        "{": "YAML or JSON: ",
        "": "expected a mapping",
    }.items():
        result = CliRunner().invoke(main, ["check", "--config", "/dev/null", "--prometheus-auth", text])
        assert result.exit_code == 2
        assert message in result.output
    arguments = [
        "check",
        "--config",
        "/dev/null",
        "--prometheus-auth",
        '{"google": {}}',
        "--prometheus-token-file",
        "/etc/hostname",
    ]
    assert "give Prometheus auth or a token file, not both" in CliRunner().invoke(main, arguments).output
    arguments = ["check", "--config", "/dev/null", "--prometheus-query-parameter", "dedup"]
    assert "write NAME=VALUE" in CliRunner().invoke(main, arguments).output
    arguments[-1] = "query=up"
    assert "queryParameters: query is set by the adapter" in CliRunner().invoke(main, arguments).output
    arguments = ["check", "--config", "/dev/null", "--prometheus-proxy-url", "proxy:3128"]
    assert "expected the URL of a proxy" in CliRunner().invoke(main, arguments).output


@pytest.mark.parametrize(
    ("auth", "module", "extra"),
    [
        (Auth(sigv4=SigV4Auth(region="a")), "botocore", "aws"),
        (Auth(google=GoogleAuth()), "google.auth", "google"),
        (Auth(azure=AzureAuth()), "azure.identity", "azure"),
    ],
)
async def test_missing_library_is_named_with_its_extra(
    auth: Auth, module: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith("adapter.upstream.")]:
        if name.rpartition(".")[2] in ("sigv4", "google", "azure"):
            monkeypatch.delitem(sys.modules, name)
    for name in [name for name in sys.modules if name == module or name.startswith(f"{module}.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(PrometheusConfigError, match=rf"for Prometheus needs .*: install milliscale\[{extra}\]"):
        async with PrometheusClient(PrometheusOptions(url="http://a", auth=auth)):
            pass


def test_libraries_of_clouds_are_not_imported_before_a_server_needs_them() -> None:
    program = """
import adapter.cli, adapter.commands.serve
from adapter.rules.reading import parse_rules
servers = "a: {url: http://a, auth: {sigv4: {region: b}}}, b: {url: http://a, auth: {azure: {}}}"
parse_rules(f"prometheusServers: {{{servers}}}", source="f")
"""
    libraries = {"botocore", "google.auth", "azure.identity", "azure.core", "msal", "requests"}
    assert imported(program, *libraries) == set()


@pytest.mark.parametrize(
    "body",
    [
        '{"status": "error", "errorType": "forbidden", "error": "no right to query"}',
        '{"error": {"code": 403, "message": "no right to query", "status": "PERMISSION_DENIED"}}',  # Google, Azure
        '{"message": "no right to query"}',  # AWS
    ],
)
def test_refusals_of_clouds_say_why(body: str) -> None:
    assert str(refusal(403, body.encode())) == "Prometheus answered with status 403: no right to query"


@pytest.mark.parametrize("body", ["", "[]", '{"error": 5}', '{"error": {"message": []}}', "{" * 9, "<html>"])
def test_malformed_refusals_say_what_the_status_means(body: str) -> None:
    assert str(refusal(403, body.encode())) == "Prometheus answered with status 403: the credentials lack a right"


async def test_messages_name_the_server() -> None:
    auth = Auth(oauth2=OAuth2Auth(token_url="http://127.0.0.1:1", client_id="a", client_secret_file=Path("/none")))
    for name, title in (("default", "Prometheus"), ("mimir", "Prometheus mimir")):
        async with PrometheusClient(PrometheusOptions(url="http://127.0.0.1:1", name=name, auth=auth)) as client:
            with pytest.raises(PrometheusUnavailable, match=f"the token URL of {title} gives no token: "):
                await client.instant("up")
