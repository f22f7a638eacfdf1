"""Credentials for Prometheus from the pod's service account or from a kubeconfig."""

import base64
import ssl
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from adapter.commands.flags import PrometheusAccess
from adapter.prometheus import PrometheusConfigError, PrometheusOptions
from adapter.upstream import Credentials
from playground.certs import CertificateAuthority

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


async def headers(options: PrometheusOptions) -> dict[str, str]:
    """The headers of a request with these options."""
    return dict(await Credentials(options).headers())


def context(options: PrometheusOptions) -> ssl.SSLContext:
    """The TLS context of a request with these options."""
    credentials = Credentials(options)
    credentials.load()
    loaded = credentials.context()
    assert loaded is not None
    return loaded


async def test_options_are_unchanged_without_cluster_credentials() -> None:
    assert await PrometheusAccess(options=OPTIONS).authorized() == OPTIONS


async def test_service_account_token_and_ca_are_used(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret")
    options = await PrometheusAccess(options=OPTIONS, in_cluster=True).authorized(service_account=tmp_path)
    assert (options.token_file, options.ca_file) == (tmp_path / "token", tmp_path / "ca.crt")


async def test_missing_service_account_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(PrometheusConfigError, match="not running in a pod"):
        await PrometheusAccess(options=OPTIONS, in_cluster=True).authorized(service_account=tmp_path)


async def test_cluster_credentials_are_ignored_with_a_ca_file(tmp_path: Path) -> None:
    own = PrometheusOptions(url="https://prometheus", ca_file=tmp_path / "own.crt")
    (tmp_path / "token").write_text("secret")
    assert await PrometheusAccess(options=own, in_cluster=True).authorized(service_account=tmp_path) == own
    path = kubeconfig(tmp_path, cluster={}, user={"token": "secret"})
    assert await PrometheusAccess(options=own, kubeconfig=path).authorized() == own


async def test_kubeconfig_has_the_ca_and_the_token(tmp_path: Path) -> None:
    ca = CertificateAuthority.create("ca").cert_pem
    (tmp_path / "ca.crt").write_bytes(ca)
    (tmp_path / "token").write_text("secret")
    for cluster, user in (
        ({"certificate-authority": "ca.crt"}, {"tokenFile": "token"}),
        ({"certificate-authority-data": base64.b64encode(ca).decode()}, {"token": "secret"}),
    ):
        path = kubeconfig(tmp_path, cluster=cluster, user=user)
        options = await PrometheusAccess(options=OPTIONS, kubeconfig=path).authorized()
        assert {name.lower(): value for name, value in (await headers(options)).items()} == {
            "x-scope-orgid": "team",
            "authorization": "Bearer secret",
        }
        assert context(options).cert_store_stats()["x509_ca"] == 1


async def test_token_file_is_preferred_to_the_kubeconfig(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("own")
    path = kubeconfig(tmp_path, cluster={}, user={"token": "secret"})
    access = PrometheusAccess(options=replace(OPTIONS, token_file=tmp_path / "token"), kubeconfig=path)
    assert (await headers(await access.authorized()))["Authorization"] == "Bearer own"


async def test_kubeconfig_password_is_basic_auth(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path, cluster={}, user={"username": "ann", "password": "pw"})
    options = await PrometheusAccess(options=OPTIONS, kubeconfig=path).authorized()
    assert "Basic " + base64.b64encode(b"ann:pw").decode() in (await headers(options)).values()


@pytest.mark.parametrize("skips", [True, False])
async def test_kubeconfig_insecure_skip_tls_verify(skips: bool, tmp_path: Path) -> None:
    path = kubeconfig(tmp_path, cluster={"insecure-skip-tls-verify": skips}, user={"token": "secret"})
    options = await PrometheusAccess(options=OPTIONS, kubeconfig=path).authorized()
    assert options.insecure_skip_tls_verify is skips
    assert (context(options).verify_mode is ssl.CERT_NONE) is skips
    access = PrometheusAccess(options=replace(OPTIONS, insecure_skip_tls_verify=True), kubeconfig=path)
    assert context(await access.authorized()).verify_mode is ssl.CERT_NONE


async def test_service_account_ca_is_not_used_if_verification_is_skipped(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret")
    access = PrometheusAccess(options=replace(OPTIONS, insecure_skip_tls_verify=True), in_cluster=True)
    options = await access.authorized(service_account=tmp_path)
    assert (options.token_file, options.ca_file) == (tmp_path / "token", None)


@pytest.mark.parametrize("text", ["", "[]", "{", "current-context: nowhere", "contexts: 5"])
async def test_malformed_kubeconfigs_are_errors(tmp_path: Path, text: str) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(text)
    with pytest.raises(PrometheusConfigError, match=f"^--prometheus-auth-config: kubeconfig {path}: "):
        await PrometheusAccess(options=OPTIONS, kubeconfig=path).authorized()
