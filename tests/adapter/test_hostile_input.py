"""Any request gets a response or a Status, no other exception, and only data that was authorized."""

import contextlib
import json
import string
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock
from urllib.parse import quote

from aiohttp import web
from aiohttp.test_utils import make_mocked_request
from hypothesis import given, settings
from hypothesis import strategies as st
from multidict import CIMultiDict

from adapter.content.encoding import Representation
from adapter.serving.discovery import Discovery
from adapter.serving.routes import Router
from adapter.serving.server import RequestServer
from adapter.telemetry import Telemetry
from kube.api.status import StatusError
from kube.security.authentication import Authenticator, TokenReviewer
from kube.security.authorization import AuthorizationOptions, Authorizer
from kube.security.trust import ClientTrust
from kube.serving.health import Health
from kube.serving.options import ServerLimits
from tests.adapter.metrics_env import MetricsEnv, metrics_env, objects, packets, vector
from tests.adapter.serving import CannedMetrics, CannedNames, parsed_request
from tests.kube.access_api import AccessApi, Authorities

# Pieces that mean something, among others that do not.
SEGMENTS = st.one_of(
    st.sampled_from(
        ("namespaces", "metrics", "pods", "pods.", "a.b.c", "*", "%2A", "watch", "proxy", "status", "..", "%2e%2e", "")
    ),
    st.text(alphabet=string.printable.replace("?", "").replace("/", ""), max_size=8),
    st.text(max_size=4),
)
PARAMETERS = st.sampled_from(["labelSelector", "metricLabelSelector", "fieldSelector", "pretty", "watch", "foo"])
SELECTORS = st.one_of(st.text(alphabet="ab=!,()<> in", max_size=12), st.text(max_size=6))
PREFIXES = st.sampled_from(
    [
        "",
        "/apis",
        "/apis/custom.metrics.k8s.io/v1beta2",
        "/apis/custom.metrics.k8s.io/v1beta1/namespaces",
        "/apis/external.metrics.k8s.io/v1beta1/namespaces",
    ]
)
TARGETS = st.builds(
    lambda prefix, segments, pairs: (
        prefix
        + "".join(f"/{segment}" for segment in segments)
        + "?"
        + "&".join(f"{key}={value}" for key, value in pairs)
    ),
    PREFIXES,
    st.lists(SEGMENTS, max_size=6),
    st.lists(st.tuples(PARAMETERS, SELECTORS), max_size=2),
)
ROUTER = Router(
    discovery=Discovery(cast("Any", CannedNames()), custom=True, external=True, port=6443),
    custom=cast("Any", CannedMetrics()),
    external=cast("Any", CannedMetrics()),
    health=Health(live={}, ready={}),
    telemetry=Telemetry(),
)


@given(method=st.sampled_from(["GET", "HEAD", "POST", "DELETE", "FOO"]), raw=TARGETS, accept=st.text(max_size=20))
@settings(max_examples=100)
async def test_any_request_gets_a_response_or_a_status(method: str, raw: str, accept: str) -> None:
    try:
        response = await ROUTER.respond(parsed_request(raw, method=method, accept=accept))
        code = response.status
    except StatusError as error:
        code = error.code
        Representation().encode_error(error)
    assert code == 200 or 400 <= code < 500


@given(raw=TARGETS)
@settings(max_examples=100)
async def test_response_is_for_the_authorized_request(raw: str) -> None:
    """The data path gets exactly the resource, name, metric and namespace of the authorized attributes."""
    metrics = CannedMetrics()
    router = Router(
        discovery=Discovery(cast("Any", CannedNames()), custom=True, external=True, port=6443),
        custom=cast("Any", metrics),
        external=cast("Any", metrics),
        health=Health(live={}, ready={}),
        telemetry=Telemetry(),
    )
    with contextlib.suppress(StatusError):
        request = parsed_request(raw)
        info = request.info
        await router.respond(request)
    for received in metrics.requests:
        assert info.is_resource
        if info.group == "external.metrics.k8s.io":
            assert (info.resource, info.namespace) == (received["metric"], received["namespace"])
        elif (received["resource"], received["namespace"]) == ("namespaces", ""):
            assert (info.resource, info.name, info.namespace) == ("metrics", received["metric"], received["name"])
        else:
            assert (info.namespace, info.subresource) == (received["namespace"], received["metric"])
            assert info.resource.partition(".")[::2] == (received["resource"], received["group"])
            assert info.name == received["name"]


class AnyList(dict[str, Any]):
    """The handlers of an API server that has every list, with the same objects in each."""

    def get(self, path: str, default: Any = None) -> Any:
        """What is scripted, or a list."""
        return super().get(path) or objects("web-0", "a.b")


