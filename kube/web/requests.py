"""One request for a page, and what responds to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from aiohttp import web

from kube.security.authentication import User
from kube.security.request_info import Query
from kube.web.static_files import StaticFiles
from kube.web.templates import Templates


@dataclass(frozen=True, slots=True, kw_only=True)
class PageRequest:
    """A GET or HEAD request, authenticated if the address is not a loopback one.

    Attributes:
        segments: of the path, decoded: ("hpas", "default", "web").
        query: the parameters.
        user: the authenticated user; None on loopback, where everyone may see everything.
        raw: the request.
    """

    segments: tuple[str, ...]
    query: Query
    user: User | None
    raw: web.BaseRequest


class Pages(Protocol):
    """The pages of a process.

    Attributes:
        templates: of the pages; error pages are made of them, too.
        static: the files below /static, which everyone may read.
    """

    @property
    def templates(self) -> Templates: ...  # noqa: D102

    @property
    def static(self) -> StaticFiles: ...  # noqa: D102

    async def respond(self, request: PageRequest) -> web.StreamResponse:
        """Return a page, or an EventStream. Raises StatusError for an error page (404, 400, ...)."""
