"""The paths of the pages.

/                                        all HPAs; `q`, `namespace`, `show`, `sort`, `page` choose rows
/events                                  changes of these rows, as server-sent events
/hpas/NAMESPACE/NAME                     one HPA; `group=milliscale.io` for one of that API
/hpas/NAMESPACE/NAME/events              its decisions, as server-sent events
/hpas/NAMESPACE/NAME/what-if             its kept decisions with another spec
/static/FILE                             styles and scripts
"""

from __future__ import annotations

from aiohttp import web
from plotly.offline import get_plotlyjs

from autoscaler.ui.list_page import ListPage
from autoscaler.ui.sources import Sources
from kube.status import not_found
from kube.web.access import NamespaceAccess
from kube.web.event_stream import respond_with_events
from kube.web.requests import PageRequest
from kube.web.static_files import StaticFiles
from kube.web.templates import Templates


class UIPages:
    """Responds to requests for the pages; see kube.web.requests.Pages."""

    def __init__(self, sources: Sources, access: NamespaceAccess) -> None:
        self._sources = sources
        self._access = access
        self.static = StaticFiles(["kube.web", "autoscaler.ui"], {"plotly.min.js": get_plotlyjs().encode()})
        self.templates = Templates("autoscaler.ui", process="autoscaler", static=self.static.url)
        self._list = ListPage(sources, access, self.templates)

    async def respond(self, request: PageRequest) -> web.StreamResponse:
        """Return the response. Raises StatusError."""
        match request.segments:
            case ():
                return await self._list.respond(request)
            case ("events",):
                return await respond_with_events(request, self._list.events(request))
        raise not_found("there is no such page")