PATHS = st.builds(
    lambda *parts: "/" + "/".join(parts),
    st.sampled_from(["apis/custom.metrics.k8s.io/v1beta1", "apis/custom.metrics.k8s.io/v1beta2"]),
    st.sampled_from(["namespaces/ns-1", "namespaces/*", "namespaces/%C3%A9", "x"]),
    st.sampled_from(
        ["pods", "services", "deployments.apps", "tenants.example.com", "nodes", "metrics", "nosuch", "p%00"]
    ),
    st.one_of(st.just("*"), st.sampled_from(["web-0", "a.b", "%2A", "a%7Cb", "(", "%F0%9F%92%A5", "%ff", "a" * 300])),
    st.sampled_from(["http_packets_per_second", "conn_open", "edge_value", "dep_lag", "nosuch", 'a"b']),
) | st.builds(
    lambda namespace, metric: f"/apis/external.metrics.k8s.io/v1beta1/namespaces/{namespace}/{metric}",
    st.sampled_from(["ns-1", "*", "%22", ""]),
    st.sampled_from(["queue_depth", "global_backlog", "nosuch", "%0A"]),
)
TEXTS = st.text(max_size=12).map(quote) | st.text(alphabet='ab=!,()<> in"\\*{}~|.\x00é', max_size=16).map(quote)
TERMS = st.sampled_from(
    [
        "app=web",
        "a!=b",
        "a+in+(b,c)",
        'a+notin+("})',
        "!a",
        "a>1",
        "a.b/c=d",
        "9a=b",
        "=",
        "a=(((",
        "a=%22%7D%20or%20x%7B",
        "%",
    ]
)
QUERIES = st.lists(
    st.builds(
        lambda key, value: f"{key}={value}",
        st.sampled_from(
            [
                "labelSelector",
                "metricLabelSelector",
                "fieldSelector",
                "limit",
                "timeout",
                "timeoutSeconds",
                "pretty",
                "hash",
            ]
        ),
        TERMS | TEXTS,
    ),
    max_size=3,
).map("&".join)
HEADERS = st.lists(
    st.tuples(
        st.sampled_from(["Accept", "Authorization", "X-Remote-User", "User-Agent", "If-None-Match", "Accept-Encoding"]),
        st.one_of(
            st.sampled_from(
                [
                    "Bearer x",
                    "Bearer " + "y" * 9000,
                    "application/yaml",
                    "application/vnd.kubernetes.protobuf",
                    "*/*;q=x",
                ]
            ),
            st.text(alphabet=st.characters(min_codepoint=32, max_codepoint=255), max_size=20),
        ),
    ),
    max_size=3,
)
OTHERS = st.sampled_from(
    ["/", "/apis", "/openapi/v2", "/openapi/v3/apis", "/metrics", "/version", "/readyz", "/livez/ping", "//", "/é"]
)
REQUESTS = st.tuples(st.sampled_from(["GET", "GET", "GET", "HEAD", "POST", "TRACE"]), PATHS | OTHERS, QUERIES, HEADERS)
SAMPLES = st.lists(
    st.tuples(
        st.dictionaries(st.sampled_from(["pod", "namespace", "service", "node", "__name__", "x"]), st.text(max_size=4)),
        st.floats(),
    ),
    max_size=3,
)


# A connection without TLS, and so without a certificate.
PLAIN = Mock(**{"get_extra_info.return_value": None})


@given(requests=st.lists(REQUESTS, min_size=20, max_size=60), samples=SAMPLES)
@settings(max_examples=10)
async def test_whole_server_never_fails(requests: list[Any], samples: list[tuple[dict[str, str], float]]) -> None:
    """From the request's head through authentication, rules and PromQL to the body: no 5xx, nothing unreadable."""
    rules, prometheus = packets()
    prometheus.result = vector(({"pod": "web-0", "namespace": "ns-1"}, 1.0), *samples)
    with tempfile.TemporaryDirectory() as folder:
        async with metrics_env(Path(folder), rules, prometheus) as env:
            access = AccessApi(Authorities())
            access.allowed = lambda _: True
            access.tokens["x"] = {"username": "bob"}
            env.api.handlers = AnyList(env.api.handlers)
            access.script(env.api)
            await env.catalog.relist()
            server = app(env)
            for method, path, query, headers in requests:
                request = make_mocked_request(method, f"{path}?{query}", CIMultiDict(headers), transport=PLAIN)
                received = await server.respond(request, None)
                assert isinstance(received, web.Response)
                assert received.status < 500, (method, path, query, received.body)
                if received.content_type == "application/json" and received.status != 301:
                    assert isinstance(received.body, bytes)
                    assert not received.body or isinstance(json.loads(received.body), dict)


def app(env: MetricsEnv) -> RequestServer:
    """Everything behind the socket."""
    telemetry = Telemetry()
    discovery = Discovery(env.catalog, custom=True, external=True, port=6443)
    router = Router(
        discovery=discovery,
        custom=env.custom,
        external=env.external,
        health=Health(live={}, ready={}),
        telemetry=telemetry,
    )
    return RequestServer(
        authenticator=Authenticator(ClientTrust, TokenReviewer(env.client, ttl=10.0)),
        authorizer=Authorizer(env.client, AuthorizationOptions()),
        rule_sets=cast("Any", SimpleNamespace(current=SimpleNamespace(router=router))),
        telemetry=telemetry,
        limits=ServerLimits(),
        is_overloaded=lambda _: False,
    )
