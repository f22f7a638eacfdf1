"""How a trigger of KEDA authenticates at Prometheus, as keys of a server in the adapter's rules file.

The secrets themselves are not read: the adapter reads them from files, for which a Secret is mounted into its pod.
Upstream: pkg/scalers/authentication of KEDA.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from kubectl_milliscale.keda.manifests import Object, Trigger

# {key of the server: name of the file}, by mode.
_FILES = {
    "bearer": {"tokenFile": "token"},
    "basic": {"passwordFile": "password"},
    "tls": {"certFile": "tls.crt", "keyFile": "tls.key"},
}
_CA_FILE = {"caFile": "ca.crt"}
_AZURE_SCOPES = {
    "AZUREUSGOVERNMENTCLOUD": "https://prometheus.monitor.azure.us/.default",
    "AZURECHINACLOUD": "https://prometheus.monitor.azure.cn/.default",
}


@dataclass(slots=True)
class Found:
    """Keys of a server, its files ({key: name of the file}), and what is to be done by hand."""

    keys: dict[str, Any] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def authentication(trigger: Trigger, metadata: Mapping[str, str], spec: Object | None) -> Found:
    """Return how a trigger of type prometheus authenticates; `spec` is that of its TriggerAuthentication."""
    found = Found()
    modes = [mode.strip() for mode in (metadata.get("authModes") or metadata.get("authMode") or "").split(",")]
    if identity := _pod_identity(spec, metadata):
        found.keys["auth"] = identity
        found.problems.append("give the adapter's own service account the right to query the server <server>")
    for mode in filter(None, modes):
        _add_mode(mode, found)
    if "ca" in _parameters(spec):
        found.files |= _CA_FILE
    reference = trigger.authentication_ref
    if found.files:
        origin = ", ".join(_secrets(spec)) or (f"{reference.kind} {reference.name}" if reference else "")
        names = ", ".join(found.files.values())
        found.problems.append(
            f"mount a Secret with {names} at /etc/milliscale/<server> into the adapter's pod"
            + (f" (from {origin})" if origin else "")
        )
    elif reference is not None and spec is None and not found.keys:
        found.problems.append(
            f"add the credentials of {reference.kind} {reference.name} to the server <server>, or give its"
            " manifest to this command, too"
        )
    return found


def _add_mode(mode: str, found: Found) -> None:
    if mode in _FILES:
        found.files |= _FILES[mode]
    if mode == "basic":
        found.keys["username"] = "USERNAME"
        found.problems.append("write the name of the user as username of the server <server>")
    elif mode == "oauth":
        keys = "tokenUrl, clientId and clientSecretFile"
        found.problems.append(f"authModes oauth: write {keys} as auth.oauth2 of the server <server>")
    elif mode not in _FILES:
        found.problems.append(f"authModes {mode}: write its header or its parameter into the server <server>")


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
