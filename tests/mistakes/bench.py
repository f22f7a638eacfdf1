"""Makes a user's mistakes in this process, and returns what the user reads."""

from __future__ import annotations

import asyncio
import copy
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import click
import yaml
from aiohttp import web
from click.testing import CliRunner

from adapter.cli import main as adapter
from adapter.metrics.requests import ExternalMetricRequest
from adapter.prometheus import PrometheusQueryError, Series
from adapter.rules import parse_rules
from adapter.rules.objects import Tenancy, read_object
from autoscaler.cli import main as autoscaler
from autoscaler.core.config import Config, parse_annotations
from autoscaler.ui.spec_form import read_form
from kube.api.status import StatusError
from kube.security.request_info import Query
from kubectl_milliscale.cli import main as plugin
from replay.hpa_files import parse_hpa_document
from tests.adapter.metrics_env import CannedPrometheus, metrics_env
from tests.autoscaler.cluster import Cluster, running_cluster
from tests.kube.scripted import scripted_server
from tests.replay.builders import hpa_document, pods_metric
from tests.web_servers import Handler, served

START: Final = 1_767_571_200  # 2026-01-05T00:00:00Z
RULE: Final = {
    "name": "http_requests_per_second",
    "query": "sum by (namespace, pod) (rate(http_requests_total[2m]))",
    "resources": {"namespace": "namespace", "pod": "pod"},
}
LONG: Final = """rules:
- seriesQuery: 'http_requests_total{namespace!="",pod!=""}'
  resources: {template: <<.Resource>>}
  metricsQuery: sum(rate(<<.Series>>{<<.LabelMatchers>>}[2m])) by (<<.GroupBy>>)
"""
METRIC_RULE: Final = {"type": "External", "metric": "queue_length", "query": "sum(queue)"}
_NO_CLUSTER: Final = {"KUBERNETES_SERVICE_HOST": None, "KUBECONFIG": None, "HOME": "/nonexistent"}
_SAYS: Final = ("error: ", "warning: ")
_KUBECONFIG: Final[dict[str, Any]] = {
    "apiVersion": "v1",
    "kind": "Config",
    "clusters": [{"name": "prod", "cluster": {"server": "https://127.0.0.1:9"}}],
    "users": [{"name": "ann", "user": {}}],
    "contexts": [{"name": "prod", "context": {"cluster": "prod", "user": "ann"}}],
    "current-context": "prod",
}


def run(command: click.Command, *arguments: str) -> str:
    """Run a command, and return its sentences about mistakes, a line each."""
    result = CliRunner().invoke(command, arguments, env=_NO_CLUSTER)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info
    lines = [line.strip() for line in result.output.splitlines()]
    if result.exit_code and any(line.startswith("Error: ") for line in lines):
        # As a terminal shows it, to the end: click has the usage above it.
        lines = lines[next(n for n, line in enumerate(lines) if line.startswith("Error: ")) :]
        return "\n".join(lines).removeprefix("Error: ")
    found = [line.partition(": ")[2] for line in lines if line.startswith(_SAYS)]
    return "\n".join(found or lines)


