"""The objects of a new cluster: namespaces, default RBAC, local APIServices, and extension-apiserver-authentication."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Final

import msgspec
import yaml

from playground.apiserver.discovery import local_api_services
from playground.apiserver.objects import Object

FRONT_PROXY_NAME: Final = "front-proxy-client"
"""The common name of the front proxy's client certificate."""

_OBJECTS: Final = Path(__file__).with_name("bootstrap.yaml")


def bootstrap_objects(*, client_ca: bytes, requestheader_ca: bytes) -> list[Object]:
    """Return the objects in an order in which they can be created; the CAs are PEM."""
    objects: list[Object] = msgspec.json.decode(_objects())
    return [*objects, _authentication_config(client_ca, requestheader_ca), *local_api_services()]


@cache
def _objects() -> bytes:
    """Return the objects of the file as JSON, which is read a hundred times as quickly: tests start many servers."""
    with _OBJECTS.open("rb") as file:
        return msgspec.json.encode(list(yaml.safe_load_all(file)))


def _authentication_config(client_ca: bytes, requestheader_ca: bytes) -> Object:
    def text(*names: str) -> str:
        return msgspec.json.encode(list(names)).decode()

    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "extension-apiserver-authentication", "namespace": "kube-system"},
        "data": {
            "client-ca-file": client_ca.decode(),
            "requestheader-allowed-names": text(FRONT_PROXY_NAME),
            "requestheader-client-ca-file": requestheader_ca.decode(),
            "requestheader-extra-headers-prefix": text("X-Remote-Extra-"),
            "requestheader-group-headers": text("X-Remote-Group"),
            "requestheader-uid-headers": text("X-Remote-Uid"),
            "requestheader-username-headers": text("X-Remote-User"),
        },
    }
