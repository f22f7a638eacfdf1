"""Paths, parameters and responses that tests.golden has no recording of; those there are prometheus-adapter's."""

from typing import Any
from urllib.parse import quote

import msgspec
import pytest
import yaml

from kube.api.status import service_unavailable
from tests.adapter.serving import EXTERNAL_PATH, POD_PATH, Reply, ServedAdapter

# All tests of this file share one adapter, the fixture of conftest.
pytestmark = pytest.mark.asyncio(loop_scope="module")

G2 = "/apis/custom.metrics.k8s.io/v1beta2"
NO_ROUTE = "the server could not find the requested resource"
NO_WATCH = 'watch is not supported on resources of kind "*.external.metrics.k8s.io"'
INVALID = 'ListOptions.meta.k8s.io "" is invalid: '
NO_NUMBER = "strconv.ParseInt: parsing "
NO_TYPE = (
    "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, "
    "application/vnd.kubernetes.protobuf, application/json;stream=watch, "
    "application/vnd.kubernetes.protobuf;stream=watch"
)
NO_CONVERSION = (
    "only the following media types are accepted: application/json, application/yaml, "
    "application/vnd.kubernetes.protobuf"
)


@pytest.mark.parametrize(
    "query",
    [
        "x=%ff&labelSelector=app%3Dweb",
        "labelSelector=app%3Dapi;x&labelSelector=app%3Dweb",
        "labelSelector=app%zz&labelSelector=app%3Dweb",
        "a;b=1&%gg=1&labelSelector=app%3Dweb&%",
        "&&labelSelector=app%3Dweb&" + "x=1&" * 500,
    ],
)
async def test_parameters_that_mean_nothing_are_left_out_as_go_does(adapter: ServedAdapter, query: str) -> None:
    assert (await adapter.request_as_master(f"{G2}/namespaces/ns-1/pods/*/m?{query}")).status == 200
    (arguments,) = adapter.metrics.requests
    assert str(arguments["selector"]) == "app=web"


async def test_bytes_that_are_no_text_can_be_spoken_of(adapter: ServedAdapter) -> None:
    reply = await adapter.request_as_master(f"{POD_PATH}?labelSelector=a+%ff")
    assert (reply.status, reply.json["message"]) == (
        400,
        "unable to parse requirement: found '\ufffd', expected: in, notin, =, ==, !=, gt, lt",
    )


@pytest.mark.parametrize(
    ("selector", "message"),
    [
        ("a/b/c", "a qualified name must consist of alphanumeric"),
        ("k" * 64, "name part must be no more than 63 characters"),
        ("p" * 254 + "/k", "prefix part must be no more than 253 characters"),
        ("a=" + "v" * 64, "must be no more than 63 characters"),
    ],
)
async def test_errors_in_selectors_are_in_the_words_of_prometheus_adapter(
    adapter: ServedAdapter, selector: str, message: str
) -> None:
    for path in (f"{POD_PATH}?labelSelector", f"{POD_PATH}?metricLabelSelector", f"{EXTERNAL_PATH}?labelSelector"):
        reply = await adapter.request_as_master(f"{path}={quote(selector, safe='')}")
        assert reply.status == 400
        assert message in reply.json["message"]


@pytest.mark.parametrize(
    ("path", "status", "message"),
    [
        (f"{G2}/namespaces/ns-1/pods/a%2Fb/m", 404, NO_ROUTE),
        (f"{G2}/nodes", 404, NO_ROUTE),
        (f"{G2}/namespaces/ns-1/pods/../m", 400, "invalid request path"),
        (f"{G2}/namespaces/ns-1/pods/%2e%2e/m", 400, "invalid request path"),
        (f"{G2}/namespaces//pods/pod-1-0/m", 400, "invalid request path"),
        (f"{G2}/namespaces/ns-1/pods/a%00b/m", 400, "invalid request path"),
        (f"{G2}/namespaces/ns-1/pods/a%zz/m", 400, "invalid request path"),
        (f"{G2}/namespaces/ns-1/pods/a%2/m", 400, "invalid request path"),
        (f"{G2}/namespaces/ns-1/pods/%ff/m", 400, "invalid request path: it is not UTF-8"),
        (POD_PATH + "?" + "x&" * 1000, 400, "the query has more than 1000 parameters"),
        (f"{EXTERNAL_PATH}?watch", 405, NO_WATCH),
        (
            f"{EXTERNAL_PATH}?resourceVersionMatch=x&sendInitialEvents=true&resourceVersion=0&continue=y",
            422,
            INVALID
            + "[resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden when continue is provided, "
            + 'resourceVersionMatch: Unsupported value: "x": supported values: "Exact", "NotOlderThan", "", '
            + "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list]",
        ),
        (
            f"{EXTERNAL_PATH}?resourceVersionMatch=Exact&resourceVersion=0",
            422,
            INVALID
            + 'resourceVersionMatch: Forbidden: resourceVersionMatch "exact" is forbidden for resourceVersion "0"',
        ),
        (f"{EXTERNAL_PATH}?timeoutSeconds=1.5", 400, NO_NUMBER + '"1.5": invalid syntax'),
        (f"{POD_PATH}?limit=9223372036854775808", 400, NO_NUMBER + '"9223372036854775808": value out of range'),
    ],
)
async def test_refusals(adapter: ServedAdapter, path: str, status: int, message: str) -> None:
    assert_refused(await adapter.request_as_master(path), status, message)


