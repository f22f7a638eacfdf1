"""Where the API server is, and who we are there: kubernetes-asyncio's reading of kubeconfigs and service accounts.

kubernetes-asyncio knows files, exec plugins and in-cluster credentials. What it leaves open is closed here: every way
in which it trips over a configuration becomes one error, credentials in a kubeconfig are read again from time to time,
and no key stays behind in the temporary directory.
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
import time
from dataclasses import dataclass
from pathlib import Path

from kubernetes_asyncio import config as kubernetes_config
from kubernetes_asyncio.client import Configuration
from kubernetes_asyncio.config import kube_config
from yaml import YAMLError

_log = logging.getLogger(__name__)

# Kubeconfig credentials that can change under us (tokenFile, exec plugins) are read again after this time. Service
# account tokens are, too, by kubernetes-asyncio itself.
_CREDENTIAL_SECONDS = 60.0
_NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
# The last three are how kubernetes-asyncio trips over a file that is YAML but no kubeconfig.
_BAD = (
    kubernetes_config.ConfigException,
    OSError,
    ValueError,
    YAMLError,
    AttributeError,
    LookupError,
    TypeError,
)


class BadCredentialsError(Exception):
    """There is no usable configuration; the message says what to give."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """What it takes to speak to an API server."""

    configuration: Configuration
    """Of kubernetes-asyncio; its `auth_settings()` reads tokens again when they may have changed."""
    tls: ssl.SSLContext
    """With the cluster's CA, and our own certificate if there is one."""


async def credentials(kubeconfig: Path | None, context: str | None = None) -> Credentials:
    """Read the configuration; nothing is sent.

    Args:
        kubeconfig: the file, or None for the service account of the pod that this runs in.
        context: the kubeconfig's context, or None for its current one.

    Raises:
        BadCredentialsError: there is no configuration, or it cannot be used.
    """
    configuration = Configuration()
    try:
        if kubeconfig is None:
            await asyncio.to_thread(_load_service_account, configuration)
        else:
            await _load_kubeconfig(configuration, kubeconfig, context)
        return Credentials(configuration, _tls(configuration))
    except _BAD as error:
        raise BadCredentialsError(_explain(kubeconfig, error)) from error
    finally:
        _forget_key_files()


def default_kubeconfig() -> Path | None:
    """Return kubectl's kubeconfig: $KUBECONFIG, or else ~/.kube/config; None without either, as in a pod."""
    if named := os.environ.get("KUBECONFIG"):
        return Path(named)
    usual = Path.home() / ".kube" / "config"
    return usual if usual.is_file() else None


def own_namespace(*, default: str, file: Path = _NAMESPACE_FILE) -> str:
    """Return the namespace of the pod that this runs in; `default` outside of pods."""
    try:
        return file.read_text("utf-8").strip() or default
    except (OSError, UnicodeDecodeError):
        return default


def _tls(configuration: Configuration) -> ssl.SSLContext:
    """As kubernetes-asyncio makes it for its own connections."""
    context = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
    if configuration.cert_file:
        context.load_cert_chain(configuration.cert_file, keyfile=configuration.key_file)
    if not configuration.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if configuration.disable_strict_ssl_verification:
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def _load_service_account(configuration: Configuration) -> None:
    kubernetes_config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]


async def _load_kubeconfig(configuration: Configuration, path: Path, context: str | None) -> None:
    async def load(into: Configuration) -> None:
        await kubernetes_config.load_kube_config(
            config_file=str(path), context=context, client_configuration=into, persist_config=False
        )

    if not await asyncio.to_thread(path.is_file):
        raise kubernetes_config.ConfigException("there is no such file")
    await load(configuration)
    read_at = time.monotonic()
    complained = False

    async def refresh(_: Configuration) -> None:
        """Take up new credentials; a file that is unusable at this moment leaves the old ones."""
        nonlocal read_at, complained
        if time.monotonic() - read_at < _CREDENTIAL_SECONDS:
            return
        read_at = time.monotonic()
        fresh = Configuration()
        try:
            await load(fresh)
        except _BAD as error:
            if not complained:
                _log.warning("kubeconfig %s cannot be read again, its old credentials go on: %s", path, error)
            complained = True
        else:
            complained = False
            configuration.api_key.update(fresh.api_key)
        finally:
            _forget_key_files()

    configuration.refresh_api_key_hook = refresh


def _forget_key_files() -> None:
    """Remove the files that kubernetes-asyncio makes of keys and certificates written inside a kubeconfig.

    They are needed only until the TLS context has been made; it would leave them in the temporary directory until the
    process ends, and for ever where that ends by a signal.
    """
    kube_config._cleanup_temp_files()


def _explain(kubeconfig: Path | None, error: BaseException) -> str:
    if kubeconfig is not None:
        return f"kubeconfig {os.fspath(kubeconfig)}: {error}"
    return f"not running in a pod with a service account ({error}); give --kubeconfig"
