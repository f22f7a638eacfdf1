"""Read HPAs of both APIs with kubectl."""

from __future__ import annotations

from dataclasses import dataclass

from autoscaler.core.model import HPA, HPA_APIS, HPAApi
from autoscaler.objects.hpa import track_hpa
from kubectl_milliscale.kubectl import Kubectl, KubectlError


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which HPAs are wanted.

    Attributes:
        namespace: of the HPAs; "" for all.
        selector: a label selector; "" for all.
        names: of the HPAs; none for all.
    """

    namespace: str
    selector: str = ""
    names: frozenset[str] = frozenset()


def list_hpas(kubectl: Kubectl, wanted: Selection) -> list[HPA]:
    """Return the HPAs of all APIs that the API server has, sorted. Raises KubectlError."""
    found = []
    for api in HPA_APIS:
        path = api.path(wanted.namespace) if wanted.namespace else api.collection
        try:
            page = kubectl.get(path, {"labelSelector": wanted.selector} if wanted.selector else {})
        except KubectlError as error:
            if error.is_not_found and not api.built_in:
                continue
            raise
        hpas = (track_hpa(raw, api=api) for raw in page.get("items") or ())
        found += [hpa for hpa in hpas if hpa is not None and (not wanted.names or hpa.name in wanted.names)]
    return sorted(found, key=lambda hpa: (hpa.namespace, hpa.name, hpa.api_version))


def find_apis(kubectl: Kubectl, namespace: str, name: str) -> list[HPAApi]:
    """Return the APIs that have an HPA of this name; one or two.

    Raises:
        KubectlError: none has, or they cannot be read.
    """
    found: list[HPAApi] = []
    missing: KubectlError | None = None
    for api in HPA_APIS:
        try:
            kubectl.get(api.path(namespace, name))
        except KubectlError as error:
            if not error.is_not_found:
                raise
            missing = missing or error
        else:
            found.append(api)
    if not found and missing is not None:
        raise missing
    return found
