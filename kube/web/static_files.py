"""Styles and scripts. Their URLs contain a hash of the content, so browsers cache them for ever."""

from __future__ import annotations

import gzip
import hashlib
import mimetypes
from collections.abc import Iterable, Mapping
from importlib.resources import files

from aiohttp import hdrs, web

from kube.api.status import not_found


class StaticFiles:
    """The folders `static` of packages, and further files, compressed in memory.

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
