"""One request for a page."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias

from aiohttp import web

from kube.security.authentication import User
from kube.security.request_info import Query


@dataclass(frozen=True, slots=True, kw_only=True)
class PageRequest:
    """A GET request, authenticated if the address is not a loopback one.

    Attributes:
        segments: of the path, decoded: ("hpas", "default", "web").
        query: the parameters.
        user: the authenticated user; None on loopback, where everyone may see everything.
        raw: the request, for responses that are streamed.
    """

    segments: tuple[str, ...]
    query: Query
    user: User | None
    raw: web.BaseRequest


Pages: TypeAlias = Callable[[PageRequest], Awaitable[web.StreamResponse]]
"""Return the response to a request; raise StatusError for an error page (404, 400, ...)."""
