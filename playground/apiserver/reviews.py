"""Reviews: questions to the API server about identities and permissions, answered and not stored.

They answer from the same authenticator and authorizer that guard every request.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any, Final

import msgspec

from kube.mapping import GroupResource
from kube.status import StatusError, bad_request
from playground.apiserver.errors import no_such_object
from playground.apiserver.identity import ISSUER, TokenIssuer, User
from playground.apiserver.objects import Object, child, text_time
from playground.apiserver.rbac import Access, PolicyRule, RbacAuthorizer
from playground.apiserver.resource_types import ResourceType
from playground.apiserver.storage import Storage

_SERVICE_ACCOUNTS: Final = GroupResource("", "serviceaccounts")
_TOKEN_SECONDS: Final = 3600
_MIN_TOKEN_SECONDS: Final = 600


class Reviews:
    """Answers the create-only resources."""

    def __init__(
        self,
        storage: Storage,
        authorizer: RbacAuthorizer,
        tokens: TokenIssuer,
        *,
        now: Callable[[], datetime.datetime],
    ) -> None:
        self._storage = storage
        self._authorizer = authorizer
        self._tokens = tokens
        self._now = now

    def answer(self, kind: ResourceType, user: User, namespace: str, review: Object) -> Object:
        """The review with its status filled in."""
        spec = child(review, "spec")
        match kind.kind:
            case "SubjectAccessReview":
                status = self._access(_user_of(spec), spec)
            case "LocalSubjectAccessReview":
                if child(spec, "resourceAttributes").get("namespace") != namespace:
                    raise bad_request("spec.resourceAttributes.namespace must match the namespace of the request")
                status = self._access(_user_of(spec), spec)
            case "SelfSubjectAccessReview":
                status = self._access(user, spec)
            case "SelfSubjectRulesReview":
                status = self._rules(user, str(spec.get("namespace") or ""))
            case "TokenReview":
                status = self._token(spec)
            case _:
                status = {"userInfo": user.as_json()}
        return {
            "kind": kind.kind,
            "apiVersion": kind.api_version,
            "metadata": child(review, "metadata"),
            **({"spec": spec} if spec else {}),
            "status": status,
        }

    def issue_token(self, namespace: str, name: str, request: Object) -> Object:
        """The token subresource of a service account."""
        account = self._storage.get(_SERVICE_ACCOUNTS, namespace, name)
        if account is None:
            raise no_such_object(_SERVICE_ACCOUNTS, name)
        spec = child(request, "spec")
        seconds = spec.get("expirationSeconds") or _TOKEN_SECONDS
        if not isinstance(seconds, int) or seconds < _MIN_TOKEN_SECONDS:
            raise bad_request("spec.expirationSeconds: may not specify a duration less than 10 minutes")
        audiences = tuple(str(audience) for audience in spec.get("audiences") or (ISSUER,))
        expires = self._now() + datetime.timedelta(seconds=seconds)
        return {
            "kind": "TokenRequest",
            "apiVersion": "authentication.k8s.io/v1",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"audiences": list(audiences), "expirationSeconds": seconds},
            "status": {
                "token": self._tokens.issue(account, seconds=seconds, audiences=audiences),
                "expirationTimestamp": text_time(expires),
            },
        }

    def _access(self, user: User, spec: Object) -> Object:
        if self._authorizer.allowed(user, _access_of(spec)):
            return {"allowed": True}
        return {"allowed": False}

    def _token(self, spec: Object) -> Object:
        audiences = [str(audience) for audience in spec.get("audiences") or (ISSUER,)]
        for audience in audiences:
            try:
                user = self._tokens.authenticate(str(spec.get("token") or ""), audience=audience)
            except StatusError:
                continue
            return {"authenticated": True, "user": user.as_json(), "audiences": [audience]}
        return {"user": {}, "error": "invalid bearer token"}

    def _rules(self, user: User, namespace: str) -> Object:
        rules: list[PolicyRule] = list(self._authorizer.rules(user, namespace))
        return {
            "resourceRules": [_rule_json(rule, "nonResourceURLs") for rule in rules if rule.resources],
            "nonResourceRules": [
                {"verbs": rule.verbs, "nonResourceURLs": rule.non_resource_urls}
                for rule in rules
                if rule.non_resource_urls
            ],
            "incomplete": False,
        }


def _rule_json(rule: PolicyRule, *left_out: str) -> Object:
    fields: dict[str, Any] = msgspec.to_builtins(rule)
    return {key: value for key, value in fields.items() if value and key not in left_out}


def _user_of(spec: Object) -> User:
    name, groups = spec.get("user") or "", tuple(spec.get("groups") or ())
    if not name and not groups:
        raise bad_request("spec.user: at least one of user or group must be specified")
    return User(str(name), groups, str(spec.get("uid") or ""))


def _access_of(spec: Object) -> Access:
    resource, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if (resource is None) == (path is None):
        raise bad_request("spec: exactly one of nonResourceAttributes or resourceAttributes must be specified")
    if path is not None:
        return Access(str(path.get("verb") or ""), path=str(path.get("path") or ""))
    wanted = child(spec, "resourceAttributes")
    return Access(
        verb=str(wanted.get("verb") or ""),
        group=str(wanted.get("group") or ""),
        resource=str(wanted.get("resource") or ""),
        subresource=str(wanted.get("subresource") or ""),
        namespace=str(wanted.get("namespace") or ""),
        name=str(wanted.get("name") or ""),
    )
