"""What pages are made of: HTML from templates, styles and scripts; and one request for a page."""

from __future__ import annotations

import gzip
import hashlib
import mimetypes
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Final, Protocol

import jinja2
from aiohttp import hdrs, web

from kube.api.status import StatusError, not_found
from kube.security.authentication import User
from kube.security.request_info import Query

_WORDS: Final = re.compile("(?<=[a-z])(?=[A-Z])")


class Templates:
    """HTML from jinja2 templates. Everything is escaped, and an undefined name is an error.

    The templates are those of a package (its folder `templates`), with those of kube.web: base.html, error.html.

    Args:
        package: such as "autoscaler.ui".
        process: the name of the process in the header of the pages.
        globals_: names that all templates know; `static` must be StaticFiles.url.
    """

    def __init__(self, package: str, *, process: str, **globals_: Any) -> None:
        self._environment = jinja2.Environment(
            loader=jinja2.ChoiceLoader([jinja2.PackageLoader(package), jinja2.PackageLoader("kube.web")]),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        self._environment.globals.update(globals_, process=process)

    def render(self, name: str, **values: Any) -> str:
        """Return a page, or a part of one."""
        return self._environment.get_template(name).render(**values)

    def page(self, name: str, *, status: int = 200, **values: Any) -> web.Response:
        """Return a page as a response."""
        return web.Response(text=self.render(name, **values), status=status, content_type="text/html", charset="utf-8")

    def error(self, error: StatusError) -> web.Response:
        """Return an error page; its heading is the code and the reason, such as "404 Not found"."""
        reason = _WORDS.sub(" ", error.reason or "Error").capitalize()
        return self.page("error.html", status=error.code, code=error.code, reason=reason, message=error.message)


class StaticFiles:
    """The folders `static` of packages, and further files, compressed in memory.

    Their URLs contain a hash of the content, so browsers cache them for ever.

    Args:
        packages: such as "kube.web" and "autoscaler.ui".
        more: {name: content}.
    """

    def __init__(self, packages: Iterable[str], more: Mapping[str, bytes] | None = None) -> None:
        contents = dict(more or {})
        for package in packages:
            for file in files(package).joinpath("static").iterdir():
                if file.is_file():
                    contents[file.name] = file.read_bytes()
        self._files: dict[str, tuple[str, bytes]] = {}
        self._names: dict[str, str] = {}
        for name, content in contents.items():
            hashed = f"{hashlib.sha256(content).hexdigest()[:16]}-{name}"
            self._names[name] = hashed
            kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
            self._files[hashed] = kind, gzip.compress(content, mtime=0)

    def url(self, name: str) -> str:
        """Return the URL of a file for a page; KeyError: there is no such file."""
        return f"/static/{self._names[name]}"

    def respond(self, name: str) -> web.Response:
        """Respond to /static/NAME. Raises StatusError (404)."""
        found = self._files.get(name)
        if found is None:
            raise not_found("there is no such file")
        kind, content = found
        headers = {
            hdrs.CONTENT_TYPE: kind,
            hdrs.CONTENT_ENCODING: "gzip",
            hdrs.CACHE_CONTROL: "public, max-age=31536000, immutable",
        }
        return web.Response(body=content, headers=headers)


@dataclass(frozen=True, slots=True, kw_only=True)
class PageRequest:
    """A GET or HEAD request, authenticated if the address is not a loopback one."""

    segments: tuple[str, ...]
    """The segments of the path, decoded: ("hpas", "default", "web")."""
    query: Query
    """The parameters."""
    user: User | None
    """The authenticated user; None on loopback, where everyone may see everything."""
    raw: web.BaseRequest
    """The request."""


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
