"""The page on which the spec of an HPA is changed, and its kept decisions are replayed. Nothing is written."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from autoscaler.core.config import Config
from autoscaler.core.model import HPA, HPAKey
from autoscaler.records.record import DecisionRecord
from autoscaler.ui.page_context import PageContext
from autoscaler.ui.rows import hpa_url
from autoscaler.ui.sources import WhatIfError, WhatIfResult
from autoscaler.ui.spec_fields import metric_flag, to_yaml
from autoscaler.ui.spec_form import SpecForm, read_form
from kube.aio.fairness import FairSemaphore, QueueFullError, Throttle
from kube.api.status import conflict, service_unavailable
from kube.values.durations import format_duration
from kube.web.live import Page, View
from kube.web.pages import PageRequest

_FLAG: Final = "--horizontal-pod-autoscaler"
_RETRY_SECONDS: Final = 5


class WhatIfPage(Page):
    """The form, and the result if there are parameters. A replay runs for a limited time."""

    template = "what_if.html"
    in_thread = True  # a result has up to a thousand sentences, and charts of a thousand points

    def __init__(self, context: PageContext, request: PageRequest, key: HPAKey, replays: FairSemaphore) -> None:
        self._context = context
        self._replays = replays
        self._sources = context.sources
        self._query = request.query
        self._key = key
        self.user = request.user

    async def load(self, _: Throttle) -> View:
        """Return the form and the result.

        Raises:
            StatusError: 403 if the user may not see the namespace, 404 if there is no such HPA, 409 if its spec is
                invalid, 503 if too many replays wait.
        """
        key, query = self._key, self._query
        hpa = await self._context.visible_hpa(self.user, key)
        if hpa.problem:
            raise conflict(f"the spec of HPA {key} is invalid, so it has no what-if: {hpa.problem}")
        form = read_form(hpa, query, self._sources.config)
        result, problem = None, ""
        submitted = any(name != "group" for name, _ in query.pairs)
        if submitted and form.changed is not None:
            try:
                result = await self._replay(hpa, form.changed, form)
            except WhatIfError as error:
                problem = str(error)
        return View(
            values={
                "hpa": hpa,
                "form": form,
                "has_errors": form.changed is None,
                "kept": len(self._sources.decisions.numbers(key)),
                "result": result,
                "problem": problem,
                "changed_yaml": to_yaml(form.document) if result else "",
                "unchanged": form.changed is not None and form.changed.spec == hpa.spec,
                "scales": [] if result is None else [(_time_text(time), text) for time, text in result.sentences],
                "command": _command(hpa, form, self._sources.config),
                "links": {
                    "hpa": hpa_url(key),
                    "what_if": hpa_url(key, "what-if"),
                    "action": hpa_url(key, "what-if").partition("?")[0] + "#result",
                },
                "group": query.get("group"),
            }
        )

    async def _replay(self, hpa: HPA, changed: HPA, form: SpecForm) -> WhatIfResult:
        seconds = self._sources.what_if_settings.replay_seconds
        try:
            async with self._replays.slot(self.user_name), asyncio.timeout(seconds):
                return await self._sources.what_if(
                    hpa,
                    changed,
                    self._records(hpa.key),
                    config=self._sources.config,
                    pod_startup=form.pod_startup,
                    capacity=form.capacity,
                )
        except QueueFullError:
            raise service_unavailable(
                "too many replays are waiting; try again soon", retry_after=_RETRY_SECONDS
            ) from None
        except TimeoutError:
            raise WhatIfError(f"the replay takes longer than {seconds:g} s; use `autoscaler replay`") from None

    def _records(self, key: HPAKey) -> Iterator[DecisionRecord]:
        """Return the kept decisions as an iterator, which decodes them in the thread of the replay."""
        log, numbers = self._sources.decisions, self._sources.decisions.numbers(key)
        return (record for record in map(log.get, numbers) if record is not None)


def _time_text(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _command(hpa: HPA, form: SpecForm, config: Config) -> str:
    """Return the command with the same result, for the changed spec in changed.yaml."""
    defaults, flags = Config(), ["--filename=changed.yaml"]
    if form.pod_startup is not None:
        flags.append(f"--pod-startup={format_duration(form.pod_startup)}")
    for index, value in form.capacity.items():
        flags.append(f"--capacity={metric_flag(hpa.spec.metrics[index])}={value:.15g}")
    if config.tolerance != defaults.tolerance:
        flags.append(f"{_FLAG}-tolerance={config.tolerance}")
    for name in ("downscale_stabilization", "cpu_initialization_period", "initial_readiness_delay"):
        milliseconds = getattr(config, f"{name}_ms")
        if milliseconds != getattr(defaults, f"{name}_ms"):
            flags.append(f"{_FLAG}-{name.replace('_', '-')}={format_duration(milliseconds / 1000)}")
    if config.scale_to_zero != defaults.scale_to_zero:
        flags.append(f"--feature-gates=HPAScaleToZero={str(config.scale_to_zero).lower()}")
    return shlex.join(["kubectl", "milliscale", "replay", hpa.name, f"--namespace={hpa.namespace}", *flags])
