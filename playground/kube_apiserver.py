"""A real API server: kube-apiserver with etcd, from the directory of KUBEBUILDER_ASSETS."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import aiohttp
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from kube.api.client import KubeClient, KubeError
from kube.api.status import StatusError
from playground.apiserver.bootstrap import FRONT_PROXY_NAME
from playground.apiserver.pki import Pki
from playground.errors import PlaygroundError
from playground.ports import LOOPBACK, free_port
from playground.processes import ChildProcess

ASSETS_VARIABLE: Final = "KUBEBUILDER_ASSETS"
_PROGRAMS: Final = ("kube-apiserver", "etcd")
_ISSUER: Final = "https://kubernetes.default.svc.cluster.local"
_ACCOUNT_KEY: Final = "service-accounts.key"
_START_SECONDS: Final = 60.0
_POLL: Final = 0.2
_MADE_AT_START: Final = (
    "/api/v1/namespaces/default",
    "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication",
)

_AUDIT_POLICY: Final = """
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  userGroups: [system:serviceaccounts]
- level: None
"""


class ClusterError(PlaygroundError):
    """The cluster cannot be started."""


def find_assets(environment: Mapping[str, str]) -> Path | None:
    """Return the directory of KUBEBUILDER_ASSETS, or None if it is not set.

    Raises:
        ClusterError: kube-apiserver or etcd is not in it.
    """
    named = environment.get(ASSETS_VARIABLE)
    if not named:
        return None
    missing = [program for program in _PROGRAMS if not (Path(named) / program).is_file()]
    if missing:
        raise ClusterError(
            f"{ASSETS_VARIABLE} is {named}, where there is no {' and no '.join(missing)}; "
            "install them there (setup-envtest does), or unset it to use the playground's own API server"
        )
    return Path(named)


class KubeApiServer:
    """etcd and kube-apiserver, which run while the context is open."""

    def __init__(
        self,
        folder: Path,
        *,
        assets: Path,
        pki: Pki,
        feature_gates: str = "",
        audit_log: Path | None = None,
        flags: Mapping[str, object] | None = None,
    ) -> None:
        """Configure the server; nothing is started yet.

        Args:
            folder: for all files.
            assets: the directory with kube-apiserver and etcd.
            pki: has the server's certificates.
            feature_gates: of kube-apiserver.
            audit_log: file for the metadata of service accounts' requests, one JSON object per line; None: no log.
            flags: more flags of kube-apiserver; None as a value removes one of those below.
        """
        self._flags = dict(flags or {})
        self._audit_log = audit_log
        self._feature_gates = feature_gates
        self._folder = folder
        self._assets = assets
        self._pki = pki
        self._port = free_port()
        self._stack = AsyncExitStack()
        self._children: list[ChildProcess] = []

    @property
    def data(self) -> Path:
        """The directory of etcd's data."""
        return self._folder / "etcd"

    @property
    def account_key(self) -> Path:
        """The key that signs the tokens of service accounts."""
        return self._folder / _ACCOUNT_KEY

    @property
    def url(self) -> str:
        """The address of the server."""
        return f"https://{LOOPBACK}:{self._port}"

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            etcd_url = f"http://{LOOPBACK}:{free_port()}"
            etcd = await self._start(stack, "etcd", _etcd_flags(self._folder, etcd_url))
            keys = await asyncio.to_thread(_write_account_keys, self._folder)
            flags = self._server_flags(etcd_url, *keys) | await asyncio.to_thread(self._audit_flags) | self._flags
            server = await self._start(stack, "kube-apiserver", flags)
            self._children = [etcd, server]
            await self._until_ready(self._children)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    async def hang_up(self) -> None:
        """Stop both programs and keep the objects: an outage until `listen`."""
        for child in reversed(self._children):
            await child.stop()

    async def listen(self) -> None:
        """Start both programs again, on the same ports. Raises ClusterError."""
        for child in self._children:
            await child.restart()
        await self._until_ready(self._children)

    async def _start(self, stack: AsyncExitStack, program: str, flags: Mapping[str, object]) -> ChildProcess:
        given = (f"--{name}={value}" for name, value in flags.items() if value is not None)
        command: list[str | Path] = [self._assets / program, *given]
        try:
            child = await ChildProcess.start(program, command, log=self._folder / f"{program}.log")
        except OSError as error:
            raise ClusterError(f"cannot start {self._assets / program}: {error}") from error
        return await stack.enter_async_context(child)

    def _server_flags(self, etcd_url: str, private_key: Path, public_key: Path) -> dict[str, object]:
        pki = self._pki
        return {
            "etcd-servers": etcd_url,
            "bind-address": LOOPBACK,
            "secure-port": self._port,
            "advertise-address": LOOPBACK,
            "endpoint-reconciler-type": "none",  # it refuses addresses of loopback
            "cert-dir": self._folder / "kube-apiserver",
            "tls-cert-file": pki.serving.certificate,
            "tls-private-key-file": pki.serving.key,
            "client-ca-file": pki.client_ca_file,
            "authorization-mode": "RBAC",
            "service-cluster-ip-range": "10.0.0.0/24",
            "service-account-issuer": _ISSUER,
            "service-account-key-file": public_key,
            "service-account-signing-key-file": private_key,
            # There is no controller for the `default` service accounts, which it requires for pods.
            "disable-admission-plugins": "ServiceAccount",
            "requestheader-client-ca-file": pki.requestheader_ca_file,
            "requestheader-allowed-names": FRONT_PROXY_NAME,
            "requestheader-username-headers": "X-Remote-User",
            "requestheader-group-headers": "X-Remote-Group",
            "requestheader-extra-headers-prefix": "X-Remote-Extra-",
            "proxy-client-cert-file": pki.front_proxy.certificate,
            "proxy-client-key-file": pki.front_proxy.key,
            **({"feature-gates": self._feature_gates} if self._feature_gates else {}),
        }

    def _audit_flags(self) -> dict[str, object]:
        if self._audit_log is None:
            return {}
        policy = self._folder / "audit-policy.yaml"
        policy.write_text(_AUDIT_POLICY)
        return {"audit-policy-file": policy, "audit-log-path": self._audit_log}

    async def _until_ready(self, children: list[ChildProcess]) -> None:
        last: Exception | None = None
        try:
            async with asyncio.timeout(_START_SECONDS):
                while True:
                    for child in children:
                        if child.exit_status is not None:
                            lines = "\n".join(child.last_lines())
                            raise ClusterError(f"{child.name} ended; the end of {child.log}:\n{lines}")
                    try:
                        await self._check_ready()
                    except (StatusError, KubeError, aiohttp.ClientError) as error:
                        last = error
                    else:
                        return
                    await asyncio.sleep(_POLL)
        except TimeoutError as error:
            raise ClusterError(f"kube-apiserver is not ready after {_START_SECONDS:.0f} s: {last}") from error

    async def _check_ready(self) -> None:
        context = ssl.create_default_context(cafile=str(self._pki.serving_ca_file))
        async with aiohttp.ClientSession(raise_for_status=True) as session:
            await session.get(f"{self.url}/readyz", ssl=context)
        # /readyz does not wait for the hooks that create these.
        async with await KubeClient.connect(self._pki.kubeconfig(self.url, "probe", ["system:masters"])) as client:
            for path in _MADE_AT_START:
                await client.get(path)


def _etcd_flags(folder: Path, url: str) -> dict[str, object]:
    peer = f"http://{LOOPBACK}:{free_port()}"
    return {
        "name": "playground",
        "data-dir": folder / "etcd",
        "listen-client-urls": url,
        "advertise-client-urls": url,
        "listen-peer-urls": peer,
        "initial-advertise-peer-urls": peer,
        "initial-cluster": f"playground={peer}",
        "unsafe-no-fsync": "true",
        "log-level": "warn",
    }


def _write_account_keys(folder: Path) -> tuple[Path, Path]:
    """Write the key pair for service account tokens."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    private, public = folder / _ACCOUNT_KEY, folder / "service-accounts.pub"
    private.touch(mode=0o600)
    private.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    public.write_bytes(
        key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    return private, public
