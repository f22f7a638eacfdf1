"""The address of the API server and our credentials, from a kubeconfig or a service account.

kubernetes-asyncio runs exec plugins, logs in with OIDC and so on. It is imported only for a kubeconfig that may need
it: that takes as much CPU as all other imports of a process. This module adds one error type, and leaves no copies of a
kubeconfig's keys in the temporary directory. It re-reads credentials every minute, whatever the wall clock says, and
after a 401.
"""

from __future__ import annotations

import asyncio
import base64
import gc
import logging
import os
import shutil
import socket
import ssl
import sys
import tempfile
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import aiohttp

from kube.process.runtime import boot_clock

_log = logging.getLogger(__name__)

_SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_CREDENTIAL_SECONDS = 60.0
# A plugin may need some time, and what it returns may be refused again.
_REFUSED_SECONDS = 5.0
# Like Kubernetes' HTTP/2 pings: after 30 seconds without a byte, 15 seconds for the response.
_KEEPALIVE = {
    "TCP_KEEPIDLE": 30,
    "TCP_KEEPINTVL": 5,
    "TCP_KEEPCNT": 3,
    "TCP_USER_TIMEOUT": 45_000,
}
_RECEIVED_AT_ONCE = 2**17
_DEFAULT_NAMESPACE = "default"
_FILES = ("certificate-authority", "client-certificate", "client-key")


