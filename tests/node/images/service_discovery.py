"""Pods and nodes for http_sd_configs, with the labels of kubernetes_sd_configs, which Debian's Prometheus has not."""

from __future__ import annotations

import json
import os
import re
import signal
import ssl
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
TLS = ssl.create_default_context(cafile=ACCOUNT / "ca.crt")

Target = dict[str, Any]


def listed(path: str) -> list[dict[str, Any]]:
    authorization = {"Authorization": f"Bearer {(ACCOUNT / 'token').read_text()}"}
    request = urllib.request.Request(f"https://kubernetes.default.svc{path}", headers=authorization)
    with urllib.request.urlopen(request, context=TLS, timeout=5) as response:
        items: list[dict[str, Any]] = json.load(response)["items"]
    return items


def meta(kind: str, entry: dict[str, Any]) -> dict[str, str]:
    prefix = f"__meta_kubernetes_{kind}"
    found = {f"{prefix}_name": entry["metadata"]["name"]}
    for what in ("label", "annotation"):
        for name, value in entry["metadata"].get(f"{what}s", {}).items():
            found[f"{prefix}_{what}_{re.sub('[^a-zA-Z0-9_]', '_', name)}"] = value
    return found


def pods() -> Iterator[Target]:
    for pod in listed("/api/v1/pods"):
        address = pod["status"].get("podIP")
        if address is None or pod["status"]["phase"] != "Running":
            continue
        labels = {**meta("pod", pod), "__meta_kubernetes_namespace": pod["metadata"]["namespace"]}
        for container in pod["spec"]["containers"]:
            for port in container.get("ports", ()):
                name = {"__meta_kubernetes_pod_container_port_name": port["name"]}
                yield {"targets": [f"{address}:{port['containerPort']}"], "labels": {**labels, **name}}


def nodes() -> Iterator[Target]:
    for node in listed("/api/v1/nodes"):
        addresses = {entry["type"]: entry["address"] for entry in node["status"]["addresses"]}
        yield {"targets": [f"{addresses['InternalIP']}:10250"], "labels": meta("node", node)}


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = json.dumps(list(nodes() if self.path == "/nodes" else pods())).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
ThreadingHTTPServer(("127.0.0.1", 9999), Handler).serve_forever()
