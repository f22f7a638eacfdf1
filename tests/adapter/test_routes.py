"""Paths, parameters and responses: those of prometheus-adapter, behind and beside a kube-apiserver."""

from typing import Any
from urllib.parse import quote

import msgspec
import pytest
import yaml

from kube.api.status import service_unavailable
from tests.adapter.serving import EXTERNAL_PATH, POD_PATH, SAMPLED_TEXT, Reply, ServedAdapter

# All tests of this file share one adapter, the fixture of conftest.
pytestmark = pytest.mark.asyncio(loop_scope="module")

G1 = "/apis/custom.metrics.k8s.io/v1beta1"
G2 = "/apis/custom.metrics.k8s.io/v1beta2"
E = "/apis/external.metrics.k8s.io/v1beta1"
NO_ROUTE = "the server could not find the requested resource"
NO_METHOD = "the server does not allow this method on the requested resource"
NO_IDENTIFIER = "unable to parse requirement: found '=', expected: identifier"
OTHER_NAME = "fieldSelector metadata.name doesn't match requested name"
NO_FIELD = '"spec.nodeName" is not a known field selector: only "metadata.name", "metadata.namespace"'
NO_WATCH = 'watch is not supported on resources of kind "*.external.metrics.k8s.io"'
INVALID = 'ListOptions.meta.k8s.io "" is invalid: '
NO_NUMBER = "strconv.ParseInt: parsing "
NO_TIME = "invalid timeout specified in the request URL - time: "
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
    ("path", "resource", "group", "namespace", "name", "metric"),
    [
        (f"{G2}/namespaces/ns-1/pods/pod-1-0/m", "pods", "", "ns-1", "pod-1-0", "m"),
        (f"{G1}/namespaces/ns-1/pods./pod-1-0/ns:conn:sum", "pods", "", "ns-1", "pod-1-0", "ns:conn:sum"),
        (
            *(f"{G2}/namespaces/ns-1/ingresses.networking.k8s.io/web/hits", "ingresses", "networking.k8s.io"),
            *("ns-1", "web", "hits"),
        ),
        (f"{G2}/nodes/node-1/node_load", "nodes", "", "", "node-1", "node_load"),
        (f"{G2}/namespaces/ns-1/metrics/m", "namespaces", "", "", "ns-1", "m"),
        (f"{G2}/namespaces/ns-1/pods/a%22b/m", "pods", "", "ns-1", 'a"b', "m"),
        (
            *(f"{G2}/namespaces/ns-1/pods/pod-1-0%7Cpod-1-1/m?foo=bar&limit=1&resourceVersion=5", "pods", ""),
            *("ns-1", "pod-1-0|pod-1-1", "m"),
        ),
    ],
)
async def test_named_object(
    adapter: ServedAdapter, path: str, resource: str, group: str, namespace: str, name: str, metric: str
) -> None:
    assert (await adapter.request_as_master(path)).status == 200
    (arguments,) = adapter.metrics.requests
    asked = {"resource": resource, "group": group, "namespace": namespace, "name": name, "metric": metric}
    assert {key: arguments[key] for key in asked} == asked
    assert arguments["metric_selector"].empty
    assert 0 < arguments["seconds"] <= 60
    assert arguments["selector"].empty


@pytest.mark.parametrize(
    ("path", "asked", "selectors"),
    [
        (
            f"{G2}/namespaces/ns-1/pods/*/m?labelSelector=app%3Dapi",
            {"resource": "pods", "namespace": "ns-1", "metric": "m"},
            ("app=api", ""),
        ),
        (
            f"{G2}/namespaces/ns-1/pods/%2A/m?labelSelector=idx+in+%281%2C2%29&metricLabelSelector=verb%3DPOST",
            {"resource": "pods", "namespace": "ns-1", "metric": "m"},
            ("idx in (1,2)", "verb=POST"),
        ),
        (f"{G2}/nodes/*/m?labelSelector=zone%3Da", {"resource": "nodes", "namespace": ""}, ("zone=a", "")),
        (
            f"{G2}/namespaces/*/metrics/m?labelSelector=team%3Deven",
            {"resource": "namespaces", "namespace": "", "metric": "m"},
            ("team=even", ""),
        ),
    ],
)
async def test_all_objects_that_match(
    adapter: ServedAdapter, path: str, asked: dict[str, str], selectors: tuple[str, str]
) -> None:
    assert (await adapter.request_as_master(path)).status == 200
    (arguments,) = adapter.metrics.requests
    assert {key: arguments[key] for key in asked} == asked
    assert (str(arguments["selector"]), str(arguments["metric_selector"])) == selectors


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


