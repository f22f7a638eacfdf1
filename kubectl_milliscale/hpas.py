"""Read HPAs of both APIs with kubectl, once or as a watch keeps them."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from autoscaler.core.model import HPA, HPA_APIS, HPAApi, HPAKey
from autoscaler.objects.hpa import track_hpa
from kubectl_milliscale.kubectl import Kubectl, KubectlError, Watch

_RETRY_SECONDS: Final = 2.0
_STOP_SECONDS: Final = 5.0


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

    def path(self, api: HPAApi) -> str:
        """Return the path of the list."""
        return api.path(self.namespace) if self.namespace else api.collection

    @property
    def query(self) -> dict[str, str]:
        """The parameters of the list and of the watch."""
        return {"labelSelector": self.selector} if self.selector else {}

    def parse(self, raw: Mapping[str, Any], api: HPAApi) -> HPA | None:
        """Return the HPA; None if it is not wanted, or is not an HPA at all."""
        hpa = track_hpa(raw, api=api)
        return hpa if hpa is not None and (not self.names or hpa.name in self.names) else None


def list_hpas(kubectl: Kubectl, wanted: Selection) -> list[HPA]:
    """Return the HPAs of all APIs that the API server has, sorted. Raises KubectlError."""
    return _sorted(hpa for api in HPA_APIS for hpa in _list(kubectl, wanted, api)[0])


def _list(kubectl: Kubectl, wanted: Selection, api: HPAApi) -> tuple[list[HPA], str | None]:
    """Return the HPAs of an API and the resource version of the list; None if the API server does not have the API."""
    try:
        page = kubectl.get(wanted.path(api), wanted.query)
    except KubectlError as error:
        if error.is_not_found and not api.built_in:
            return [], None
        raise
    found = [hpa for raw in page.get("items") or () if (hpa := wanted.parse(raw, api)) is not None]
    return found, page["metadata"]["resourceVersion"]


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


class WatchedHPAs:
    """The HPAs of all APIs, kept current by a watch of each API in a thread of its own, until `close`.

    `found` are the HPAs of the present, until the watches have begun.
    """

    def __init__(self, kubectl: Kubectl, wanted: Selection, found: Iterable[HPA]) -> None:
        self._kubectl = kubectl
        self._wanted = wanted
        self._hpas: dict[HPAApi, dict[HPAKey, HPA]] = {api: {} for api in HPA_APIS}
        for hpa in found:
            api = next(api for api in HPA_APIS if api.group == hpa.key.group)
            self._hpas[api][hpa.key] = hpa
        self._problems: dict[HPAApi, str] = {}
        self._watches: dict[HPAApi, Watch] = {}
        self._stopped = threading.Event()
        self._threads = [threading.Thread(target=self._follow, args=(api,), daemon=True) for api in HPA_APIS]
        for thread in self._threads:
            thread.start()

    @property
    def problem(self) -> str:
        """Why the HPAs may be outdated; "" if they are current."""
        return next(iter(self._problems.values()), "")

    def sorted(self) -> list[HPA]:
        """Return the HPAs by namespace and name."""
        return _sorted(hpa for api in HPA_APIS for hpa in list(self._hpas[api].values()))

    def close(self) -> None:
        """End the watches."""
        self._stopped.set()
        for watch in list(self._watches.values()):
            watch.stop()
        for thread in self._threads:
            thread.join(_STOP_SECONDS)

    def _follow(self, api: HPAApi) -> None:
        while not self._stopped.is_set():
            try:
                found, version = _list(self._kubectl, self._wanted, api)
                if version is None:
                    return
                self._hpas[api] = {hpa.key: hpa for hpa in found}
                self._problems.pop(api, None)
                self._watch(api, version)
            except KubectlError as error:
                self._problems[api] = error.message
            self._stopped.wait(_RETRY_SECONDS)

    def _watch(self, api: HPAApi, version: str) -> None:
        """Apply the events of a watch until it ends."""
        query = {**self._wanted.query, "resourceVersion": version}
        with self._kubectl.watch(self._wanted.path(api), query) as watch:
            self._watches[api] = watch
            if self._stopped.is_set():  # `close` may not have seen this watch
                return
            for event in watch.events():
                if event["type"] == "ERROR":  # such as an expired resource version
                    return
                hpa = self._wanted.parse(event["object"], api)
                if hpa is not None and event["type"] == "DELETED":
                    self._hpas[api].pop(hpa.key, None)
                elif hpa is not None:
                    self._hpas[api][hpa.key] = hpa


def _sorted(hpas: Iterable[HPA]) -> list[HPA]:
    return sorted(hpas, key=lambda hpa: (hpa.namespace, hpa.name, hpa.api_version))
