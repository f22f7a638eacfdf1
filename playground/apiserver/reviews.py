"""TokenReview, SubjectAccessReview and TokenRequest: computed, not stored."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Final

from kube.api.mapping import GroupResource
from kube.api.status import StatusError, bad_request
from playground.apiserver.errors import no_such_object
from playground.apiserver.identity import ISSUER, TokenIssuer, User
from playground.apiserver.objects import Object, child, text_time
from playground.apiserver.rbac import Access, RbacAuthorizer
from playground.apiserver.resource_types import ResourceType
from playground.apiserver.storage import Storage

_SERVICE_ACCOUNTS: Final = GroupResource("", "serviceaccounts")
_TOKEN_SECONDS: Final = 3600


class Reviews:
    """Serves the create-only resources, with the server's own authenticator and authorizer."""

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

    def review(self, kind: ResourceType, review: Object) -> Object:
        """Return the review with its status."""
        spec = child(review, "spec")
        status = self._token(spec) if kind.kind == "TokenReview" else self._access(spec)
        metadata = child(review, "metadata")
        return {
            "kind": kind.kind,
            "apiVersion": kind.api_version,
            "metadata": metadata,
            "spec": spec,
            "status": status,
        }

    def issue_token(self, namespace: str, name: str, request: Object) -> Object:
        """Return a TokenRequest of a service account with its token."""
        account = self._storage.get(_SERVICE_ACCOUNTS, namespace, name)
        if account is None:
            raise no_such_object(_SERVICE_ACCOUNTS, name)
        spec = child(request, "spec")
        seconds = int(spec.get("expirationSeconds") or _TOKEN_SECONDS)
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

    def _access(self, spec: Object) -> Object:
        user = User(str(spec.get("user") or ""), tuple(spec.get("groups") or ()), str(spec.get("uid") or ""))
        return {"allowed": self._authorizer.allowed(user, _access_of(spec))}

    def _token(self, spec: Object) -> Object:
        audiences = [str(audience) for audience in spec.get("audiences") or (ISSUER,)]
        for audience in audiences:
            try:
                user = self._tokens.authenticate(str(spec.get("token") or ""), audience=audience)
            except StatusError:
                continue
            return {"authenticated": True, "user": user.as_json(), "audiences": [audience]}
        return {"user": {}, "error": "invalid bearer token"}


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
