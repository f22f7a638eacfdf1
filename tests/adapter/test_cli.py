"""The command line of `serve`: wrong flags and files, and what the server is started with."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from adapter.cli import main
from adapter.commands.flags import ServeOptions
from adapter.commands.ignored_flags import IGNORED
from adapter.settings import DEFAULTS
from tests.kube.scripted import ScriptedServer

RULES = """
rules:
- seriesQuery: 'packets_total{namespace!="",pod!=""}'
  resources: {overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}
  metricsQuery: sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)
"""


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    path = tmp_path / "rules.yaml"
    path.write_text(RULES)
    return path


def invoke(*arguments: str | Path) -> tuple[int, str]:
    """Run `serve` in this process, for cases that end before anything starts."""
    result = CliRunner().invoke(main, ["serve", *map(str, arguments)])
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result.exit_code, result.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "no metrics discovery configuration file specified (make sure to use --config)"),
        (["--config=RULES", "--metrics-max-age=1m"], "max age must not be less than relist interval"),
        (["--config=RULES", "--metrics-relist-interval=0s"], "must be longer than 0s"),
        (["--config=RULES", "--metrics-relist-interval=soon"], 'invalid duration "soon"'),
        (["--config=RULES", "--setting=rules.poll_second=5s"], "did you mean 'rules.poll_seconds'?"),
        (
            ["--config=RULES", "--prometheus-verb=PUT"],
            'unsupported Prometheus HTTP verb "PUT"; supported verbs: "GET" and "POST"',
        ),
        (["--config=RULES", "--authorization-always-allow-paths=/metrics,/a*b"], 'only trailing * allowed in "/a*b"'),
        (["--config=RULES", "--prometheus-url=prometheus"], "not a URL of a Prometheus: 'prometheus'"),
        (
            ["--config=RULES", "--prometheus-auth-incluster", "--prometheus-auth-config=RULES"],
            "may not use both in-cluster auth and an explicit kubeconfig at the same time",
        ),
        (["--config=RULES", "--prometheus-header=nonsense"], "'nonsense' is not a header; write NAME=VALUE"),
        (["--config=RULES", "--prometheus-header=A=b\nC: d"], "the value of A cannot be sent in a header"),
        (["--config=RULES", "--prometheus-ca-file=/nowhere/ca.crt"], "'/nowhere/ca.crt' does not exist"),
        (["--config=RULES", "--tls-cert-file=RULES"], "--tls-cert-file and --tls-private-key-file must be given"),
        (["--config=RULES", "--tls-min-version=VersionTLS10"], "'VersionTLS10' is not one of"),
        (["--config=RULES", "--tls-cipher-suites=TLS_RSA_WITH_RC4_128_SHA"], "unknown TLS_RSA_WITH_RC4_128_SHA"),
        (["--config=RULES", "--tls-sni-cert-key=RULES"], "there is no file ''; write CERT,KEY or CERT,KEY:NAME,NAME"),
        (["--config=RULES", "--secure-port=65536"], "65536 is not in the range"),
        (["--config=RULES", "--max-connections=0"], "0 is not in the range"),
        (["--config=RULES", "--authentication-skip-lookup=perhaps"], "'perhaps' is neither true nor false"),
        (["--config=RULES", "-v=much"], "'much' is not a number of zero or more"),
        (["--config=RULES", "--nonsense"], "No such option"),
    ],
)
def test_wrong_flags_end_with_status_2(rules: Path, arguments: list[str], message: str) -> None:
    code, output = invoke(*(argument.replace("RULES", str(rules)) for argument in arguments))
    assert code == 2
    assert message in output
    assert "Traceback" not in output


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot be read"),
        ("rules: [{seriesQuery: a, metricsQuery: b, nonsense: c}]", "nonsense"),
        ("rules: [{seriesQuery: a, metricsQuery: '<<.Nonsense>>'}]", "Nonsense"),
    ],
)
def test_wrong_rules_file_ends_with_one_line(tmp_path: Path, content: str | None, message: str) -> None:
    path = tmp_path / "wrong.yaml"
    if content is not None:
        path.write_text(content)
    code, output = invoke(f"--config={path}")
    assert code == 1
    assert output.startswith(f"Error: unable to load metrics discovery configuration: {path}: ")
    assert message in output
    assert output.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--lister-kubeconfig=RULES"], "kubeconfig RULES: "),
        (["--client-ca-file=RULES"], "--client-ca-file=RULES: no PEM certificates found"),
        (["--tls-cert-file=RULES", "--tls-private-key-file=RULES"], "cannot use RULES with RULES"),
        (["--cert-dir=RULES"], "cannot write a self-signed certificate to --cert-dir=RULES"),
        (["--bind-address=192.0.2.1"], "cannot listen on 192.0.2.1 port "),
        (["--ui-address=192.0.2.1:8082"], "cannot listen on 192.0.2.1 port 8082"),
        (["--prometheus-auth-config=RULES"], "--prometheus-auth-config: kubeconfig RULES: "),
    ],
)
def test_unusable_file_or_address_ends_with_one_line(
    tmp_path: Path, rules: Path, arguments: list[str], message: str
) -> None:
    kubeconfig = ScriptedServer(url="http://127.0.0.1:9").kubeconfig(tmp_path)
    flags = [f"--config={rules}", "--secure-port=0", f"--cert-dir={tmp_path}"]
    flags += [f"--{purpose}-kubeconfig={kubeconfig}" for purpose in ("lister", "authentication", "authorization")]
    code, output = invoke(*flags, *(argument.replace("RULES", str(rules)) for argument in arguments))
    lines = [line for line in output.splitlines() if line.startswith("Error: ")]
    assert code == 1
    assert len(lines) == 1
    assert message.replace("RULES", str(rules)) in lines[0]
    assert "Traceback" not in output


# The arguments of public Deployments of prometheus-adapter, without paths and listener.
CIPHERS = (
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305,TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305,"
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,"
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,"
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA,TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256,TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA,"
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA,TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA,TLS_RSA_WITH_AES_128_GCM_SHA256,"
    "TLS_RSA_WITH_AES_256_GCM_SHA384,TLS_RSA_WITH_AES_128_CBC_SHA,TLS_RSA_WITH_AES_256_CBC_SHA"
)
DEPLOYMENTS = {
    "helm chart": (
        ["/adapter", "--cert-dir=/tmp/cert", "--logtostderr=true", "--metrics-relist-interval=1m", "--v=4"],
        ["--logtostderr"],
    ),
    "kube-prometheus": (
        [
            "--cert-dir=/var/run/serving-cert",
            "--metrics-relist-interval=1m",
            f"--tls-cipher-suites={CIPHERS}",
        ],
        [],
    ),
    "OpenShift": (
        [
            "--prometheus-auth-config=KUBECONFIG",
            "--metrics-relist-interval=1m",
            "--logtostderr=true",
            "--requestheader-extra-headers-prefix=X-Remote-Extra-",
            "--requestheader-group-headers=X-Remote-Group",
            "--requestheader-username-headers=X-Remote-User",
            "--requestheader-allowed-names=kube-apiserver-proxy,system:kube-apiserver-proxy,front-proxy-client",
            "--audit-policy-file=/etc/audit/metadata-profile.yaml",
            "--audit-log-path=/var/log/adapter/audit.log",
            "--audit-log-maxsize=100",
            "--audit-log-maxbackup=5",
            "--audit-log-compress=true",
            "--tls-min-version=VersionTLS12",
            "--disable-http2",
        ],
        [
            "--logtostderr",
            "--audit-policy-file",
            "--audit-log-path",
            "--audit-log-maxsize",
            "--audit-log-maxbackup",
            "--audit-log-compress",
            "--disable-http2",
        ],
    ),
    "the walkthrough": (
        ["--secure-port=0", "--cert-dir=/tmp", "--v", "6", "--stderrthreshold=2", "--client-qps=-1"],
        ["--stderrthreshold", "--client-qps"],
    ),
    "extra arguments": (
        [
            "--prometheus-header=X-Scope-OrgID=team",
            "--prometheus-verb=POST",
            "--metrics-max-age=10m",
            "--metrics-relist-interval=2m",
            "--authentication-skip-lookup=false",
            "--authorization-always-allow-paths=/healthz,/readyz,/livez,/metrics",
            "--authentication-token-webhook-cache-ttl=10s",
            "--tls-curve-preferences=X25519",
            "--profiling=false",
        ],
        ["--tls-curve-preferences", "--profiling"],
    ),
}


def started(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> ServeOptions:
    """Return the options that a command line starts the server with."""
    found: list[ServeOptions] = []
    monkeypatch.setattr("adapter.cli.run_server", lambda options, rules: found.append(options))
    monkeypatch.setattr("adapter.cli.run", lambda _: None)
    monkeypatch.setattr("adapter.cli.setup_logging", lambda _: None)
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    [options] = found
    return options


def test_settings_are_those_of_the_command_line(monkeypatch: pytest.MonkeyPatch, rules: Path) -> None:
    options = started(monkeypatch, "serve", f"--config={rules}", "--setting=api_server.page_objects=7")
    assert options.settings == replace(DEFAULTS, api_server=replace(DEFAULTS.api_server, page_objects=7))


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_arguments_of_prometheus_adapter_deployments_are_accepted(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, rules: Path, name: str
) -> None:
    """It serves, and logs each flag without effect, and no other."""
    arguments, without_effect = DEPLOYMENTS[name]
    started(monkeypatch, *(each.replace("KUBECONFIG", str(rules)) for each in arguments), f"--config={rules}")
    assert [record.getMessage() for record in caplog.records] == [
        f"{flag} has no effect: {IGNORED[flag]}" for flag in sorted(without_effect, key=list(IGNORED).index)
    ]


def test_every_flag_of_prometheus_adapter_is_accepted() -> None:
    """Its own, and those of the library for API servers that it is built with."""
    names = (Path(__file__).parent.parent / "data" / "prometheus-adapter-flags.txt").read_text().split()
    accepted = {option for parameter in main.commands["serve"].params for option in parameter.opts}
    assert [name for name in names if name not in accepted] == []


def test_flags_without_effect_are_hidden_from_help_and_documented() -> None:
    code, output = invoke("--help")
    shown = set(re.findall(r"--[a-z0-9-]+", output))
    assert (code, shown & IGNORED.keys()) == (0, set())
    page = (Path(__file__).parent.parent.parent / "docs" / "migrating.md").read_text()
    patterns = {name.replace("*", ".*") for name in re.findall(r"`(--[a-z0-9-]+\*?)`", page)}
    missing = [flag for flag in IGNORED if not any(re.fullmatch(pattern, flag) for pattern in patterns)]
    assert missing == []