async def test_path_of_nothing_is_not_found_with_any_method(adapter: ServedAdapter) -> None:
    assert_refused(await adapter.request_as_master(f"{G2}/nodes/node-1", method="POST"), 404, NO_ROUTE)


@pytest.mark.parametrize(
    ("path", "accept", "message"),
    [
        (POD_PATH, "application/cbor", NO_TYPE),
        (POD_PATH, "json", NO_TYPE),
        ("/apis", "text/html", NO_TYPE.partition(", application/json;stream")[0]),
        ("/apis", "application/json;g=x", NO_CONVERSION),
    ],
)
async def test_media_types_that_are_not_available_are_refused(
    adapter: ServedAdapter, path: str, accept: str, message: str
) -> None:
    assert_refused(await adapter.request_as_master(path, headers={"Accept": accept}), 406, message)


def assert_refused(reply: Reply, status: int, message: str) -> None:
    assert (reply.status, reply.json["message"]) == (status, message)
    assert (reply.json["kind"], reply.json["apiVersion"], reply.json["status"]) == ("Status", "v1", "Failure")
    assert (reply.json["code"], reply.content_type) == (status, "application/json")


async def test_unacceptable_media_type_makes_no_query(adapter: ServedAdapter) -> None:
    adapter.metrics.error = service_unavailable("unable to fetch metrics")
    headers = {"Accept": "application/json;as=Table;g=meta.k8s.io;v=v1"}
    assert (await adapter.request_as_master(EXTERNAL_PATH, headers=headers)).status == 406


@pytest.mark.parametrize("path", ["/healthz", "/readyz/ping", POD_PATH])
async def test_health_and_error_responses_have_nosniff(adapter: ServedAdapter, path: str) -> None:
    reply = await adapter.request_as_master(path, headers={"Impersonate-User": "alice"})
    assert reply.headers["X-Content-Type-Options"] == "nosniff"


async def test_parameters_without_an_effect_are_accepted(adapter: ServedAdapter) -> None:
    assert (await adapter.request_as_master(f"{EXTERNAL_PATH}?resourceVersionMatch=")).status == 200
    assert (await adapter.request_as_master(f"{POD_PATH}?limit=-1&timeoutSeconds=%2B5")).status == 200


@pytest.mark.parametrize(
    ("selector", "shown"),
    [
        ("verb!%3DPOST", {"matchExpressions": [{"key": "verb", "operator": "NotIn", "values": ["POST"]}]}),
        ("%21verb", {"matchExpressions": [{"key": "verb", "operator": "DoesNotExist"}]}),
    ],
)
async def test_metric_selector_is_shown_in_every_item(adapter: ServedAdapter, selector: str, shown: Any) -> None:
    reply = await adapter.request_as_master(f"{POD_PATH}?metricLabelSelector={selector}")
    assert reply.json["items"][0]["metric"]["selector"] == shown


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        ("application/*, application/yaml", "application/yaml"),
        ("application/json;charset=utf-8", "application/json"),
        ("application/yaml;q=0, application/json", "application/json"),
    ],
)
async def test_media_type(adapter: ServedAdapter, accept: str, content_type: str) -> None:
    reply = await adapter.request_as_master(POD_PATH, headers={"Accept": accept})
    assert (reply.status, reply.content_type) == (200, content_type)
    body = yaml.safe_load(reply.body) if content_type.endswith("yaml") else msgspec.json.decode(reply.body)
    assert body["items"][0]["value"] == "99994m"


@pytest.mark.parametrize(
    ("query", "user_agent", "indented"),
    [
        ("", "kubectl/v1.36.0", False),
        ("?pretty=true", "kubectl/v1.36.0", True),
        ("", "curl/8.0", True),
        ("?pretty=false", "curl/8.0", False),
    ],
)
async def test_pretty(adapter: ServedAdapter, query: str, user_agent: str, *, indented: bool) -> None:
    reply = await adapter.request_as_master(POD_PATH + query, headers={"User-Agent": user_agent})
    assert (reply.body.count(b"\n") > 1) is indented
    assert reply.json["kind"] == "MetricValueList"


@pytest.mark.parametrize(
    ("path", "accept", "status", "indented"),
    [
        (POD_PATH, "application/json;pretty=1", 200, True),
        (POD_PATH, "application/json;pretty=0", 200, False),
        (POD_PATH, "text/html", 406, True),
        (POD_PATH, "application/json;as=Table;g=meta.k8s.io;v=v1", 406, True),
        ("/", "application/yaml", 200, True),
        ("/nosuch", "application/json", 404, True),
        ("/apis", "application/json", 200, False),
    ],
)
async def test_indented_json_is_the_fallback_as_in_api_servers(
    adapter: ServedAdapter, path: str, accept: str, status: int, *, indented: bool
) -> None:
    reply = await adapter.request_as_master(path, headers={"Accept": accept})
    assert (reply.status, reply.content_type) == (status, "application/json")
    assert (b'{\n  "' in reply.body, reply.body.endswith(b"\n")) == (indented, not indented)


async def test_error_of_the_data_path_is_the_response(adapter: ServedAdapter) -> None:
    adapter.metrics.error = service_unavailable("unable to fetch metrics", retry_after=5)
    reply = await adapter.request_as_master(POD_PATH)
    assert (reply.status, reply.headers["Retry-After"]) == (503, "5")
    assert reply.json["details"] == {"retryAfterSeconds": 5}
