"""Install milliscale into the playground from manifests/base, without its pods.

The adapter and the autoscaler are processes outside the cluster. Each uses a token of its service account, so that a
right that is missing in the manifests is missing here, too. The Service of the APIServices points to the adapter's port
on loopback.
"""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import yaml

from kube.api.client import KubeClient
from kube.api.mapping import RestMapper
from kube.api.status import StatusError
from playground.errors import PlaygroundError

Object = dict[str, Any]
Process = Literal["adapter", "autoscaler"]

MANIFESTS: Final = Path(__file__).resolve().parent / "manifests"
"""In a clone a link to the manifests; the wheel has those that the demo applies."""
_BASE: Final = MANIFESTS / "base"
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
        """Render manifests/base with `kubectl kustomize`. Raises InstallError."""
        return cls(_parse(await asyncio.to_thread(_kustomize, kubectl)))

    @property
    def rights(self) -> list[Object]:
        """The namespace, service accounts, roles and bindings."""
        return [entry for entry in self.objects if entry["kind"] in _RIGHTS]

    def account(self, process: Process) -> Account:
        """Return the service account of a process."""
        for entry in self._of_kind("Deployment"):
            if process in entry["metadata"]["name"]:
                account = entry["spec"]["template"]["spec"]["serviceAccountName"]
                return Account(entry["metadata"]["namespace"], account)
        raise InstallError(f"{_BASE} has no Deployment of the {process}")

    def registration(self, *, port: int) -> list[Object]:
        """Return the APIServices and their Service, which point to a local port."""
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
    """Return the objects of a YAML file."""
    return _parse(await asyncio.to_thread(path.read_text))


async def apply(client: KubeClient, objects: Iterable[Object]) -> None:
    """Create the objects in order; existing ones are changed with a merge patch.

    Raises:
        InstallError: the cluster has no such kind, or rejects an object.
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
    """Write a kubeconfig of a service account, for the cluster of the kubeconfig `admin`."""
    request = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": _TOKEN_SECONDS},
    }
    response = await client.post(
        f"/api/v1/namespaces/{account.namespace}/serviceaccounts/{account.name}/token", request
    )
    await asyncio.to_thread(_write_kubeconfig, path, admin, account.name, response["status"]["token"])


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