class Bench:
    """A directory for the files of one mistake, which is the current one."""

    # --- the adapter

    def check(self, rules: str | Mapping[str, Any], *flags: str) -> str:
        """`milliscale check rules.yaml` of a file, or of a short rule with these keys changed."""
        text = rules if isinstance(rules, str) else yaml.safe_dump({"rules": [_changed(RULE, rules)]}, sort_keys=False)
        Path("rules.yaml").write_text(text)
        return run(adapter, "check", "rules.yaml", *flags)

    async def check_against(self, prometheus: Handler, rules: str = LONG) -> str:
        """`milliscale check rules.yaml --prometheus-url=...` against a server."""
        async with served(prometheus) as url:
            said = await asyncio.to_thread(self.check, rules, f"--prometheus-url={url}")
            return said.replace(url, "http://prometheus:9090")

    def adapter(self, *arguments: str) -> str:
        """A command of milliscale-adapter, in a directory with good rules."""
        Path("rules.yaml").write_text(LONG)
        return run(adapter, *arguments)

    def metric_rule(self, **changes: Any) -> str:
        """The message in the status of a MetricRule with these fields of its spec changed."""
        obj = {"kind": "MetricRule", "metadata": {"namespace": "shop", "name": "queue"}}
        return read_object({**obj, "spec": _changed(METRIC_RULE, changes)}, servers={}, tenancy=Tenancy()).error

    async def external_metric(self, rules: str, *, refused: str = "") -> str:
        """The metrics API's response about the external metric `queue`, of Prometheus with that series."""
        prometheus = CannedPrometheus(found={"queue": (Series("queue", frozenset({"queue"})),)})
        if refused:
            prometheus.result = PrometheusQueryError(refused)
        async with metrics_env(Path(), parse_rules(rules, source="rules.yaml"), prometheus) as env:
            await env.catalog.relist()
            try:
                await env.external.values(ExternalMetricRequest(namespace="shop", metric="queue"))
            except StatusError as error:
                return str(error)
        return ""

    # --- the autoscaler

    def autoscaler(self, *arguments: str) -> str:
        """A command of milliscale-autoscaler."""
        return run(autoscaler, *arguments)

    def explain(self, **kubeconfig: Any) -> str:
        """`milliscale explain shop/web` with a kubeconfig with these parts changed."""
        Path("admin.conf").write_text(yaml.safe_dump(_changed(_KUBECONFIG, kubeconfig)))
        return self.autoscaler("explain", "shop/web", "--kubeconfig=admin.conf")

    async def explain_refused(self, code: int, message: str) -> str:
        """`milliscale explain shop/web` against an API server with one response to all requests."""
        async with scripted_server() as server:
            body = {"kind": "Status", "status": "Failure", "message": message, "code": code}

            async def respond(_: web.Request) -> web.StreamResponse:
                return web.json_response(body, status=code)

            for path in ("/apis", "/apis/milliscale.io/v1", "/apis/milliscale.io"):
                server.handlers[path] = respond
            server.handlers["/apis/autoscaling/v2/namespaces/shop/horizontalpodautoscalers/web"] = respond
            server.kubeconfig(Path()).rename("admin.conf")
            said = await asyncio.to_thread(self.autoscaler, "explain", "shop/web", "--kubeconfig=admin.conf")
            return said.replace(server.url.removeprefix("http://"), "10.0.0.1:6443")

    async def explain_sentence(self, prepare: Callable[[Cluster], object], name: str = "web") -> str:
        """The decision's sentence in `milliscale explain`, on an HPA in a small cluster; the hint, if there is one."""
        async with running_cluster(Path()) as cluster:
            prepare(cluster)
            arguments = ["explain", f"default/{name}", f"--kubeconfig={cluster.kubeconfig}"]
            result = await asyncio.to_thread(CliRunner().invoke, autoscaler, arguments, env=_NO_CLUSTER)
            if result.exit_code:
                return result.stderr.strip().removeprefix("Error: ")
            lines = result.stdout.splitlines()
            return next((line for line in lines if "did you mean" in line), lines[1])

    def annotation(self, name: str, text: str) -> str:
        """What the log, an event and the HPA's page say of an annotation of an HPA."""
        return "\n".join(parse_annotations({f"milliscale.io/{name}": text}).problems)

    def what_if(self, **parameters: str) -> str:
        """The errors in the form of a what-if."""
        hpa = parse_hpa_document(hpa_document(pods_metric("rps", "50")), "hpa.yaml").hpa
        form = read_form(hpa, Query(tuple(parameters.items())), Config())
        return "\n".join(
            [*form.errors, *[each for part in form.sections for one in part.fields for each in one.errors]]
        )

    # --- replay and tune

    def replay_hpa(self, *path: str | int, value: Any) -> str:
        """`replay --hpa hpa.yaml --csv load.csv` with one field of the HPA changed; None: left out."""
        document = hpa_document(pods_metric("rps", "50"), max_replicas=10)
        part: Any = document
        for key in path[:-1]:
            part = part.setdefault(key, {}) if isinstance(part, dict) else part[key]
        part[path[-1]] = value
        if value is None:
            del part[path[-1]]
        Path("hpa.yaml").write_text(yaml.safe_dump(document))
        return self._replayed("--hpa=hpa.yaml", "--csv=load.csv", "--pod-startup=30s")

    def replay(self, *flags: str, load: str = "", startup: bool = True) -> str:
        """`replay` with these flags of an HPA in a file, on the load in a CSV file."""
        Path("hpa.yaml").write_text(yaml.safe_dump(hpa_document(pods_metric("rps", "50"), max_replicas=10)))
        return self._replayed(*flags, *(["--pod-startup=30s"] if startup else []), load=load)

    def tune(self, *flags: str) -> str:
        """`tune` of an HPA in a file, on the load in a CSV file."""
        Path("hpa.yaml").write_text(yaml.safe_dump(hpa_document(pods_metric("rps", "50"), max_replicas=10)))
        return self._replayed("--hpa=hpa.yaml", "--csv=load.csv", "--pod-startup=30s", *flags, command="tune")

    def _replayed(self, *flags: str, command: str = "replay", load: str = "") -> str:
        rows = "".join(f"{START + 60 * minute},100\n" for minute in range(10))
        Path("load.csv").write_text(load or f"timestamp,rps\n{rows}")
        return run(autoscaler, command, *flags)

    # --- the plugin

    def plugin(self, *arguments: str, kubectl: str = "") -> str:
        """A command of `kubectl milliscale`, with a kubectl that prints an error and ends; "": without one."""
        path = os.environ["PATH"]
        if kubectl:
            Path("kubectl").write_text(f"#!/bin/sh\necho '{kubectl}' >&2\nexit 1\n")
            Path("kubectl").chmod(0o755)
        try:
            os.environ["PATH"] = str(Path().absolute())
            return run(plugin, *arguments)
        finally:
            os.environ["PATH"] = path


def _changed(tree: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy with some keys changed; without those that are None."""
    merged = {**copy.deepcopy(dict(tree)), **changes}
    return {key: value for key, value in merged.items() if value is not None}
