"""Installing milliscale into the playground as into a cluster: from manifests/base, with the rights given there.

What would run in pods is left out, because here the adapter and the autoscaler are processes beside the cluster. Each
acts as its service account, with a token of its own and nothing more, so a right that the manifests forget is missing
here too. The Service that the APIServices name leads to the adapter's port on loopback.
"""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import yaml

from kube.client import KubeClient
from kube.mapping import RestMapper
from kube.status import StatusError
from playground.errors import PlaygroundError

Object = dict[str, Any]
Process = Literal["adapter", "autoscaler"]

_BASE: Final = Path(__file__).resolve().parent.parent / "manifests" / "base"
_RENDER_TIMEOUT: Final = 60.0
_RIGHTS: Final = (
    "Namespace",
    "ServiceAccount",
    "ClusterRole",
    "ClusterRoleBinding",
    "Role",
    "RoleBinding",
)
_TOKEN_SECONDS: Final = 7 * 24 * 3600
_CONFLICT: Final = 409


class InstallError(PlaygroundError):
    """The manifests cannot be rendered, or an object cannot be applied."""


@dataclass(frozen=True, slots=True)
class Account:
    """A service account."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class Manifests:
    """The objects that install milliscale into a cluster."""

    objects: Sequence[Object]

    @classmethod
    async def render(cls, kubectl: Path) -> Manifests:
        """manifests/base, as `kubectl kustomize` renders it. Raises InstallError."""
        return cls(_parse(await asyncio.to_thread(_kustomize, kubectl)))

    @property
    def rights(self) -> list[Object]:
        """The namespace, the service accounts and everything that gives them rights."""
        return [entry for entry in self.objects if entry["kind"] in _RIGHTS]

    def account(self, process: Process) -> Account:
        """The service account that a process has in a cluster."""
        for entry in self._of_kind("Deployment"):
            if process in entry["metadata"]["name"]:
                account = entry["spec"]["template"]["spec"]["serviceAccountName"]
                return Account(entry["metadata"]["namespace"], account)
        raise InstallError(f"{_BASE} has no Deployment of the {process}")

    def registration(self, *, port: int) -> list[Object]:
        """The APIServices, and their Service, such that they lead to a port of this machine."""
        services = {}
        registered = []
        for entry in self._of_kind("APIService"):
            reference = {**entry["spec"]["service"], "port": port}
            services[reference["namespace"], reference["name"]] = {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": {"namespace": reference["namespace"], "name": reference["name"]},
                "spec": {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": port}]},
            }
            registered.append({**entry, "spec": {**entry["spec"], "service": reference}})
        return [*services.values(), *registered]

    def _of_kind(self, kind: str) -> list[Object]:
        return [entry for entry in self.objects if entry["kind"] == kind]


async def read_objects(path: Path) -> list[Object]:
    """The objects of a YAML file."""
    return _parse(await asyncio.to_thread(path.read_text))


async def apply(client: KubeClient, objects: Iterable[Object]) -> None:
    """Create the objects in this order; those that exist are changed by a merge patch.

    Raises:
        InstallError: the cluster has no such kind, or refuses an object.
    """
    mapper = RestMapper(client, refresh_seconds=0)
    for entry in objects:
        group = entry["apiVersion"].rpartition("/")[0]
        metadata = entry["metadata"]
        namespace = metadata.get("namespace", "")
        try:
            info = (await mapper.mappings_for_kind(group, entry["kind"]))[0]
            try:
                await client.post(info.path(namespace), entry)
            except StatusError as error:
                if error.code != _CONFLICT:
                    raise
                await client.patch(info.path(namespace, metadata["name"]), entry)
        except (LookupError, StatusError) as error:
            raise InstallError(f"cannot apply {entry['kind']} {metadata['name']}: {error}") from error


async def write_account_kubeconfig(client: KubeClient, path: Path, *, admin: Path, account: Account) -> None:
    """Write a kubeconfig that acts as a service account, for the cluster that the kubeconfig `admin` is for."""
    request = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": _TOKEN_SECONDS},
    }
    answer = await client.post(f"/api/v1/namespaces/{account.namespace}/serviceaccounts/{account.name}/token", request)
    await asyncio.to_thread(_write_kubeconfig, path, admin, account.name, answer["status"]["token"])


def _write_kubeconfig(path: Path, admin: Path, user: str, token: str) -> None:
    cluster = yaml.safe_load(admin.read_text())["clusters"][0]
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [cluster],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": [{"name": user, "context": {"cluster": cluster["name"], "user": user}}],
        "current-context": user,
    }
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(config))


def _parse(text: str) -> list[Object]:
    return [entry for entry in yaml.safe_load_all(text) if entry is not None]


def _kustomize(kubectl: Path) -> str:
    try:
        done = subprocess.run(
            [kubectl, "kustomize", _BASE], check=False, capture_output=True, text=True, timeout=_RENDER_TIMEOUT
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InstallError(f"cannot render {_BASE}: {error}") from error
    if done.returncode != 0:
        raise InstallError(f"cannot render {_BASE}: {done.stderr.strip()}")
    return done.stdout
