"""External metrics without a rule are forwarded to other adapters, over TLS."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import itertools
import json
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import parse_qs, quote

import pytest
from aiohttp import web
from click.testing import CliRunner

from adapter.cli import main
from adapter.content.encoding import Representation
from adapter.content.values import EXTERNAL_GROUP, ExternalMetricValue
from adapter.metrics.external import ExternalMetrics
from adapter.metrics.forward import Forwarder, OtherAdapter
from adapter.planning.rule_queries import RuleQueries
from adapter.rules import ForwardOptions, RulesFile, parse_rules
from adapter.serving.discovery import Discovery
from adapter.telemetry import RuleTelemetry
from kube.api.status import StatusError
from kube.values.selectors import LabelSelector
from playground.certs import CertificateAuthority
from playground.ports import free_port
from tests.adapter.metrics_env import NOW, CannedPrometheus, external_request, metrics_env, packets, vector
from tests.eventually import eventually
from tests.kube.scripted import Held, ScriptedServer, raw, respond

API = "/apis/external.metrics.k8s.io/v1beta1"
VALUES = {
    "kind": "ExternalMetricValueList",
    "apiVersion": "external.metrics.k8s.io/v1beta1",
    "metadata": {},
    "items": [
        {
            "metricName": "s0-queue",
            "metricLabels": {"queue": "a"},
            "timestamp": "2023-11-14T22:13:20Z",
            "value": "1500m",
        },
        {"metricName": "s0-queue", "metricLabels": None, "timestamp": None, "value": "2k", "windowSeconds": 60},
    ],
}


@contextlib.asynccontextmanager
async def other_adapter(folder: Path) -> AsyncIterator[tuple[ScriptedServer, ForwardOptions]]:
    """Another adapter, with a serving certificate, which also requests client certificates."""
    authority = CertificateAuthority.create("other")
    (folder / "ca.pem").write_bytes(authority.cert_pem)
    for name, pair in (
        ("server", authority.issue("other", hosts=("127.0.0.1",), server=True)),
        ("client", authority.issue("milliscale", client=True)),
    ):
        (folder / f"{name}.pem").write_bytes(pair.cert_pem)
        (folder / f"{name}.key").write_bytes(pair.key_pem)
    (folder / "token").write_text("secret\n")
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=folder / "ca.pem")
    tls.load_cert_chain(folder / "server.pem", folder / "server.key")
    tls.verify_mode = ssl.CERT_REQUIRED
    server = ScriptedServer()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", server.handle)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
        server.url = f"https://127.0.0.1:{runner.addresses[0][1]}"
        server.handlers[API] = respond({"resources": [{"name": "s0-queue"}, {"name": "queue_depth"}]})
        server.handlers[f"{API}/namespaces/shop/s0-queue"] = respond(VALUES)
        yield (
            server,
            ForwardOptions(
                url=server.url,
                ca_file=folder / "ca.pem",
                cert_file=folder / "client.pem",
                key_file=folder / "client.key",
                token_file=folder / "token",
                timeout=5.0,
            ),
        )
    finally:
        await runner.cleanup()


@contextlib.asynccontextmanager
async def forwarding(
    folder: Path, *options: ForwardOptions, rules: RulesFile | None = None, freshness: float = 0.0
) -> AsyncIterator[tuple[ExternalMetrics, Discovery, Forwarder, CannedPrometheus]]:
    """External metrics of rules and of another adapter, both listed once."""
    known, prometheus = packets()
    async with (
        metrics_env(folder, rules or known, prometheus) as env,
        Forwarder(options, relist_interval=60, ttl=freshness, clock=lambda: NOW) as forwarder,
    ):
        await env.catalog.relist()
        queries = RuleQueries(prometheus, telemetry=RuleTelemetry())
        external = ExternalMetrics(env.catalog, queries, forwarder=forwarder)
        keeping = asyncio.create_task(forwarder.run())
        try:
            discovery = Discovery(env.catalog, custom=False, external=True, port=1, forwarded=lambda: forwarder.names)
            yield external, discovery, forwarder, prometheus
        finally:
            keeping.cancel()
            await asyncio.wait((keeping,))


async def listed(forwarder: Forwarder) -> None:
    async def has_names() -> bool:
        return any(forwarder.names)

    await eventually(has_names, within=10, every=0.01)


async def fetch(
    external: ExternalMetrics, metric: str, selector: str = "", *, timeout: float = 5
) -> list[ExternalMetricValue]:
    return await external.values(
        external_request(namespace="shop", metric=metric, selector=LabelSelector.parse(selector), seconds=timeout)
    )


def hold(server: ScriptedServer, metric: str) -> Held:
    """Let a metric have the values of s0-queue once the test opens the response."""
    held = Held(server.handlers[f"{API}/namespaces/shop/s0-queue"])
    server.handlers[f"{API}/namespaces/shop/{metric}"] = held
    return held


async def test_metric_without_a_rule_is_forwarded(tmp_path: Path) -> None:
    async with other_adapter(tmp_path) as (server, options), forwarding(tmp_path, options) as (external, _, _, _):
        values = await fetch(external, "s0-queue", "scaledobject.keda.sh/name=web")
        assert values == [
            ExternalMetricValue(
                metric="s0-queue", labels={"queue": "a"}, timestamp=NOW, window_seconds=None, milli=1500
            ),
            ExternalMetricValue(metric="s0-queue", labels=None, timestamp=NOW, window_seconds=60, milli=2_000_000),
        ]
        [request] = [line for line in server.requests if "s0-queue" in line]
        assert request.startswith(
            f"GET {API}/namespaces/shop/s0-queue?timeout=5.000s&labelSelector=scaledobject.keda.sh"
        )
        assert {headers["Authorization"] for headers in server.headers} == {"Bearer secret"}


async def test_concurrent_requests_for_the_same_metric_are_one(tmp_path: Path) -> None:
    async with other_adapter(tmp_path) as (server, options), forwarding(tmp_path, options) as (external, _, _, _):
        held = hold(server, "held")
        waiting = [asyncio.create_task(fetch(external, "held")) for _ in range(50)]
        hurried = asyncio.create_task(fetch(external, "held", timeout=0.01))
        await asyncio.wait_for(held.arrived.wait(), 60)
        with pytest.raises(StatusError) as late:
            await hurried
        assert late.value.code == 504
        held.open.set()
        assert all(len(values) == 2 for values in await asyncio.gather(*waiting))
        assert held.times == 1
        await fetch(external, "held")
        assert held.times == 2, "nothing is kept without freshness"


async def test_forwarded_values_are_cached_with_their_timestamps(tmp_path: Path) -> None:
    async with (
        other_adapter(tmp_path) as (server, options),
        forwarding(tmp_path, options, freshness=60.0) as (external, _, _, _),
    ):
        first = await fetch(external, "s0-queue")
        again = [await fetch(external, "s0-queue") for _ in range(20)]
        assert all(values == first for values in again)
        assert [value.timestamp for value in first] == [NOW, NOW]
        requests = [line for line in server.requests if "s0-queue" in line]
        assert len(requests) == 1


async def test_namespace_metric_and_selector_are_in_the_cache_key(tmp_path: Path) -> None:
    async with (
        other_adapter(tmp_path) as (server, options),
        forwarding(tmp_path, options, freshness=60.0) as (external, _, _, _),
    ):
        requests = [(space, metric, text) for space in "ab" for metric in ("x", "y") for text in ("", "q=1", "q=2")]

        async def echo(request: web.Request) -> web.StreamResponse:
            *_, space, metric = request.path.split("/")
            item = {"metricName": f"{space} {metric} {request.query.get('labelSelector', '')}", "value": "1"}
            return web.json_response({"items": [item]})

        for space, metric, _ in requests:
            server.handlers[f"{API}/namespaces/{space}/{metric}"] = echo
        for _ in range(2):
            for space, metric, text in requests:
                selector = LabelSelector.parse(text)
                [value] = await external.values(
                    external_request(namespace=space, metric=metric, selector=selector, seconds=5)
                )
                assert value.metric == f"{space} {metric} {text}"
        assert len([line for line in server.requests if "/namespaces/" in line]) == len(requests)


async def test_next_version_starts_with_the_names_of_the_same_adapter(tmp_path: Path) -> None:
    async with other_adapter(tmp_path) as (server, options), forwarding(tmp_path, options) as (_, _, forwarder, _):
        await listed(forwarder)
        server.requests.clear()
        same, another = (
            Forwarder((one,), relist_interval=60) for one in (options, dataclasses.replace(options, timeout=4.0))
        )
        for following in (same, another):
            await following.carry_over(forwarder)
        assert same.names == forwarder.names
        assert another.names == ((),)
        await same.wait_tried()
        async with another, asyncio.TaskGroup() as tasks:
            listing = tasks.create_task(another.run())
            await another.wait_tried()
            assert another.names == forwarder.names
            listing.cancel()


@pytest.mark.looptime
async def test_failed_lists_are_retried_with_backoff_until_one_succeeds(monkeypatch: pytest.MonkeyPatch) -> None:
    times = list[float]()

    async def relist(_: OtherAdapter) -> bool:
        times.append(asyncio.get_running_loop().time())
        return len(times) in (3, 5)

    monkeypatch.setattr(OtherAdapter, "_relist", relist)
    [adapter] = Forwarder((ForwardOptions(url="https://keda"),), relist_interval=60).adapters
    listing = asyncio.create_task(adapter.run())
    await asyncio.sleep(70)
    listing.cancel()
    first, second, interval, third = (after - before for before, after in itertools.pairwise(times))
    assert 1 <= first < 1.3 < second < 3
    assert 54 <= interval <= 60
    assert 1 <= third < 1.3, "after a success, the first wait is short again"


async def test_rules_come_first_and_discovery_has_both(tmp_path: Path) -> None:
    async with (
        other_adapter(tmp_path) as (server, options),
        forwarding(tmp_path, options) as (external, discovery, forwarder, prometheus),
    ):
        await listed(forwarder)
        document = await discovery.resources(EXTERNAL_GROUP, "v1beta1", Representation())
        names = [resource["name"] for resource in json.loads(document.body)["resources"]]
        assert names == ["backlog", "queue_depth", "s0-queue"]
        assert "backlog" in discovery.external_names
        assert await discovery.resources(EXTERNAL_GROUP, "v1beta1", Representation()) is document
        prometheus.result = vector(({"queue": "a"}, 3))
        assert [value.milli for value in await fetch(external, "queue_depth")] == [3000]
        assert not any("queue_depth" in line for line in server.requests)


@pytest.mark.parametrize(
    ("status", "body", "code", "message"),
    [
        (404, {"kind": "Status", "reason": "NotFound", "message": "no such metric"}, 404, "no such metric"),
        (500, {"kind": "Status", "reason": "InternalError", "message": "scaler down"}, 500, "scaler down"),
        (403, {"kind": "Status", "reason": "Forbidden", "message": "you may not"}, 503, "does not accept this adapter"),
        (401, {"kind": "Status", "reason": "Unauthorized", "message": "who?"}, 503, "does not accept this adapter"),
        (200, {"items": [{"metricName": "a", "value": "many"}]}, 503, "sent an unusable response"),
        (200, {"items": [{"metricName": "a", "value": "1", "timestamp": "noon"}]}, 503, "sent an unusable response"),
        (200, {"items": {}}, 503, "sent an unusable response"),
    ],
)
async def test_errors_of_the_other_adapter_are_passed_on(
    tmp_path: Path, status: int, body: dict[str, object], code: int, message: str
) -> None:
    async with other_adapter(tmp_path) as (server, options), forwarding(tmp_path, options) as (external, _, _, _):
        server.handlers[f"{API}/namespaces/shop/x"] = raw(json.dumps(body).encode(), status=status)
        with pytest.raises(StatusError) as refused:
            await fetch(external, "x")
        assert (refused.value.code, message in refused.value.message) == (code, True)


async def test_redirect_is_not_followed(tmp_path: Path) -> None:
    async with other_adapter(tmp_path) as (server, options), forwarding(tmp_path, options) as (external, _, _, _):

        async def elsewhere(_: web.Request) -> web.StreamResponse:
            return web.Response(
                status=302, text="{}", headers={"Location": f"{server.url}{API}/namespaces/shop/s0-queue"}
            )

        server.handlers[f"{API}/namespaces/shop/moved"] = elsewhere
        with pytest.raises(StatusError) as refused:
            await fetch(external, "moved")
        assert refused.value.code >= 500
        assert not any("s0-queue" in line for line in server.requests)


async def test_slow_adapter_is_a_timeout_and_missing_one_unavailable(tmp_path: Path) -> None:
    async with other_adapter(tmp_path) as (server, options), forwarding(tmp_path, options) as (external, _, _, _):

        async def never(request: web.Request) -> web.StreamResponse:
            await asyncio.Event().wait()
            raise AssertionError

        server.handlers[f"{API}/namespaces/shop/slow"] = never
        with pytest.raises(StatusError) as refused:
            await external.values(
                external_request(namespace="shop", metric="slow", selector=LabelSelector(), seconds=0.2)
            )
        assert refused.value.code == 504
    async with forwarding(tmp_path, options) as (external, _, _, _):
        with pytest.raises(StatusError) as refused:
            await fetch(external, "x")
        assert (refused.value.code, "127.0.0.1" in refused.value.message) == (503, False)


async def test_names_are_escaped_in_the_path(tmp_path: Path) -> None:
    """A path or a query in a name must not use this adapter's rights at the other adapter."""
    async with (
        other_adapter(tmp_path) as (server, options),
        forwarding(tmp_path, options) as (external, _, forwarder, _),
    ):
        await listed(forwarder)
        for namespace, metric in (("shop", "a?labelSelector=b"), ("shop?x=", "a"), ("../..", "a"), ("shop", "a#b/c")):
            server.requests.clear()
            with pytest.raises(StatusError):
                await external.values(
                    external_request(namespace=namespace, metric=metric, selector=LabelSelector(), seconds=5)
                )
            [request] = [one for one in server.requests if one != f"GET {API}"]
            path, _, query = request.removeprefix("GET ").partition("?")
            assert path == f"{API}/namespaces/{quote(namespace, safe='')}/{quote(metric, safe='')}"
            assert set(parse_qs(query)) == {"timeout"}


