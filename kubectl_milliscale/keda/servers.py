"""The Prometheus servers of triggers: each becomes an entry of prometheusServers in the adapter's rules file.

The secrets themselves are not read: the adapter reads them from files, for which a Secret is mounted into its pod.

Upstream: pkg/scalers/authentication of KEDA.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from adapter.prometheus import PrometheusOptions
from kubectl_milliscale.keda.manifests import Object, Trigger

_NOT_NAME = re.compile(r"[^a-z0-9-]+")
_SERVICE = re.compile(r"\.svc(\.cluster\.local)?\.?$")

# {key of the server: name of the file}, by mode.
_FILES = {
    "bearer": {"tokenFile": "token"},
    "basic": {"passwordFile": "password"},
    "tls": {"certFile": "tls.crt", "keyFile": "tls.key"},
}
_AZURE_SCOPES = {
    "AZUREUSGOVERNMENTCLOUD": "https://prometheus.monitor.azure.us/.default",
    "AZURECHINACLOUD": "https://prometheus.monitor.azure.cn/.default",
}


@dataclass(slots=True)
class Server:
    """The server of a trigger."""

    entry: dict[str, Any]
    """That of prometheusServers, without the keys of files."""
    files: dict[str, str] = field(default_factory=dict)
    """These keys, with the names of the files."""
    problems: list[str] = field(default_factory=list)
    """What is to be done by hand; <server> stands for the server's name."""


class Servers:
    """The servers that triggers need, each once.

    Args:
        default_url: the address of --prometheus-url; "" if it is not known.
        known: the servers of the rules file.
    """

    def __init__(self, *, default_url: str = "", known: Iterable[PrometheusOptions] = ()) -> None:
        self._default_url = _address(default_url)
        known = tuple(known)
        self._known = {(_address(one.url), one.headers): one.name for one in known}
        self._taken = {*self._known.values(), "default"}
        self.closed = frozenset(one.name for one in known if not one.tenants)
        """The known servers that MetricRules may not use yet."""
        self._names: dict[str, str] = {}
        self.entries: dict[str, dict[str, Any]] = {}
        """The servers to add to the rules file, by name."""

    def name_of(self, server: Server) -> str:
        """Return the name of a server, or "" for that of --prometheus-url.

        Raises:
            ValueError: the address is not that of a Prometheus.
        """
        entry, files = server.entry, server.files
        url = _address(entry["url"])
        headers = tuple(entry.get("headers", {}).items())
        if not entry.keys() - {"url", "headers"} and not files:
            if url == self._default_url and not headers:
                return ""
            if (url, headers) in self._known:
                return self._known[url, headers]
        key = json.dumps([{**entry, "url": url}, files], sort_keys=True)
        if key not in self._names:
            PrometheusOptions(url=entry["url"])
            self._names[key] = name = self._new_name(entry["url"])
            paths = {key: f"/etc/milliscale/{name}/{file}" for key, file in files.items()}
            self.entries[name] = {**entry, **paths, "tenants": True}
        return self._names[key]

    def _new_name(self, url: str) -> str:
        """Return the host's first label, or the host, or the host with a number."""
        host = _SERVICE.sub("", urlsplit(url).hostname or "")
        first, whole = host.partition(".")[0], _NOT_NAME.sub("-", host)
        numbered = (f"{whole}-{number}" for number in itertools.count(2))
        candidates = itertools.chain([whole if first.isdigit() else _NOT_NAME.sub("-", first), whole], numbered)
        name = next(one for one in candidates if one not in self._taken)
        self._taken.add(name)
        return name


def _address(url: str) -> str:
    """Return an address in the form in which addresses of the same Service are equal."""
    parts = urlsplit(url.strip().rstrip("/"))
    host = _SERVICE.sub("", parts.hostname or "")
    default_port = {"http": 80, "https": 443}.get(parts.scheme, 0)
    return f"{parts.scheme}://{host}:{parts.port or default_port}{parts.path}"


def authenticate(server: Server, trigger: Trigger, metadata: Mapping[str, str], spec: Object | None) -> None:
    """Let a server authenticate as a trigger of type prometheus does; `spec` is that of its TriggerAuthentication."""
    reference = trigger.authentication_ref
    identity = _pod_identity(spec, metadata)
    if identity is not None:
        server.entry["auth"] = identity
        server.problems.append("give the adapter's own service account the right to query the server <server>")
    modes = (metadata.get("authModes") or metadata.get("authMode") or "").split(",")
    for mode in filter(None, map(str.strip, modes)):
        server.files |= _FILES.get(mode, {})
        if mode == "basic":
            server.entry["username"] = "USERNAME"
            server.problems.append("write the name of the user as username of the server <server>")
        elif mode == "oauth":
            keys = "tokenUrl, clientId and clientSecretFile"
            server.problems.append(f"authModes oauth: write {keys} as auth.oauth2 of the server <server>")
        elif mode not in _FILES:
            server.problems.append(f"authModes {mode}: write its header or its parameter into the server <server>")
    if "ca" in _parameters(spec):
        server.files["caFile"] = "ca.crt"
        server.entry.pop("insecureSkipVerify", None)
    if server.files:
        origin = ", ".join(_secrets(spec)) or (f"{reference.kind} {reference.name}" if reference else "")
        names = ", ".join(server.files.values())
        server.problems.append(
            f"mount a Secret with {names} at /etc/milliscale/<server> into the adapter's pod"
            + (f" (from {origin})" if origin else "")
        )
    elif reference is not None and spec is None and identity is None and "username" not in server.entry:
        server.problems.append(
            f"add the credentials of {reference.kind} {reference.name} to the server <server>, or give its"
            " manifest to this command, too"
        )


def _parameters(spec: Object | None) -> dict[str, Mapping[str, Any]]:
    """Return the references to Secrets of a TriggerAuthentication, by parameter."""
    references = spec.get("secretTargetRef") if spec is not None else None
    if not isinstance(references, list):
        return {}
    return {str(one.get("parameter")): one for one in references if isinstance(one, dict)}


def _secrets(spec: Object | None) -> Iterator[str]:
    for parameter, reference in _parameters(spec).items():
        yield f"{parameter}: key {reference.get('key')} of Secret {reference.get('name')}"


def _pod_identity(spec: Object | None, metadata: Mapping[str, str]) -> dict[str, Any] | None:
    """Return `auth` of the server for the identity of a cloud; None without one."""
    identity = spec.get("podIdentity") if spec is not None else None
    if region := metadata.get("awsRegion"):
        role = identity.get("roleArn") if isinstance(identity, dict) else None
        return {"sigv4": {"region": region, **({"roleArn": role} if isinstance(role, str) else {})}}
    match identity:
        case {"provider": "azure-workload", **others}:
            client, scope = others.get("identityId"), _azure_scope(metadata)
            keys = {**({"clientId": client} if client else {}), **({"scope": scope} if scope else {})}
            return {"azure": keys}
        case {"provider": "gcp"}:
            return {"google": {}}
    return None


def _azure_scope(metadata: Mapping[str, str]) -> str:
    """Return the scope of a cloud that is not the public one; "" for that. Upstream: ParseEnvironmentProperty."""
    cloud = metadata.get("cloud", "").upper()
    return metadata.get("azureManagedPrometheusResourceURL", "") if cloud == "PRIVATE" else _AZURE_SCOPES.get(cloud, "")
