"""Role-based access control, evaluated over the stored RBAC objects on every request.

Upstream: k8s.io/kubernetes/pkg/apis/rbac/v1/evaluation_helpers.go.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from kube.api.mapping import GroupResource
from kube.api.status import StatusError, forbidden
from kube.values.selectors import LabelSelector
from playground.apiserver.identity import MASTERS, User
from playground.apiserver.objects import Object, child, labels_of, name_of
from playground.apiserver.requests import RequestInfo
from playground.apiserver.storage import Storage

_GROUP: Final = "rbac.authorization.k8s.io"
_CLUSTER_ROLES: Final = GroupResource(_GROUP, "clusterroles")
_CLUSTER_ROLE_BINDINGS: Final = GroupResource(_GROUP, "clusterrolebindings")
_ROLES: Final = GroupResource(_GROUP, "roles")
_ROLE_BINDINGS: Final = GroupResource(_GROUP, "rolebindings")
_ALL: Final = "*"


@dataclass(frozen=True, slots=True)
class Access:
    """A verb on a resource, or on a path that is none."""

    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""

    @classmethod
    def of(cls, info: RequestInfo) -> Access:
        """Return the access that a request needs."""
        if not info.is_resource:
            return cls(info.verb, path=info.path)
        return cls(info.verb, info.group, info.resource, info.subresource, info.namespace, info.name)

    @property
    def full_resource(self) -> str:
        """As rules name it: "deployments/scale"."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource

    def refusal(self, user: User) -> StatusError:
        """Return the 403 of Kubernetes."""
        if not self.resource:
            return forbidden(f'forbidden: User "{user.name}" cannot {self.verb} path "{self.path}"')
        what = f"{GroupResource(self.group, self.resource)}{f' {chr(34)}{self.name}{chr(34)}' if self.name else ''}"
        where = f'in the namespace "{self.namespace}"' if self.namespace else "at the cluster scope"
        details = {"name": self.name, "group": self.group, "kind": self.resource}
        return forbidden(
            f'{what} is forbidden: User "{user.name}" cannot {self.verb} resource "{self.full_resource}" '
            f'in API group "{self.group}" {where}',
            details={key: value for key, value in details.items() if value},
        )


class PolicyRule(msgspec.Struct, frozen=True, rename="camel"):
    """One rule of a role."""

    verbs: list[str] | None = None
    api_groups: list[str] | None = None
    resources: list[str] | None = None
    resource_names: list[str] | None = None
    non_resource_urls: list[str] | None = msgspec.field(default=None, name="nonResourceURLs")

    def allows(self, access: Access) -> bool:
        """Return whether this rule alone allows it."""
        if not _covers(self.verbs, access.verb):
            return False
        if not access.resource:
            return any(_path_covers(pattern, access.path) for pattern in self.non_resource_urls or ())
        return (
            _covers(self.api_groups, access.group)
            and self._covers_resource(access)
            and (not self.resource_names or access.name in self.resource_names)
        )

    def _covers_resource(self, access: Access) -> bool:
        if _covers(self.resources, access.full_resource):
            return True
        return bool(access.subresource) and f"{_ALL}/{access.subresource}" in (self.resources or ())


class RbacAuthorizer:
    """Authorizes users by the stored roles and bindings."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def allowed(self, user: User, access: Access) -> bool:
        """Return whether a rule of the user allows it."""
        if MASTERS in user.groups:
            return True
        return any(rule.allows(access) for rule in self.rules(user, access.namespace))

    def rules(self, user: User, namespace: str) -> Iterator[PolicyRule]:
        """Yield the rules of a user in a namespace, or with "" those of the cluster."""
        for binding in self._storage.objects(_CLUSTER_ROLE_BINDINGS):
            if _binds(binding, user):
                yield from self._rules_of(binding, "")
        if namespace:
            for binding in self._storage.objects(_ROLE_BINDINGS, namespace):
                if _binds(binding, user):
                    yield from self._rules_of(binding, namespace)

    def _rules_of(self, binding: Object, namespace: str) -> list[PolicyRule]:
        reference = child(binding, "roleRef")
        name = str(reference.get("name"))
        if reference.get("kind") == "ClusterRole":
            role = self._storage.get(_CLUSTER_ROLES, "", name)
            return self._cluster_rules(role) if role else []
        role = self._storage.get(_ROLES, namespace, name)
        return _rules_in(role) if role else []

    def _cluster_rules(self, role: Object) -> list[PolicyRule]:
        """Return a cluster role's rules, with those that it aggregates; upstream a controller copies them."""
        terms = child(role, "aggregationRule").get("clusterRoleSelectors") or []
        selectors = [LabelSelector.from_object(term) for term in terms]
        if not selectors:
            return _rules_in(role)
        return [
            rule
            for part in self._storage.objects(_CLUSTER_ROLES)
            if name_of(part) != name_of(role) and any(selector.matches(labels_of(part)) for selector in selectors)
            for rule in self._cluster_rules(part)
        ]


def _rules_in(role: Object) -> list[PolicyRule]:
    return msgspec.convert(role.get("rules") or [], list[PolicyRule])


def _binds(binding: Object, user: User) -> bool:
    subjects: list[dict[str, Any]] = binding.get("subjects") or []
    return any(_is_subject(subject, user) for subject in subjects)


def _is_subject(subject: dict[str, Any], user: User) -> bool:
    match subject.get("kind"):
        case "User":
            return subject.get("name") == user.name
        case "Group":
            return subject.get("name") in user.groups
        case "ServiceAccount":
            return f"system:serviceaccount:{subject.get('namespace')}:{subject.get('name')}" == user.name
    return False


def _covers(patterns: Sequence[str] | None, value: str) -> bool:
    return patterns is not None and (_ALL in patterns or value in patterns)


def _path_covers(pattern: str, path: str) -> bool:
    if pattern in (_ALL, path):
        return True
    return pattern.endswith(_ALL) and path.startswith(pattern.rstrip(_ALL))