async def test_before_the_first_relist_only_listed_metrics_are_forwarded(tmp_path: Path) -> None:
    rules = parse_rules("externalRules: [{seriesQuery: gone, metricsQuery: x}]", source="x")
    async with (
        other_adapter(tmp_path) as (_, options),
        metrics_env(tmp_path, rules, CannedPrometheus()) as env,
        Forwarder((options,), relist_interval=60) as forwarder,
    ):
        queries = RuleQueries(env.prometheus, telemetry=RuleTelemetry())
        external = ExternalMetrics(env.catalog, queries, forwarder=forwarder)
        keeping = asyncio.create_task(forwarder.run())
        await listed(forwarder)
        assert len(await fetch(external, "s0-queue")) == 2
        with pytest.raises(StatusError) as refused:
            await fetch(external, "unknown")
        assert refused.value.code == 503
        keeping.cancel()
        await asyncio.wait((keeping,))


async def explained(folder: Path, options: ForwardOptions, metric: str, *arguments: str) -> tuple[int, str]:
    """What `explain` prints of an external metric where another adapter is behind this one, and no Prometheus."""
    keys = {"ca": options.ca_file, "cert": options.cert_file, "key": options.key_file, "token": options.token_file}
    files = "".join(f"  {name}File: {path}\n" for name, path in keys.items() if path is not None)
    (folder / "rules.yaml").write_text(f"forwardExternal:\n  url: {options.url}\n{files}")
    flags = [f"--config={folder / 'rules.yaml'}", f"--prometheus-url=http://127.0.0.1:{free_port()}"]
    run = functools.partial(CliRunner().invoke, main, ["explain", f"external/{metric}", *flags, *arguments])
    result = await asyncio.to_thread(run)
    return result.exit_code, result.output


