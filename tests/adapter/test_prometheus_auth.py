"""Credentials for Prometheus from the pod's service account or from a kubeconfig."""

import base64
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from adapter.commands.options import PrometheusAccess
from adapter.commands.prometheus_auth import authorized_options
from adapter.prometheus import PrometheusConfigError, PrometheusOptions

OPTIONS = PrometheusOptions(url="https://prometheus:9090", headers=(("X-Scope-OrgID", "team"),))


def kubeconfig(directory: Path, *, cluster: dict[str, Any], user: dict[str, Any]) -> Path:
    path = directory / "kubeconfig"
    tree = {
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://unused", **cluster}}],
        "users": [{"name": "other", "user": {"token": "wrong"}}, {"name": "u", "user": user}],
    }
    path.write_text(yaml.safe_dump(tree))
    return path


def test_options_are_unchanged_without_cluster_credentials() -> None:
    with authorized_options(PrometheusAccess(options=OPTIONS)) as options:
        assert options == OPTIONS


def test_service_account_token_and_ca_are_used(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret")
    access = PrometheusAccess(options=OPTIONS, in_cluster=True)
    with authorized_options(access, service_account=tmp_path) as options:
        assert (options.token_file, options.ca_file) == (tmp_path / "token", tmp_path / "ca.crt")


def test_missing_service_account_is_an_error(tmp_path: Path) -> None:
    access = PrometheusAccess(options=OPTIONS, in_cluster=True)
    with (
        pytest.raises(PrometheusConfigError, match="not running in a pod"),
        authorized_options(access, service_account=tmp_path),
    ):
        pass


def test_cluster_credentials_are_ignored_with_a_ca_file(tmp_path: Path) -> None:
    own = PrometheusOptions(url="https://prometheus", ca_file=tmp_path / "own.crt")
    (tmp_path / "token").write_text("secret")
    access = PrometheusAccess(options=own, in_cluster=True)
    with authorized_options(access, service_account=tmp_path) as options:
        assert options == own


def test_kubeconfig_paths_are_relative_to_it(tmp_path: Path) -> None:
    path = kubeconfig(
        tmp_path,
        cluster={"certificate-authority": "ca.crt"},
        user={"client-certificate": "/etc/client.crt", "client-key": "client.key", "tokenFile": "token"},
    )
    with authorized_options(PrometheusAccess(options=OPTIONS, kubeconfig=path)) as options:
        assert options.ca_file == tmp_path / "ca.crt"
        assert options.cert_file == Path("/etc/client.crt")
        assert options.key_file == tmp_path / "client.key"
        assert options.token_file == tmp_path / "token"
        assert options.headers == OPTIONS.headers


def test_inline_certificates_are_temporary_files(tmp_path: Path) -> None:
    def inline(text: str) -> str:
        return base64.b64encode(text.encode()).decode()

    path = kubeconfig(
        tmp_path,
        cluster={"certificate-authority-data": inline("ca")},
        user={"client-certificate-data": inline("cert"), "client-key-data": inline("key"), "token": "secret"},
    )
    with authorized_options(PrometheusAccess(options=OPTIONS, kubeconfig=path)) as options:
        files = (options.ca_file, options.cert_file, options.key_file)
        assert [file and file.read_text() for file in files] == ["ca", "cert", "key"]
        assert options.headers == (*OPTIONS.headers, ("Authorization", "Bearer secret"))
    assert not any(file and file.exists() for file in files)


def test_kubeconfig_password_is_basic_auth(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path, cluster={}, user={"username": "ann", "password": "pw"})
    with authorized_options(PrometheusAccess(options=OPTIONS, kubeconfig=path)) as options:
        assert options.headers[-1] == ("Authorization", "Basic " + base64.b64encode(b"ann:pw").decode())


def test_kubeconfig_insecure_skip_tls_verify(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path, cluster={"insecure-skip-tls-verify": True}, user={"token": "secret"})
    with authorized_options(PrometheusAccess(options=OPTIONS, kubeconfig=path)) as options:
        assert options.insecure_skip_tls_verify
    path = kubeconfig(tmp_path, cluster={"insecure-skip-tls-verify": False}, user={"token": "secret"})
    with authorized_options(PrometheusAccess(options=OPTIONS, kubeconfig=path)) as options:
        assert not options.insecure_skip_tls_verify


def test_service_account_ca_is_not_used_if_verification_is_skipped(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret")
    access = PrometheusAccess(options=replace(OPTIONS, insecure_skip_tls_verify=True), in_cluster=True)
    with authorized_options(access, service_account=tmp_path) as options:
        assert (options.token_file, options.ca_file) == (tmp_path / "token", None)


@pytest.mark.parametrize(
    ("cluster", "user", "message"),
    [
        ({}, {"exec": {"command": "x"}}, r"user\.exec is not supported"),
        ({"insecure-skip-tls-verify": True, "certificate-authority": "ca.crt"}, {}, "a CA file or skip .* not both"),
        ({"certificate-authority-data": "%"}, {}, "certificate-authority-data is not base64"),
    ],
)
def test_unsupported_kubeconfigs_are_errors(
    tmp_path: Path, cluster: dict[str, Any], user: dict[str, Any], message: str
) -> None:
    path = kubeconfig(tmp_path, cluster=cluster, user=user)
    with (
        pytest.raises(PrometheusConfigError, match=message),
        authorized_options(PrometheusAccess(options=OPTIONS, kubeconfig=path)),
    ):
        pass


@pytest.mark.parametrize("text", ["", "[]", "{", "current-context: nowhere", "contexts: 5"])
def test_malformed_kubeconfigs_are_errors(tmp_path: Path, text: str) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(text)
    with (
        pytest.raises(PrometheusConfigError, match=f"^--prometheus-auth-config={path}: "),
        authorized_options(PrometheusAccess(options=OPTIONS, kubeconfig=path)),
    ):
        pass
