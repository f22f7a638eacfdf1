"""Installing milliscale into the playground as into a cluster: from manifests/base, with the rights given there.

Only what would run in a pod is left out, because here the adapter and the autoscaler are processes beside the cluster.
Each acts as its service account, with a token of its own and nothing more, so a right that the manifests forget is
missing here too. The Service that the APIServices name leads to the adapter's port on loopback.
"""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml

from kube.mapping import RestMapper
from kube.status import StatusError
from playground.binaries import find_async

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kube.client import KubeClient

__all__ = ["InstallError", "apply", "read_objects", "render_manifests", "write_account_kubeconfig"]

Object = dict[str, Any]

_BASE: Final = Path(__file__).resolve().parent.parent / "manifests" / "base"
_RENDER_TIMEOUT: Final = 60.0
_TOKEN_SECONDS: Final = 7 * 24 * 3600
_CONFLICT: Final = 409


class InstallError(Exception):
    """The manifests cannot be rendered or applied; the message says why."""


async def render_manifests() -> list[Object]:
    """The objects of manifests/base, as `kubectl kustomize` renders them."""
    return list(yaml.safe_load_all(await asyncio.to_thread(_kustomize, await find_async("kubectl"))))


async def read_objects(path: Path) -> list[Object]:
    """The objects of a YAML file."""
    return list(yaml.safe_load_all(await asyncio.to_thread(path.read_text)))


async def apply(client: KubeClient, objects: Iterable[Object]) -> None:
    """Create the objects in this order; those that exist are changed by a merge patch.

    Raises:
        InstallError: the cluster has no such kind, or refuses an object.
    """
    mapper = RestMapper(client, refresh_seconds=0)
    for entry in objects:
        group, _, _ = entry["apiVersion"].rpartition("/")
        metadata = entry["metadata"]
        try:
            info = (await mapper.mappings_for_kind(group, entry["kind"]))[0]
            try:
                await client.post(info.path(metadata.get("namespace", "")), entry)
            except StatusError as error:
                if error.code != _CONFLICT:
                    raise
                await client.patch(info.path(metadata.get("namespace", ""), metadata["name"]), entry)
        except (LookupError, StatusError) as error:
            raise InstallError(f"cannot apply {entry['kind']} {metadata['name']}: {error}") from error


async def write_account_kubeconfig(
    client: KubeClient, path: Path, *, admin: Path, namespace: str, account: str
) -> None:
    """Write a kubeconfig that acts as a service account, for the cluster of the kubeconfig `admin`."""
    request = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": _TOKEN_SECONDS},
    }
    answer = await client.post(f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token", request)
    await asyncio.to_thread(_write_kubeconfig, path, admin, account, answer["status"]["token"])


def _write_kubeconfig(path: Path, admin: Path, user: str, token: str) -> None:
    cluster = yaml.safe_load(admin.read_text())["clusters"][0]
    path.touch(mode=0o600)
    path.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [cluster],
                "users": [{"name": user, "user": {"token": token}}],
                "contexts": [{"name": user, "context": {"cluster": cluster["name"], "user": user}}],
                "current-context": user,
            }
        )
    )


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
