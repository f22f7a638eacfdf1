"""Read HPAs of both APIs with kubectl."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

import click

from autoscaler.core.model import HPA, HPA_APIS
from autoscaler.objects.hpa import track_hpa
from kubectl_milliscale.kubectl import Kubectl, KubectlError


def split_names(kubectl: Kubectl, names: Iterable[str]) -> tuple[Kubectl, list[str]]:
    """Return the names of HPAs that are given as NAME or NAMESPACE/NAME, and kubectl with their namespace.

    Raises:
        click.UsageError: they are of several namespaces.
    """
    pairs = [name.rpartition("/") for name in names]
    namespaces = {namespace for namespace, _, _ in pairs if namespace}
    if kubectl.given_namespace and namespaces:
        namespaces.add(kubectl.given_namespace)
    if len(namespaces) > 1 or (namespaces and not all(slash or kubectl.given_namespace for _, slash, _ in pairs)):
        raise click.UsageError("name HPAs of one namespace")
    if namespaces:
        kubectl = replace(kubectl, given_namespace=namespaces.pop())
    return kubectl, [name for _, _, name in pairs]


def named_hpa(kubectl: Kubectl, name: str) -> tuple[Kubectl, str, str]:
    """Return kubectl with the namespace of an HPA, that namespace, and the name without it.

    Raises:
        KubectlError: there is no such HPA, or it cannot be read.
    """
    kubectl, (name,) = split_names(kubectl, [name])
    namespace = kubectl.namespace()
    for api in HPA_APIS:
        try:
            kubectl.get(api.path(namespace, name))
        except KubectlError as error:
            if not error.is_not_found:
                raise
        else:
            return kubectl, namespace, name
    raise not_found(namespace, name)


def not_found(namespace: str, name: str) -> KubectlError:
    """Return the error about an HPA that does not exist, in the words of kubectl."""
    missing = f'horizontalpodautoscalers.autoscaling "{name}" not found in namespace {namespace}'
    return KubectlError(f"Error from server (NotFound): {missing}")


def list_hpas(kubectl: Kubectl, namespace: str, *, selector: str, names: Collection[str]) -> list[HPA]:
    """Return the HPAs of all APIs that the API server has, sorted.

    Args:
        kubectl: reads them.
        namespace: of the HPAs; "" for all.
        selector: a label selector; "" for all.
        names: of the HPAs; none for all.

    Raises:
        KubectlError: they cannot be read.
    """
    found = []
    for api in HPA_APIS:
        path = api.path(namespace) if namespace else api.collection
        try:
            page = kubectl.get(path, {"labelSelector": selector} if selector else {})
        except KubectlError as error:
            if error.is_not_found and not api.built_in:
                continue
            raise
        hpas = (track_hpa(raw, api=api) for raw in page.get("items") or ())
        found += [hpa for hpa in hpas if hpa is not None and (not names or hpa.name in names)]
    return sorted(found, key=lambda hpa: (hpa.namespace, hpa.name, hpa.api_version))
