"""Delegated authorization: SubjectAccessReviews by the API server, which holds the cluster's access rules.

As in Kubernetes, public paths and members of system:masters need no review. Concurrent requests with the same
attributes share one review, whose decision is cached for some seconds. Without a decision nothing is allowed.

Upstream: authorizerfactory.DelegatingAuthorizerConfig
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
from cachetools import TLRUCache

from kube.aio.tasks import SingleFlight
from kube.api.client import KubeClient, KubeUnreachable
from kube.api.status import StatusError, forbidden, internal_error, service_unavailable
from kube.security.authentication import DEFAULTS, ReviewSettings, User
from kube.security.request_info import RequestInfo
from kube.values.fields import quote

_log = logging.getLogger(__name__)
_WARN_EVERY_SECONDS = 10.0

_ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
_PRIVILEGED_GROUP = "system:masters"
_DECISION_BYTES = 512


@dataclass(frozen=True, slots=True)
class AuthorizationOptions:
    """The flags: `--authorization-always-allow-paths` and the TTLs of cached decisions in seconds.

    The defaults are Kubernetes'. Below the endpoints a path that does not exist gets a list of those that do.
    """

    always_allow_paths: tuple[str, ...] = ("/healthz", "/readyz", "/livez")
    authorized_ttl: float = 10.0
    unauthorized_ttl: float = 10.0

    def __post_init__(self) -> None:
        """Raises ValueError: a path has an asterisk before its end."""
        for path in self.always_allow_paths:
            if "*" in path[:-1]:
                raise ValueError(f'--authorization-always-allow-paths: only trailing * allowed in "{path}"')


class _Decision(msgspec.Struct, frozen=True):
    """The result of a review."""

    allowed: bool
    reason: str
    ttl: float
    """Seconds."""
    size: int
    """Bytes of the decision and its key."""


_Attributes = tuple[User, RequestInfo]


class Authorizer:
    """Decides about requests.

    Args:
        client: the API server.
        options: the flags.
        settings: see ReviewSettings.
        clock: counts in seconds.
    """

    def __init__(
        self,
        client: KubeClient,
        options: AuthorizationOptions,
        *,
        settings: ReviewSettings = DEFAULTS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._client = client
        self._options = options
        self._clock = clock
        self._decisions: TLRUCache[_Attributes, _Decision] = TLRUCache(
            settings.decision_bytes,
            ttu=lambda _, decision, now: now + decision.ttl,
            timer=clock,
            getsizeof=lambda decision: decision.size,
        )
        self._reviews: SingleFlight[_Attributes, _Decision] = SingleFlight()
        self._next_warning = -math.inf

    def always_allows(self, path: str) -> bool:
        """Return True if this path needs neither authentication nor authorization."""
        return any(
            path.startswith(allowed[:-1]) if allowed.endswith("*") else path == allowed
            for allowed in self._options.always_allow_paths
        )

    async def authorize(self, user: User, info: RequestInfo) -> None:
        """Check that the user may do this.

        Raises:
            StatusError: 403 if not, 500 or 503 if the API server did not decide.
        """
        if _PRIVILEGED_GROUP in user.groups:
            return
        decision = await self._decide((user, info))
        if not decision.allowed:
            raise _refusal(user, info, decision.reason)

    async def allows(self, user: User, info: RequestInfo) -> bool:
        """Return whether the user may do this.

        Raises:
            StatusError: 500 or 503 if the API server did not decide.
        """
        return _PRIVILEGED_GROUP in user.groups or (await self._decide((user, info))).allowed

    async def _decide(self, key: _Attributes) -> _Decision:
        try:
            return self._decisions[key]
        except KeyError:
            return await self._reviews.do(key, lambda: self._review(key))

    async def _review(self, key: _Attributes) -> _Decision:
        spec = _review_spec(*key)
        body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        try:
            review = await self._client.post(_ACCESS_REVIEWS, body, timeout=self._settings.review_seconds)
        except KubeUnreachable as error:
            raise service_unavailable("access cannot be checked now: the API server did not respond") from error
        except StatusError as error:
            now = self._clock()
            if now >= self._next_warning:  # anyone can cause reviews
                self._next_warning = now + _WARN_EVERY_SECONDS
                _log.warning(
                    "the API server refused a SubjectAccessReview: %s; this pod's service account needs the "
                    "ClusterRole system:auth-delegator",
                    error,
                )
            raise internal_error("access cannot be checked") from error
        status = review.get("status")
        if not isinstance(status, dict):
            raise internal_error("access cannot be checked")
        allowed = status.get("allowed") is True
        ttl = self._options.authorized_ttl if allowed else self._options.unauthorized_ttl
        reason = str(status.get("reason") or "")
        size = _DECISION_BYTES + 4 * (len(msgspec.json.encode(spec)) + len(key[1].path) + len(reason))
        decision = self._decisions[key] = _Decision(allowed, reason, ttl, size)
        return decision


def _review_spec(user: User, info: RequestInfo) -> dict[str, Any]:
    spec: dict[str, Any] = {"user": user.name, "groups": user.groups}
    if user.uid:
        spec["uid"] = user.uid
    if user.extra:
        spec["extra"] = dict(user.extra)
    if info.is_resource:
        attributes = {
            "namespace": info.namespace,
            "verb": info.verb,
            "group": info.group,
            "version": info.version,
            "resource": info.resource,
            "subresource": info.subresource,
            "name": info.name,
        }
        spec["resourceAttributes"] = {key: value for key, value in attributes.items() if value}
    else:
        spec["nonResourceAttributes"] = {"path": info.path, "verb": info.verb}
    return spec


def _refusal(user: User, info: RequestInfo, reason: str) -> StatusError:
    """403 in Kubernetes' words (responsewriters.Forbidden in k8s.io/apiserver)."""
    suffix = f": {reason}" if reason else ""
    who = f"User {quote(user.name)} cannot {info.verb}"
    if not info.is_resource:
        return forbidden(f"forbidden: {who} path {quote(info.path)}{suffix}", details={})
    resource = f"{info.resource}/{info.subresource}" if info.subresource else info.resource
    where = f"in the namespace {quote(info.namespace)}" if info.namespace else "at the cluster scope"
    subject = f"{info.resource}.{info.group}" + (f" {quote(info.name)}" if info.name else "")
    details = {"name": info.name, "group": info.group, "kind": info.resource}
    return forbidden(
        f"{subject} is forbidden: {who} resource {quote(resource)} in API group {quote(info.group)} {where}{suffix}",
        details={key: value for key, value in details.items() if value},
    )