class RestConfigError(Exception):
    """There is no usable configuration; the message says what to give."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Loaded:
    """What a context of a kubeconfig, or the service account, says. Certificates and the key are paths of files."""

    host: str
    authorization: str = ""
    """The header; "" without a token or password."""
    ca: str | None = None
    certificate: str | None = None
    key: str | None = None
    verifies: bool = True
    server_name: str | None = None
    proxy: str | None = None
    user: str = ""
    namespace: str = _DEFAULT_NAMESPACE

    def files(self) -> tuple[bytes, ...]:
        """Return the contents of the files with CAs, client certificate and key."""
        return tuple(Path(path).read_bytes() if path else b"" for path in (self.ca, self.certificate, self.key))

    def tls_context(self) -> ssl.SSLContext | Literal[True]:
        """Return the context that kubernetes-asyncio makes for its connections; True if aiohttp's default is the same.

        A context with the system's CAs takes 40 ms of CPU, and aiohttp has made one.
        """
        if not self.ca and not self.certificate and self.verifies:
            return True
        context = ssl.create_default_context(cafile=self.ca)
        if self.certificate:
            context.load_cert_chain(self.certificate, keyfile=self.key)
        if not self.verifies:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


class RestConfig:
    """How to connect to an API server; see `load_config`. Upstream: rest.Config.

    Tokens (files, exec plugins), certificates and CAs are read again, since they may change; the old ones stay while
    they cannot be read.

    Args:
        path: the kubeconfig; None: the service account.
        context: the kubeconfig's context.
        loaded: what they have now; its files are read at once.
        clock: monotonic, in seconds; runs on while the machine is suspended.

    Attributes:
        host: the URL of the API server.
        server_name: the name in its certificate, if that is another one than the host's.
        verifies: whether its certificate is verified.
        proxy: the URL of a proxy, from the kubeconfig or the environment.
        identity: whose credentials these are: `user NAME of kubeconfig FILE`, or `the service account`.
        namespace: of the context, or of the pod; "default" if it has none.
        tls: for new connections: with the cluster's CA, and our client certificate if there is one. True: aiohttp's
            default, where the configuration says nothing else.
    """

    def __init__(self, path: Path | None, context: str | None, loaded: _Loaded) -> None:
        self.host = loaded.host
        self.server_name = loaded.server_name
        self.verifies = loaded.verifies
        self.proxy = loaded.proxy
        self.identity = f"user {loaded.user or 'none'} of kubeconfig {path}" if path else "the service account"
        self.namespace = loaded.namespace
        self.tls = loaded.tls_context()
        self._path = path
        self._context = context
        self._authorization = loaded.authorization
        self._files = loaded.files()
        self._read_at = boot_clock()
        self._refused = False
        self._failing = False

    def refused(self) -> None:
        """Note that the API server refused the credentials. Upstream: transport.ResetTokenOlderThan."""
        self._refused = True

    async def authorization(self) -> dict[str, str]:
        """Return the current Authorization header; no header without a token or password."""
        if boot_clock() - self._read_at >= (_REFUSED_SECONDS if self._refused else _CREDENTIAL_SECONDS):
            await self._reload()
        return {"authorization": self._authorization} if self._authorization else {}

    async def _reload(self) -> None:
        self._read_at, self._refused = boot_clock(), False
        try:
            with tempfile.TemporaryDirectory() as directory:
                loaded = await _load(self._path, self._context, Path(directory))
                files = loaded.files()
                if files != self._files:
                    self.tls, self._files = loaded.tls_context(), files
        except _invalid() as error:
            if not self._failing:
                where = "the service account" if self._path is None else f"kubeconfig {self._path}"
                _log.warning("%s cannot be reloaded, its old credentials stay: %s", where, error)
            self._failing = True
        else:
            self._failing = False
            self._authorization = loaded.authorization or self._authorization


async def load_config(kubeconfig: Path | None, context: str | None = None) -> RestConfig:
    """Read a kubeconfig, or without one the service account of the pod that this runs in. Connects to nothing.

    Args:
        kubeconfig: the file.
        context: the kubeconfig's context; None: its current one.

    Raises:
        RestConfigError: there is no configuration, or it is invalid.
    """
    try:
        with tempfile.TemporaryDirectory() as directory:
            loaded = await _load(kubeconfig, context, Path(directory))
            if not loaded.proxy:
                loaded = replace(loaded, proxy=await asyncio.to_thread(_environment_proxy, loaded.host))
            return RestConfig(kubeconfig, context, loaded)
    except _invalid() as error:
        if kubeconfig is not None:
            raise RestConfigError(f"kubeconfig {os.fspath(kubeconfig)}: {_text(error)}") from error
        message = f"not running in a pod with a service account ({error}); give --kubeconfig"
        raise RestConfigError(message) from error


def client_socket(address: aiohttp.AddrInfoType) -> socket.socket:
    """Return a socket that detects a vanished peer within 45 seconds, and receives little at a time.

    Without a limit the event loop (libuv) reads up to 8 MiB at once. Those can be half a million interim responses (103
    Early Hints), each of which aiohttp keeps as an object before it drops them.
    """
    family, kind, protocol, _, _ = address
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVED_AT_ONCE)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE.items():
        if hasattr(socket, name):  # other systems than Linux lack some of them
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return made


def default_kubeconfig() -> Path | None:
    """Return kubectl's kubeconfig: $KUBECONFIG, or else ~/.kube/config; None without either, as in a pod.

    $KUBECONFIG may be a list with colons, which `load_config` merges.
    """
    if named := os.environ.get("KUBECONFIG"):
        return Path(named)
    usual = Path.home() / ".kube" / "config"
    return usual if usual.is_file() else None


def own_namespace(*, default: str, file: Path = _SERVICE_ACCOUNT / "namespace") -> str:
    """Return the namespace of the pod that this runs in; `default` outside of pods."""
    try:
        return file.read_text("utf-8").strip() or default
    except (OSError, UnicodeDecodeError):
        return default


def _invalid() -> tuple[type[Exception], ...]:
    """Return the errors of an invalid configuration; the last ones are those of YAML that is no kubeconfig."""
    from yaml import YAMLError

    found = OSError, ValueError, YAMLError, AttributeError, LookupError, TypeError
    library = sys.modules.get("kubernetes_asyncio.config")
    return found if library is None else (library.ConfigException, *found)


def _text(error: Exception) -> str:
    """Return an error on one line; of a file, without its number."""
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}"
    if mark := getattr(error, "problem_mark", None):
        return f"this is not YAML: line {mark.line + 1}, column {mark.column + 1}: {getattr(error, 'problem', '')}"
    return " ".join(str(error).split())


def _service_account() -> _Loaded:
    """Return the service account of the pod that this runs in.

    Raises OSError, ValueError: there is none.

    Upstream: rest.InClusterConfig.
    """
    host, port = (os.environ.get(f"KUBERNETES_SERVICE_{each}") for each in ("HOST", "PORT"))
    if not host or not port:
        raise ValueError("KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set")
    token = (_SERVICE_ACCOUNT / "token").read_text("utf-8").strip()
    if not token:
        raise ValueError("the file of its token is empty")
    return _Loaded(
        host=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        authorization=f"Bearer {token}",
        ca=str(_SERVICE_ACCOUNT / "ca.crt"),
        namespace=own_namespace(default=_DEFAULT_NAMESPACE),
    )


def _plain(cluster: Any, user: Any) -> _Loaded | None:
    """Return what a cluster and a user of a kubeconfig say; None if kubernetes-asyncio must read them."""
    if not isinstance(cluster, dict) or not isinstance(user, dict):
        return None
    texts = {key: value for key, value in (*cluster.items(), *user.items()) if key != "insecure-skip-tls-verify"}
    skips_verification = cluster.get("insecure-skip-tls-verify", False)
    files = [texts[name] for name in _FILES if name in texts]
    is_plain = (
        cluster.keys() <= {"server", "certificate-authority", "insecure-skip-tls-verify", "tls-server-name"}
        and user.keys() <= {"client-certificate", "client-key", "token"}
        and ("client-certificate" in user) is ("client-key" in user)
        and isinstance(skips_verification, bool)
        and all(isinstance(value, str) and value for value in texts.values())
        and texts.get("server", "").startswith(("https://", "http://"))
        and all(map(os.path.isfile, files))
    )
    if not is_plain:
        return None
    host = texts["server"].rstrip("/")
    ca, certificate, key = (texts.get(name) if host.startswith("https") else None for name in _FILES)
    return _Loaded(
        host=host,
        authorization=f"Bearer {texts['token']}" if "token" in texts else "",
        ca=ca,
        certificate=certificate,
        key=key,
        verifies=not skips_verification,
        server_name=texts.get("tls-server-name"),
    )


async def _load(path: Path | None, context: str | None, directory: Path) -> _Loaded:
    """Load a kubeconfig, or without one the service account; `directory` as for _read_kubeconfig."""
    if path is None:
        return await asyncio.to_thread(_service_account)
    config = await asyncio.to_thread(_read_kubeconfig, path, directory)
    cluster, user, (name, namespace) = _check(config, context)
    loaded = _plain(cluster, user) or await _loaded_by_library(config, context, path)
    return replace(loaded, user=name, namespace=namespace)


async def _loaded_by_library(config: Any, context: str | None, path: Path) -> _Loaded:
    from kubernetes_asyncio.client import Configuration
    from kubernetes_asyncio.config.kube_config import KubeConfigLoader

    gc.freeze()  # `kube.process.runtime.run` does the same for earlier imports.
    loaded = Configuration()
    await KubeConfigLoader(config, context, config_base_path=str(path.parent)).load_and_set(loaded)
    return _Loaded(
        host=loaded.host or "",
        authorization=await loaded.get_api_key_with_prefix("BearerToken") or "",
        ca=loaded.ssl_ca_cert,
        certificate=loaded.cert_file,
        key=loaded.key_file,
        verifies=loaded.verify_ssl,
        server_name=loaded.tls_server_name,
        proxy=loaded.proxy,
    )


def _check(config: Any, context: str | None) -> tuple[Any, Any, tuple[str, str]]:
    """Return cluster, user, and (name of the user, namespace) of the context.

    kubernetes-asyncio says little of what is missing.

    Raises:
        ValueError: there is no such context, cluster, user or exec plugin.
    """
    if not isinstance(config, dict):
        raise ValueError("it is no mapping in YAML")  # as for the rest of the file
    contexts, clusters, users = (
        {each["name"]: each.get(kind) or {} for each in config.get(f"{kind}s") or ()}
        for kind in ("context", "cluster", "user")
    )
    name = context or config.get("current-context")
    if not name:
        raise ValueError("it has no current-context: choose one with kubectl config use-context")
    if name not in contexts:
        raise ValueError(f"there is no context {name}, but {', '.join(map(str, contexts)) or 'none'}")
    cluster, user = contexts[name].get("cluster"), contexts[name].get("user")
    if cluster not in clusters:
        raise ValueError(f"there is no cluster {cluster}, which context {name} names")
    if user and user not in users:
        raise ValueError(f"there is no user {user}, which context {name} names")
    plugin = (users.get(user, {}).get("exec") or {}).get("command")
    if plugin and os.sep not in plugin and shutil.which(plugin) is None:
        raise ValueError(f"the command {plugin}, which logs in user {user}, is not on PATH: install it")
    namespace = str(contexts[name].get("namespace") or _DEFAULT_NAMESPACE)
    return clusters[cluster], users.get(user, {}), (str(user or ""), namespace)


def _read_kubeconfig(path: Path, directory: Path) -> Any:
    """Read a kubeconfig, and move its inline keys and certificates to files in `directory`.

    kubernetes-asyncio would write them to files that stay until the process ends, or forever if a signal ends it.
    """
    from yaml import safe_load

    named = [path] if path.is_file() else [Path(each).expanduser() for each in str(path).split(os.pathsep) if each]
    files = [each for each in named if each.is_file()]
    if not files:
        raise ValueError("there is no such file")
    configs = [safe_load(each.read_text("utf-8")) for each in files]
    for index, (file, config) in enumerate(zip(files, configs, strict=True)):
        entries = [*(config.get("clusters") or ()), *(config.get("users") or ())]
        sections = [section for entry in entries for section in entry.values() if isinstance(section, dict)]
        for number, section in enumerate(sections):
            for name in _FILES:
                data = section.pop(f"{name}-data", None)
                if data:
                    inline = directory / f"{name}-{index}-{number}"
                    inline.write_bytes(base64.standard_b64decode(data))
                    section[name] = str(inline)
            for name in (*_FILES, "tokenFile"):
                if section.get(name):
                    section[name] = str(file.parent.absolute() / section[name])
    return _merged(configs)


def _merged(configs: Sequence[Any]) -> Any:
    """Return one kubeconfig: of entries with the same name, and of contexts, the first one counts, as for kubectl."""
    first, *others = configs
    for config in others:
        for kind in ("clusters", "contexts", "users"):
            known = {each["name"] for each in first.get(kind) or ()}
            first[kind] = [
                *(first.get(kind) or ()),
                *(each for each in config.get(kind) or () if each["name"] not in known),
            ]
        first["current-context"] = first.get("current-context") or config.get("current-context")
    return first


def _environment_proxy(url: str | None) -> str | None:
    """Return the proxy that the environment sets for a URL (HTTPS_PROXY, NO_PROXY and so on)."""
    parts = urlsplit(url or "")
    if parts.hostname is None or urllib.request.proxy_bypass(parts.netloc):
        return None
    return urllib.request.getproxies().get(parts.scheme)
