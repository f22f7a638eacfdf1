"""The rights of service accounts in a cluster, and the requests for which the API server checked them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from kube.api.client import KubeClient
from playground.apiserver.rbac import Access, PolicyRule
from playground.install import Account
from tests.eventually import eventually

Object = dict[str, Any]

RBAC: Final = "/apis/rbac.authorization.k8s.io/v1"
_OURS: Final = "app.kubernetes.io/name"
_FORBIDDEN: Final = 403


@dataclass(frozen=True, slots=True)
class Right:
    """What a binding allows: one verb on one resource; of a role that every cluster has, all of it."""

    binding: str
    """Its path."""
    role: str
    """Its path."""
    namespace: str
    """Where it applies; empty: in the cluster."""
    rules: tuple[PolicyRule, ...]
    """One of one verb and one resource, or all rules of a role that is not ours."""
    is_ours: bool

    def allows(self, access: Access) -> bool:
        """Return True if this right alone allows the access."""
        return self.namespace in ("", access.namespace) and any(rule.allows(access) for rule in self.rules)

    def example(self) -> Access:
        """Return an access that it allows."""
        rule = self.rules[0]
        group, resource = (rule.api_groups or [""])[0], (rule.resources or [""])[0]
        resource, _, subresource = resource.partition("/")
        name = (rule.resource_names or [""])[0]
        return Access(
            (rule.verbs or ["get"])[0],
            group="apps" if group == "*" else group,
            resource="deployments" if resource == "*" else resource,
            subresource=subresource,
            namespace=self.namespace,
            name=name,
        )

    def __str__(self) -> str:
        name = self.role.rpartition("/")[2]
        if not self.is_ours:
            return name
        (rule,) = self.rules
        groups, names = rule.api_groups or [], rule.resource_names or []
        return f"{name}: {rule.verbs} {groups}{rule.resources or rule.non_resource_urls}{names}"


@dataclass(frozen=True, slots=True)
class Request:
    """A request in the audit log."""

    user: str
    access: Access
    status: int


def summary(access: Access) -> str:
    """Return an access as text: "list pods.metrics.k8s.io", "update */scale", "create leases in milliscale"."""
    resource = f"*/{access.subresource}" if access.subresource == "scale" else access.full_resource
    if access.group in ("custom.metrics.k8s.io", "external.metrics.k8s.io"):
        resource = "*"  # names of metrics
    group = f".{access.group}" if access.group and access.subresource != "scale" else ""
    place = f" in {access.namespace}" if access.namespace in ("kube-system", "milliscale") else ""
    return f"{access.verb} {resource}{group}{place}"


def username(account: Account) -> str:
    """Return the name of a service account as a user."""
    return f"system:serviceaccount:{account.namespace}:{account.name}"


async def rights_of(client: KubeClient, account: Account) -> list[Right]:
    """Return the rights that bindings to a service account give it now."""
    subject = {"kind": "ServiceAccount", "name": account.name, "namespace": account.namespace}
    found = []
    for plural in ("clusterrolebindings", "rolebindings"):
        for binding in (await client.get(f"{RBAC}/{plural}"))["items"]:
            if subject in (binding.get("subjects") or []):
                found += [right async for right in _rights(client, plural, binding)]
    return found


async def _rights(client: KubeClient, plural: str, binding: Object) -> Any:
    metadata, reference = binding["metadata"], binding["roleRef"]
    namespace = metadata.get("namespace", "")
    place = f"{RBAC}/namespaces/{namespace}" if namespace else RBAC
    kind = "clusterroles" if reference["kind"] == "ClusterRole" else "roles"
    role = f"{RBAC if kind == 'clusterroles' else place}/{kind}/{reference['name']}"
    read = await client.get(role)
    rules = msgspec.convert(read["rules"], list[PolicyRule])
    whole = Right(f"{place}/{plural}/{metadata['name']}", role, namespace, tuple(rules), is_ours=False)
    if _OURS not in (read["metadata"].get("labels") or {}):
        yield whole
        return
    for rule in rules:
        for single in _single(rule):
            yield replace(whole, rules=(single,), is_ours=True)


def _single(rule: PolicyRule) -> Iterator[PolicyRule]:
    """Split a rule into rules of one verb, one resource and at most one name.

    Rules about paths are left out: the paths are the adapter's, which reviews them, and no request in the audit log.
    """
    for verb in rule.verbs or ():
        for group in rule.api_groups or ():
            for resource in rule.resources or ():
                for name in rule.resource_names or [""]:
                    names = [name] if name else None
                    yield PolicyRule(verbs=[verb], api_groups=[group], resources=[resource], resource_names=names)


def needed_for(right: Right, rights: Sequence[Right], requests: Sequence[Request]) -> list[Request]:
    """Return the requests that no other right allows."""
    others = [other for other in rights if other != right]
    return [
        request
        for request in requests
        if right.allows(request.access) and not any(other.allows(request.access) for other in others)
    ]


class AuditLog:
    """The audit log of an API server; read from the point of the last `mark`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._start = 0

    def mark(self) -> None:
        """Forget what was requested until now."""
        self._start = self._path.stat().st_size if self._path.exists() else 0

    def requests(self, account: Account) -> list[Request]:
        """Return the requests of a service account for resources and other paths since `mark`."""
        with self._path.open("rb") as file:
            file.seek(self._start)
            lines = file.read().split(b"\n")[:-1]
        events = [json.loads(line) for line in lines if username(account).encode() in line]
        return list(dict.fromkeys(_request(event) for event in events if _counts(event, username(account))))

    def refused(self, account: Account) -> list[Access]:
        """Return what was forbidden to a service account since `mark`."""
        return [request.access for request in self.requests(account) if request.status == _FORBIDDEN]


