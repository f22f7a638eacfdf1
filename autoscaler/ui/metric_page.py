"""The page about a metric: what the adapter says about it, for users who may read that there."""

from __future__ import annotations

from urllib.parse import urlencode

from autoscaler.records.adapter_explanation import PARAMETERS, debug_path
from autoscaler.ui.page_context import PageContext
from kube.api.client import KubeError
from kube.api.status import StatusError
from kube.web.live import Page, Throttle, View
from kube.web.requests import PageRequest


class MetricPage(Page):
    """The page about the metric of the parameter `metric`.

    This process reads it with its own rights, after a review that the user has the right which the adapter requires.
    """

    template = "metric.html"
    in_thread = True  # an explanation may have a mebibyte

    def __init__(self, context: PageContext, request: PageRequest) -> None:
        self._context = context
        self.user = request.user
        self._parameters = {name: request.query.get(name) for name in ("metric", *PARAMETERS) if name in request.query}

    async def check(self) -> None:
        """Raises StatusError: 400 for a name of no metric, 403 if the user may not see it."""
        await self._context.access.require_path(self.user, debug_path(self._parameters.get("metric", "")))

    async def load(self, _: Throttle) -> View:
        """Return what the adapter says, or why it says nothing."""
        sources, explanation, problem = self._context.sources, None, ""
        try:
            explanation = await sources.explain_metric(self._parameters)
        except (StatusError, KubeError) as error:
            problem = f"the adapter's explanation cannot be read: {error}"
        on_adapter = sources.adapter_ui_url and f"{sources.adapter_ui_url}/metric?{urlencode(self._parameters)}"
        values = {"explanation": explanation, "problem": problem, "parameters": self._parameters}
        return View(values={**values, "on_adapter": on_adapter})
