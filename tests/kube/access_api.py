"""CAs of a cluster, and its API server's part for delegated authentication and authorization."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web

from kube.security.tls import CertificateFiles
from playground.certs import CertificateAuthority, KeyPair
from tests.kube.scripted import ScriptedServer

FRONT_PROXY = "front-proxy-client"


@dataclass
class Authorities:
    """The cluster's authorities, and an impostor that carries the front proxy's name."""

    serving: CertificateAuthority = field(default_factory=lambda: CertificateAuthority.create("serving-ca"))
    front_proxy: CertificateAuthority = field(default_factory=lambda: CertificateAuthority.create("front-proxy-ca"))
    clients: CertificateAuthority = field(default_factory=lambda: CertificateAuthority.create("kubernetes"))
    impostor: CertificateAuthority = field(default_factory=lambda: CertificateAuthority.create("front-proxy-ca"))

    def config_map(self) -> dict[str, str]:
        """The data of kube-system/extension-apiserver-authentication."""
        return {
            "client-ca-file": self.clients.cert_pem.decode(),
            "requestheader-client-ca-file": self.front_proxy.cert_pem.decode(),
            "requestheader-allowed-names": json.dumps([FRONT_PROXY]),
            "requestheader-username-headers": json.dumps(["X-Remote-User"]),
            "requestheader-group-headers": json.dumps(["X-Remote-Group"]),
            "requestheader-extra-headers-prefix": json.dumps(["X-Remote-Extra-"]),
        }


class AccessApi:
    """The API server's part for the adapter: token reviews, access reviews and one ConfigMap."""

    def __init__(self, authorities: Authorities) -> None:
        self.config_map: dict[str, str] | None = authorities.config_map()
        self.field_selectors: list[str] = []
        self.sent_events: list[str] = []
        self._version = 1
        self._changed = asyncio.Event()
        self.clear()

    def clear(self) -> None:
        """Begin anew, for another test; the ConfigMap stays."""
        self.tokens: dict[str, dict[str, Any]] = {}
        self.allowed: Callable[[dict[str, Any]], bool] = lambda spec: spec["user"] == "bob"
        self.reason = ""
        self.refuse_with: int | None = None
        self.hold: asyncio.Event | None = None
        self.reviews: list[dict[str, Any]] = []

    def publish(self, data: dict[str, str] | None) -> None:
        """Change the ConfigMap, or delete it, while it may be watched."""
        self.config_map = data
        self._version += 1
        self._changed.set()
        self._changed = asyncio.Event()

    def script(self, server: ScriptedServer) -> None:
        """Add these handlers to a server."""
        server.handlers |= {
            "/api/v1/namespaces/kube-system/configmaps": self._config_maps,
            "/apis/authentication.k8s.io/v1/tokenreviews": self._review,
            "/apis/authorization.k8s.io/v1/subjectaccessreviews": self._review,
        }

    async def _config_maps(self, request: web.Request) -> web.StreamResponse:
        """A collection of one or none, which can be listed and watched."""
        self.field_selectors.append(request.query.get("fieldSelector", ""))
        if self.refuse_with is not None:
            status = {"kind": "Status", "message": "scripted", "code": self.refuse_with}
            return web.json_response(status, status=self.refuse_with)
        if request.query.get("watch") != "true":
            items = [] if self.config_map is None else [self._published()]
            return web.json_response({"metadata": {"resourceVersion": str(self._version)}, "items": items})
        response = web.StreamResponse()
        await response.prepare(request)
        seen = int(request.query["resourceVersion"])
        while True:
            if seen == self._version:
                await self._changed.wait()
            seen = self._version
            kind = "DELETED" if self.config_map is None else "MODIFIED"
            await response.write(json.dumps({"type": kind, "object": self._published()}).encode() + b"\n")
            self.sent_events.append(kind)

    def _published(self) -> dict[str, Any]:
        name, version = "extension-apiserver-authentication", str(self._version)
        metadata = {"namespace": "kube-system", "name": name, "resourceVersion": version}
        return {"kind": "ConfigMap", "metadata": metadata, "data": self.config_map}

    async def _review(self, request: web.Request) -> web.StreamResponse:
        if self.hold is not None:
            await self.hold.wait()
        if self.refuse_with is not None:
            return web.json_response({"kind": "Status", "message": "scripted"}, status=self.refuse_with)
        review = await request.json()
        self.reviews.append(review)
        if review["kind"] == "TokenReview":
            user = self.tokens.get(review["spec"]["token"])
            return web.json_response(review | {"status": {"authenticated": user is not None, "user": user or {}}})
        allowed = self.allowed(review["spec"])
        return web.json_response(review | {"status": {"allowed": allowed, "reason": self.reason}})


def write_pair(directory: Path, pair: KeyPair, name: str = "serving") -> CertificateFiles:
    """Put a certificate and its key into files."""
    files = CertificateFiles(directory / f"{name}.crt", directory / f"{name}.key")
    files.cert.write_bytes(pair.cert_pem)
    files.key.write_bytes(pair.key_pem)
    return files
