"""HTML from jinja2 templates. Everything is escaped, and an undefined name is an error."""

from __future__ import annotations

from typing import Any

import jinja2
from aiohttp import web


class Templates:
    """The templates of a package (its folder `templates`), with those of kube.web: base.html, error.html.

    Args:
        package: such as "autoscaler.ui".
        globals_: names that all templates know.
    """

    def __init__(self, package: str, **globals_: Any) -> None:
        self._environment = jinja2.Environment(
            loader=jinja2.ChoiceLoader([jinja2.PackageLoader(package), jinja2.PackageLoader("kube.web")]),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        self._environment.globals.update(globals_)

    def render(self, name: str, **values: Any) -> str:
        """Return a page, or a part of one."""
        return self._environment.get_template(name).render(**values)

    def page(self, name: str, *, status: int = 200, **values: Any) -> web.Response:
        """Return a page as a response."""
        return web.Response(text=self.render(name, **values), status=status, content_type="text/html", charset="utf-8")