async def test_external_metric(adapter: ServedAdapter) -> None:
    path = f"{E}/namespaces/*/queue_depth?labelSelector=queue%3Dq1&metricLabelSelector=is%3Dignored"
    reply = await adapter.request_as_master(path)
    (arguments,) = adapter.metrics.requests
    assert (arguments["namespace"], arguments["metric"], str(arguments["selector"])) == ("*", "queue_depth", "queue=q1")
    assert reply.json == {
        "kind": "ExternalMetricValueList",
        "apiVersion": "external.metrics.k8s.io/v1beta1",
        "metadata": {},
        "items": [
            {
                "metricName": "queue_depth",
                "metricLabels": {"queue": "q1", "tier": "silver"},
                "timestamp": SAMPLED_TEXT,
                "value": "1001",
            }
        ],
    }


@pytest.mark.parametrize(
    ("path", "status", "message"),
    [
        (f"{G2}/namespaces/ns-1/http_packets_per_second", 400, "invalid request path"),
        (f"{G2}/namespaces/ns-1/pods", 400, "invalid request path"),
        (f"{G2}/namespaces/ns-1/pods/pod-1-0", 404, NO_ROUTE),
        (f"{G2}/namespaces/ns-1/pods/pod-1-0/m/x", 404, NO_ROUTE),
        (f"{G2}/namespaces/ns-1/pods/a%2Fb/m", 404, NO_ROUTE),
        (f"{G2}/nodes/node-1", 404, NO_ROUTE),
        (f"{G2}/nodes", 404, NO_ROUTE),
        (f"{E}/namespaces/ns-1/queue_depth/x", 404, NO_ROUTE),
        (f"{E}/queue_depth", 404, NO_ROUTE),
        ("/apis/custom.metrics.k8s.io/v1", 404, NO_ROUTE),
        (f"{G2}/namespaces/ns-1/pods/../m", 400, "invalid request path"),
        (f"{G2}/namespaces/ns-1/pods/%2e%2e/m", 400, "invalid request path"),
        (f"{G2}/namespaces//pods/pod-1-0/m", 400, "invalid request path"),
        (f"{G2}/namespaces/ns-1/pods/a%00b/m", 400, "invalid request path"),
        (f"{G2}/namespaces/ns-1/pods/a%zz/m", 400, "invalid request path"),
        (f"{G2}/namespaces/ns-1/pods/a%2/m", 400, "invalid request path"),
        (f"{G2}/namespaces/ns-1/pods/%ff/m", 400, "invalid request path: it is not UTF-8"),
        (POD_PATH + "?" + "x&" * 1000, 400, "the query has more than 1000 parameters"),
        (f"{POD_PATH}?labelSelector=a%3D%3D%3D", 400, NO_IDENTIFIER),
        (f"{POD_PATH}?metricLabelSelector=a%3D%3D%3D", 400, NO_IDENTIFIER),
        (f"{EXTERNAL_PATH}?labelSelector=a%3D%3D%3D", 400, NO_IDENTIFIER),
        (f"{G2}/namespaces/ns-1/pods/*/m?fieldSelector=metadata.name%3Dpod-1-1", 400, OTHER_NAME),
        (f"{POD_PATH}?fieldSelector=spec.nodeName%3Dx", 400, NO_FIELD),
        (f"{POD_PATH}?fieldSelector=metadata.namespace%3Dns-1", 400, OTHER_NAME),
        (f"{EXTERNAL_PATH}?fieldSelector=spec.nodeName%3Dx", 400, NO_FIELD),
        (f"{EXTERNAL_PATH}?watch=true", 405, NO_WATCH),
        (f"{EXTERNAL_PATH}?watch", 405, NO_WATCH),
        (
            f"{EXTERNAL_PATH}?resourceVersionMatch=Exact",
            422,
            INVALID + "resourceVersionMatch: Forbidden: resourceVersionMatch is"
            " forbidden unless resourceVersion is provided",
        ),
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
        (f"{POD_PATH}?limit=many", 400, NO_NUMBER + '"many": invalid syntax'),
        (f"{EXTERNAL_PATH}?timeoutSeconds=1.5", 400, NO_NUMBER + '"1.5": invalid syntax'),
        (f"{POD_PATH}?limit=9223372036854775808", 400, NO_NUMBER + '"9223372036854775808": value out of range'),
        (f"{POD_PATH}?timeout=soon", 400, NO_TIME + 'invalid duration "soon"'),
        (f"{POD_PATH}?timeout=10", 400, NO_TIME + 'missing unit in duration "10"'),
    ],
)
async def test_refusals(adapter: ServedAdapter, path: str, status: int, message: str) -> None:
    assert_refused(await adapter.request_as_master(path), status, message)


