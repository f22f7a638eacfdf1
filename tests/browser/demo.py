"""The demo, running while its pages are open."""

from __future__ import annotations

import math
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from kube.cache.store import Key, Store
from playground.bundle import Bundle, Timing
from playground.scenario import NAMESPACE
from playground.tasks import background
from playground.views import Deployment
from tests.browser.tabs import Tab

TIMING: Final = Timing(sync_period=1, relist_interval=1, downscale_stabilization=3)

Scale = tuple[float, str, int]
"""(time in seconds since the epoch, HPA and Deployment, replicas)."""


class Scales:
    """The replicas that the Deployments of the demo are given while `watch` runs."""

    def __init__(self) -> None:
        self.seen: list[Scale] = []

    @asynccontextmanager
    async def watch(self, bundle: Bundle) -> AsyncIterator[None]:
        path = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments"
        store = Store(bundle.client, path, Deployment.select, on_change=self._changed)
        async with background(store.run()):
            await store.wait_synced()
            yield

    def _changed(self, key: Key, old: Deployment | None, new: Deployment | None) -> None:
        if old is not None and new is not None and old.spec.replicas != new.spec.replicas:
            self.seen.append((time.time(), key[1], new.spec.replicas))


async def record_replicas(tab: Tab) -> None:
    """Have the page of all HPAs note the replicas that it shows, whenever it changes."""
    await tab.page.evaluate(
        """() => {
            const replicas = (row) => [...row.querySelectorAll("[data-label=Replicas] b")].at(-1).textContent;
            window.noted = [];
            const note = () => {
                for (const row of document.querySelectorAll("tbody tr"))
                    noted.push([Date.now() / 1000, row.querySelector("th a").textContent, Number(replicas(row))]);
            };
            new MutationObserver(note).observe(document.querySelector("main"), {childList: true, subtree: true});
        }"""
    )


async def delays(tab: Tab, scales: list[Scale]) -> list[float]:
    """Return how many seconds after each scale the page showed it; infinity if it has not yet."""
    noted: list[Scale] = [tuple(each) for each in await tab.page.evaluate("noted")]
    return [
        min((at - time for at, *shown in noted if at >= time and shown == scale), default=math.inf)
        for time, *scale in scales
    ]
