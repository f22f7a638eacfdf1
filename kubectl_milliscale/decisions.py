"""The last decisions on all HPAs, from the autoscaler's pods."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

import click

from autoscaler.commands.debug_client import fetch_index
from autoscaler.core.model import HPAKey
from kubectl_milliscale.kubectl import Kubectl
from kubectl_milliscale.pods import find_pods, forwarded

SHOWN: Final = 20
"""Decisions per HPA; the autoscaler keeps as many by default."""
_RENEW_SECONDS: Final = 60.0
"""After this time the pods are looked up again, since another may be leader."""
_RETRY_SECONDS: Final = 10.0

DesiredReplicas: TypeAlias = Mapping[HPAKey, Sequence[int | None]]
"""{HPA: the desired replicas of its last decisions, oldest first; None where no replica count was found}."""


class Decisions:
    """Reads the decisions; forwards stay open between reads, until `close`.

    Args:
        kubectl: reads the pods and forwards the ports.
        autoscaler_namespace: of the pods.
        namespace: of the HPAs; "" for all.
        clock: monotonic, in seconds.
    """

    def __init__(
        self,
        kubectl: Kubectl,
        *,
        autoscaler_namespace: str,
        namespace: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._kubectl = kubectl
        self._autoscaler_namespace = autoscaler_namespace
        self._namespace = namespace
        self._clock = clock
        self._forwards = contextlib.ExitStack()
        self._servers: list[str] = []
        self._connect_at = float("-inf")
        self.problem = ""
        """Why there are no decisions; "" if there are."""

    def fetch(self) -> DesiredReplicas:
        """Return the decisions; none if there is a problem."""
        if self._clock() >= self._connect_at:
            self._connect()
        if self.problem:
            return {}
        found = {}
        try:
            for server in self._servers:
                page = asyncio.run(fetch_index(server, namespace=self._namespace, last=SHOWN))
                found.update({HPAKey(one.namespace, one.name, one.group): one.desired_replicas for one in page.hpas})
        except click.ClickException as error:
            self._fail(error)
            return {}
        return found

    def close(self) -> None:
        """End the forwards."""
        self._forwards.close()
        self._servers = []

    def _connect(self) -> None:
        self.close()
        try:
            for pod in find_pods(self._kubectl, self._autoscaler_namespace):
                url = forwarded(self._kubectl, self._autoscaler_namespace, pod)
                self._servers.append(self._forwards.enter_context(url))
        except click.ClickException as error:
            self._fail(error)
        else:
            self.problem = ""
            self._connect_at = self._clock() + _RENEW_SECONDS

    def _fail(self, error: click.ClickException) -> None:
        self.close()
        self.problem = error.message
        self._connect_at = self._clock() + _RETRY_SECONDS