async def test_explain_queries_the_other_adapter(tmp_path: Path) -> None:
    async with other_adapter(tmp_path) as (server, options):
        url = options.url.replace("https://", "https://user:password@")
        with_password = dataclasses.replace(options, url=url, token_file=None)
        code, text = await explained(tmp_path, with_password, "s0-queue", "-n", "shop", "--metric-selector=a=b")
        assert code == 0
        assert text.splitlines() == [
            f"external/s0-queue is made by no rule, and the adapter of forwardExternal ({server.url}) has it",
            "  value  1500m  queue=a",
            "  value  2k",
        ]
        assert any("s0-queue" in line and "labelSelector=a%3Db" in line for line in server.requests)


async def test_explain_shows_the_response_and_how_to_get_it(tmp_path: Path) -> None:
    async with other_adapter(tmp_path) as (server, options):
        body = {"kind": "Status", "reason": "NotFound", "message": "no such scaler"}
        server.handlers[f"{API}/namespaces/default/x"] = raw(json.dumps(body).encode(), status=404)
        server.handlers[f"{API}/namespaces/shop/x"] = respond({"items": []})
        missing = await explained(tmp_path, options, "x")
        empty = await explained(tmp_path, options, "x", "-n", "shop")
    unreachable = await explained(tmp_path, options, "x", "-n", "shop")
    heading = f"  - the adapter of forwardExternal ({options.url}), in namespace"
    for code, text in (missing, empty, unreachable):
        assert code == 1
        assert text.startswith("external/x not found\n")
    assert f"{heading} default: no such scaler\n" in missing[1]
    assert f"{heading} shop: there is no value now\n" in empty[1]
    assert f"{heading} shop: the adapter that external metrics are forwarded to cannot be reached (" in unreachable[1]
    assert unreachable[1].endswith(f"in the cluster: kubectl get --raw {API}/namespaces/shop/x\n")