@pytest.mark.parametrize(
    ("method", "path", "status", "message"),
    [
        ("POST", POD_PATH, 405, NO_METHOD),
        ("PUT", POD_PATH, 405, NO_METHOD),
        ("DELETE", POD_PATH, 405, NO_METHOD),
        ("PATCH", POD_PATH, 405, NO_METHOD),
        ("OPTIONS", POD_PATH, 405, NO_METHOD),
        ("FOO", POD_PATH, 405, NO_METHOD),
        ("POST", G2, 405, NO_METHOD),
        ("POST", EXTERNAL_PATH, 405, NO_METHOD),
        ("POST", f"{G2}/nodes/node-1", 404, NO_ROUTE),
    ],
)
async def test_other_methods_than_get_are_refused(
    adapter: ServedAdapter, method: str, path: str, status: int, message: str
) -> None:
    assert_refused(await adapter.request_as_master(path, method=method), status, message)


@pytest.mark.parametrize(
    ("path", "accept", "message"),
    [
        (POD_PATH, "text/html", NO_TYPE),
        (POD_PATH, "application/cbor", NO_TYPE),
        (POD_PATH, "application/*", NO_TYPE),
        (POD_PATH, "Application/JSON", NO_TYPE),
        (POD_PATH, "json", NO_TYPE),
        (G2, "text/html", NO_TYPE.partition(", application/json;stream")[0]),
        ("/apis", "text/html", NO_TYPE.partition(", application/json;stream")[0]),
        (POD_PATH, "application/json;v=v1beta1", NO_CONVERSION),
        ("/apis", "application/json;g=x", NO_CONVERSION),
        (POD_PATH, "application/json;as=Table;g=meta.k8s.io;v=v1", NO_CONVERSION),
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


async def test_details_are_there_where_kubernetes_has_them(adapter: ServedAdapter) -> None:
    assert (await adapter.request_as_master(f"{G2}/nodes")).json["details"] == {}
    assert (await adapter.request_as_master(POD_PATH, method="POST")).json["details"] == {}
    assert "details" not in (await adapter.request_as_master(f"{G2}/namespaces/ns-1/pods")).json


async def test_unacceptable_media_type_makes_no_query(adapter: ServedAdapter) -> None:
    adapter.metrics.error = service_unavailable("unable to fetch metrics")
    headers = {"Accept": "application/json;as=Table;g=meta.k8s.io;v=v1"}
    assert (await adapter.request_as_master(EXTERNAL_PATH, headers=headers)).status == 406


@pytest.mark.parametrize("path", ["/healthz", "/readyz/ping", POD_PATH])
async def test_health_and_error_responses_have_nosniff(adapter: ServedAdapter, path: str) -> None:
    reply = await adapter.request_as_master(path, headers={"Impersonate-User": "alice"})
    assert reply.headers["X-Content-Type-Options"] == "nosniff"


async def test_segments_after_a_metric_of_a_namespace_are_ignored(adapter: ServedAdapter) -> None:
    path = f"{G2}/namespaces/ns-1/metrics/http_packets_per_second"
    assert (await adapter.request_as_master(f"{path}/x")).json == (await adapter.request_as_master(path)).json


async def test_details_of_invalid_list_options_name_the_parameter(adapter: ServedAdapter) -> None:
    reply = await adapter.request_as_master(f"{EXTERNAL_PATH}?watch=1")
    assert reply.json["details"] == {"group": "external.metrics.k8s.io", "kind": "*"}
    reply = await adapter.request_as_master(f"{EXTERNAL_PATH}?sendInitialEvents=true")
    assert reply.json["details"] == {
        "group": "meta.k8s.io",
        "kind": "ListOptions",
        "causes": [
            {
                "reason": "FieldValueForbidden",
                "message": "Forbidden: sendInitialEvents is forbidden for list",
                "field": "sendInitialEvents",
            }
        ],
    }


async def test_matching_field_selector_is_accepted(adapter: ServedAdapter) -> None:
    assert (await adapter.request_as_master(f"{POD_PATH}?fieldSelector=metadata.name%3Dpod-1-0")).status == 200
    assert (await adapter.request_as_master(f"{EXTERNAL_PATH}?fieldSelector=metadata.name%3Dx")).status == 200
    assert (await adapter.request_as_master(f"{EXTERNAL_PATH}?watch=0&resourceVersionMatch=")).status == 200
    assert (await adapter.request_as_master(f"{POD_PATH}?limit=-1&timeoutSeconds=%2B5")).status == 200


async def test_list_shape_of_v1beta2(adapter: ServedAdapter) -> None:
    adapter.metrics.milli = 2_000_000
    reply = await adapter.request_as_master(f"{POD_PATH}?metricLabelSelector=verb%3DPOST")
    assert reply.json == {
        "kind": "MetricValueList",
        "apiVersion": "custom.metrics.k8s.io/v1beta2",
        "metadata": {},
        "items": [
            {
                "describedObject": {"kind": "Pod", "namespace": "ns-1", "name": "pod-1-0", "apiVersion": "v1"},
                "metric": {"name": "http_packets_per_second", "selector": {"matchLabels": {"verb": "POST"}}},
                "timestamp": SAMPLED_TEXT,
                "value": "2k",
            }
        ],
    }


async def test_list_shape_of_v1beta1(adapter: ServedAdapter) -> None:
    reply = await adapter.request_as_master(f"{G1}/nodes/node-1/node_load")
    assert reply.json == {
        "kind": "MetricValueList",
        "apiVersion": "custom.metrics.k8s.io/v1beta1",
        "metadata": {},
        "items": [
            {
                "describedObject": {"kind": "Node", "name": "node-1", "apiVersion": "v1"},
                "metricName": "node_load",
                "timestamp": SAMPLED_TEXT,
                "value": "99994m",
                "selector": None,
            }
        ],
    }


@pytest.mark.parametrize(
    ("selector", "shown"),
    [
        ("", None),
        ("verb%3DPOST%2Cjob%3Dapp", {"matchLabels": {"job": "app", "verb": "POST"}}),
        (
            "verb+in+%28GET%2CPOST%29",
            {"matchExpressions": [{"key": "verb", "operator": "In", "values": ["GET", "POST"]}]},
        ),
        ("verb+notin+%28POST%29", {"matchExpressions": [{"key": "verb", "operator": "NotIn", "values": ["POST"]}]}),
        ("verb!%3DPOST", {"matchExpressions": [{"key": "verb", "operator": "NotIn", "values": ["POST"]}]}),
        ("verb", {"matchExpressions": [{"key": "verb", "operator": "Exists"}]}),
        ("%21verb", {"matchExpressions": [{"key": "verb", "operator": "DoesNotExist"}]}),
    ],
)
async def test_metric_selector_is_shown_in_every_item(adapter: ServedAdapter, selector: str, shown: Any) -> None:
    reply = await adapter.request_as_master(f"{POD_PATH}?metricLabelSelector={selector}")
    assert reply.json["items"][0]["metric"]["selector"] == shown


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        (None, "application/json"),
        ("*/*", "application/json"),
        ("application/*, application/yaml", "application/yaml"),
        ("application/json;charset=utf-8", "application/json"),
        ("application/json;as=Table;g=meta.k8s.io;v=v1,application/json", "application/json"),
        ("text/html, application/json;q=0.1", "application/json"),
        ("application/yaml", "application/yaml"),
        ("application/json;q=0.5,application/yaml;q=0.9", "application/yaml"),
        ("application/yaml;q=0, application/json", "application/json"),
    ],
)
async def test_media_type(adapter: ServedAdapter, accept: str | None, content_type: str) -> None:
    reply = await adapter.request_as_master(POD_PATH, headers={} if accept is None else {"Accept": accept})
    assert (reply.status, reply.content_type) == (200, content_type)
    body = yaml.safe_load(reply.body) if content_type.endswith("yaml") else msgspec.json.decode(reply.body)
    assert body["items"][0]["value"] == "99994m"


async def test_error_in_yaml(adapter: ServedAdapter) -> None:
    path = POD_PATH.replace("http_packets_per_second", "nosuch")
    reply = await adapter.request_as_master(path, headers={"Accept": "application/yaml"})
    assert reply.body == (
        b"apiVersion: v1\ncode: 404\nkind: Status\nmessage: the server could not find the metric nosuch for pods\n"
        b"metadata: {}\nreason: NotFound\nstatus: Failure\n"
    )


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