def _counts(event: Mapping[str, Any], user: str) -> bool:
    """Return True for a request of the user; not for the end of a watch, which an earlier process may have started."""
    is_end = event["verb"] == "watch" and event["stage"] == "ResponseComplete"
    return event["user"]["username"] == user and (not is_end or event["responseStatus"]["code"] == _FORBIDDEN)


def _request(event: Mapping[str, Any]) -> Request:
    reference = event.get("objectRef") or {}
    access = Access(
        verb=event["verb"],
        group=reference.get("apiGroup", ""),
        resource=reference.get("resource", ""),
        subresource=reference.get("subresource", ""),
        namespace=reference.get("namespace", ""),
        # The log has the name in the body of a create request, which the authorizer does not see.
        name="" if event["verb"] == "create" else reference.get("name", ""),
        path="" if reference else event["requestURI"].partition("?")[0],
    )
    return Request(event["user"]["username"], access, (event.get("responseStatus") or {}).get("code", 0))


async def is_allowed(client: KubeClient, account: Account, access: Access) -> bool:
    """Return what the API server's authorizer says now, by a SubjectAccessReview."""
    spec: Object = {
        "user": username(account),
        "groups": ["system:serviceaccounts", f"system:serviceaccounts:{account.namespace}", "system:authenticated"],
    }
    if access.path:
        spec["nonResourceAttributes"] = {"verb": access.verb, "path": access.path}
    else:
        spec["resourceAttributes"] = {
            name: getattr(access, name) for name in ("verb", "group", "resource", "subresource", "namespace", "name")
        }
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
    response = await client.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
    return bool(response["status"]["allowed"])


@asynccontextmanager
async def without(client: KubeClient, right: Right) -> AsyncIterator[None]:
    """Remove a right from its role, or the binding to a role that is not ours; bring it back at the end."""
    if right.is_ours:
        rules = (await client.get(right.role))["rules"]
        singles = [single for rule in msgspec.convert(rules, list[PolicyRule]) for single in _single(rule)]
        await _set_rules(client, right.role, [single for single in singles if single not in right.rules])
        yield
        await client.patch(right.role, {"rules": rules})
    else:
        binding = await client.get(right.binding)
        await client.delete(right.binding)
        yield
        await _create(client, right.binding, binding)


async def _set_rules(client: KubeClient, role: str, rules: Iterable[PolicyRule]) -> None:
    fields = [msgspec.to_builtins(rule).items() for rule in rules]
    await client.patch(role, {"rules": [{key: value for key, value in rule if value is not None} for rule in fields]})


async def _create(client: KubeClient, path: str, deleted: Object) -> None:
    names = {key: text for key, text in deleted["metadata"].items() if key in ("name", "namespace", "labels")}
    await client.post(path.rpartition("/")[0], {**deleted, "metadata": names})


class GradualRights:
    """Takes all rights from an account, and gives each back once the API server has refused a request for it."""

    def __init__(self, client: KubeClient, account: Account, audit: AuditLog) -> None:
        self._client = client
        self._account = account
        self._audit = audit
        self._bindings: dict[str, Object] = {}
        self._granted: list[Right] = []
        self.missing: list[Right] = []

    async def revoke(self) -> None:
        """Remove all rights, and wait until the API server's authorizer knows it."""
        self.missing = await rights_of(self._client, self._account)
        for right in self.missing:
            if right.is_ours:
                await self._client.patch(right.role, {"rules": []})
            else:
                self._bindings[right.binding] = await self._client.get(right.binding)
                await self._client.delete(right.binding)
        for right in self.missing:
            await eventually(partial(self._is_revoked, right), every=0.02)
        self._audit.mark()

    async def _is_revoked(self, right: Right) -> bool:
        return not await is_allowed(self._client, self._account, right.example())

    async def give_back(self) -> None:
        """Grant the missing rights for which there was a request."""
        refused = self._audit.refused(self._account)
        for right in [right for right in self.missing if any(right.allows(access) for access in refused)]:
            self.missing.remove(right)
            self._granted.append(right)
            if right.is_ours:
                rules = [each.rules[0] for each in self._granted if each.role == right.role]
                await _set_rules(self._client, right.role, rules)
            else:
                await _create(self._client, right.binding, self._bindings[right.binding])

    def unexpected(self) -> list[Access]:
        """Return what was refused although no right was missing for it."""
        return [
            access
            for access in self._audit.refused(self._account)
            if not any(right.allows(access) for right in (*self.missing, *self._granted))
        ]
