"""HPAs of a cluster, with the resource requests of their targets' pods."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from autoscaler.core.model import HPA_APIS, KIND, HPAApi
from kube.api.client import KubeClient, KubeConfigError, KubeError
from kube.api.config import default_kubeconfig
from kube.api.listing import list_objects
from kube.api.status import StatusError
from kube.process.runtime import run
from replay.hpa_files import HPAFile, parse_hpa_document
from replay.load import ReplayError

_PLURALS: Final = {"Deployment": "deployments", "StatefulSet": "statefulsets"}
_NOT_FOUND: Final = 404


class NoClusterError(ReplayError):
    """No kubeconfig can be used."""


@contextlib.asynccontextmanager
async def connected(kubeconfig: Path | None, context: str | None) -> AsyncIterator[KubeClient]:
    """Connect to a cluster.

    Raises:
        NoClusterError: the kubeconfig cannot be used.
    """
    path = kubeconfig or default_kubeconfig()
    try:
        client = await KubeClient.connect(path, context=context, user_agent="milliscale-replay")
    except KubeConfigError as error:
        raise NoClusterError(str(error)) from error
    async with client:
        yield client


def read_cluster_hpa(
    namespace: str, name: str, *, kubeconfig: Path | None, context: str | None, scale_to_zero: bool
) -> HPAFile:
    """Return an HPA of a cluster; without a namespace, of that of the kubeconfig's context.

    Raises:
        ReplayError: there is no such HPA, it cannot be read, or it is not valid.
    """

    async def read() -> HPAFile:
        async with connected(kubeconfig, context) as client:
            of_hpa = namespace or client.namespace
            hpa = await _hpa(client, of_hpa, name)
            workload = await _workload(client, of_hpa, hpa.get("spec", {}).get("scaleTargetRef", {}))
            return parse_hpa_document(hpa, f"{of_hpa}/{name}", workload, scale_to_zero=scale_to_zero)

    return run(read())


def read_cluster_hpas(
    namespace: str, *, kubeconfig: Path | None, context: str | None, scale_to_zero: bool
) -> list[HPAFile | tuple[str, str, str]]:
    """Return the HPAs of a namespace, or of all with "", without requests; of an invalid one (namespace, name, why).

    Raises:
        ReplayError: they cannot be listed.
    """

    async def read() -> list[dict[str, Any]]:
        async with connected(kubeconfig, context) as client:
            return [each for api in HPA_APIS for each in await _list(client, api, namespace)]

    def parsed(document: dict[str, Any]) -> HPAFile | tuple[str, str, str]:
        metadata = document.get("metadata") or {}
        place, name = str(metadata.get("namespace", "")), str(metadata.get("name", ""))
        try:
            return parse_hpa_document(document, place, scale_to_zero=scale_to_zero)
        except ReplayError as error:
            return place, name, str(error).removeprefix(f"{place}: {name}: ")

    return list(map(parsed, run(read())))


async def _list(client: KubeClient, api: HPAApi, namespace: str) -> list[dict[str, Any]]:
    path = api.path(namespace) if namespace else api.collection
    try:
        found = await list_objects(client, path, lambda item: item if isinstance(item, dict) else None)
    except StatusError as error:
        if error.code == _NOT_FOUND and not api.built_in:
            return []
        raise ReplayError(
            f"HPAs cannot be listed: {client.describe(error)}; give --kubeconfig of a user who may list them"
        ) from error
    except KubeError as error:
        raise ReplayError(f"HPAs cannot be listed: {error}; check --kubeconfig and --context") from error
    return [{**item, "apiVersion": api.api_version, "kind": KIND} for item in found.items]


async def _hpa(client: KubeClient, namespace: str, name: str) -> dict[str, Any]:
    refused = ""
    for api in HPA_APIS:
        try:
            return {**await client.get(api.path(namespace, name)), "apiVersion": api.api_version}
        except StatusError as error:
            if error.code != _NOT_FOUND:
                refused = refused or client.describe(error)
        except KubeError as error:
            raise ReplayError(f"HPA {namespace}/{name}: {error}; check --kubeconfig and --context") from error
    raise ReplayError(
        f"HPA {namespace}/{name} cannot be read: {refused}; give --kubeconfig of a user who may read it"
        if refused
        else f"there is no HorizontalPodAutoscaler {namespace}/{name} in the cluster; give another --hpa"
    )


async def _workload(client: KubeClient, namespace: str, target: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the scale target; nothing if it cannot be read, since only metrics on utilization need it."""
    kind, name = str(target.get("kind")), str(target.get("name"))
    if kind not in _PLURALS:
        return []
    path = f"/apis/apps/v1/namespaces/{quote(namespace, safe='')}/{_PLURALS[kind]}/{quote(name, safe='')}"
    with contextlib.suppress(StatusError, KubeError):
        return [{**await client.get(path), "kind": kind}]
    return []
