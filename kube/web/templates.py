"""HTML from jinja2 templates. Everything is escaped, and an undefined name is an error."""

from __future__ import annotations

import re
from typing import Any, Final

import jinja2
from aiohttp import web

from kube.api.status import StatusError

_WORDS: Final = re.compile("(?<=[a-z])(?=[A-Z])")


class Templates:
    """The templates of a package (its folder `templates`), with those of kube.web: base.html, error.html.

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
