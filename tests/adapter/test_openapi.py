"""OpenAPI documents: they describe the served APIs, and clients can find and cache them."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from adapter.content.values import CUSTOM_GROUP, CUSTOM_VERSIONS, EXTERNAL_GROUP, RESOURCE_GROUP
from adapter.openapi import openapi_documents
from tests.adapter.serving import EXTERNAL_PATH, POD_PATH, ServedAdapter

SERVED = (
    *((CUSTOM_GROUP, version) for version in CUSTOM_VERSIONS),
    (EXTERNAL_GROUP, "v1beta1"),
    (RESOURCE_GROUP, "v1beta1"),
)
DOCUMENTS = openapi_documents(SERVED, "1.2.3")
PROTOBUF = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"


def v2() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(DOCUMENTS.v2(accept="").body)
    return document


def v3(path: str) -> dict[str, Any]:
    page = DOCUMENTS.v3(path, given_hash="", accept="", now=0.0)
    assert page is not None
    document: dict[str, Any] = json.loads(page.body)
    return document


def documents() -> dict[str, dict[str, Any]]:
    return {"v2": v2(), **{path: v3(path) for path in v3("")["paths"]}}


def everything(value: Any) -> Iterator[dict[str, Any]]:
    """Every object in a document."""
    if isinstance(value, dict):
        yield value
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from everything(part)


@pytest.mark.parametrize("name", documents())
def test_every_reference_leads_to_a_definition(name: str) -> None:
    document = documents()[name]
    for reference in [one["$ref"] for one in everything(document) if "$ref" in one]:
        found: Any = document
        for part in reference.removeprefix("#/").split("/"):
            found = found[part]
        assert found["type"] == "object"


@pytest.mark.parametrize("name", documents())
def test_path_parameters_are_those_of_the_path(name: str) -> None:
    paths = documents()[name]["paths"]
    identifiers = [methods["get"]["operationId"] for methods in paths.values()]
    assert len(set(identifiers)) == len(identifiers)
    for path, methods in paths.items():
        named = [one["name"] for one in methods["get"]["parameters"] if one["in"] == "path"]
        assert named == [part.strip("{}") for part in path.split("/") if part.startswith("{")]
        assert all(one.get("required") for one in methods["get"]["parameters"] if one["in"] == "path")


def test_kinds_can_be_found_by_kubectl() -> None:
    marked = {
        (one["group"], one["version"], one["kind"])
        for definition in v2()["definitions"].values()
        for one in definition.get("x-kubernetes-group-version-kind", ())
    }
    assert marked == {
        (CUSTOM_GROUP, "v1beta1", "MetricValueList"),
        (CUSTOM_GROUP, "v1beta2", "MetricValueList"),
        (EXTERNAL_GROUP, "v1beta1", "ExternalMetricValueList"),
        (RESOURCE_GROUP, "v1beta1", "NodeMetrics"),
        (RESOURCE_GROUP, "v1beta1", "NodeMetricsList"),
        (RESOURCE_GROUP, "v1beta1", "PodMetrics"),
        (RESOURCE_GROUP, "v1beta1", "PodMetricsList"),
    }


def test_both_versions_have_the_same_paths_and_schemas() -> None:
    second = v2()
    third = [v3(path) for path in v3("")["paths"]]
    assert set(second["paths"]) == {path for document in third for path in document["paths"]}
    schemas = {name: schema for document in third for name, schema in document["components"]["schemas"].items()}
    assert json.loads(json.dumps(schemas).replace("#/components/schemas/", "#/definitions/")) == second["definitions"]


def fits(value: Any, schema: dict[str, Any], definitions: dict[str, Any]) -> None:
    """Assert that a value is what its schema says, and that the schema leaves none of it out."""
    if "$ref" in schema:
        schema = definitions[schema["$ref"].removeprefix("#/definitions/")]
    assert isinstance(value, {"object": dict, "array": list, "string": str, "integer": int}[schema["type"]])
    if isinstance(value, list):
        for item in value:
            fits(item, schema["items"], definitions)
    if isinstance(value, dict):
        assert set(schema.get("required", ())) <= set(value)
        properties = schema.get("properties", {})
        for key, part in value.items():
            if part is not None:
                fits(part, properties[key] if key in properties else schema["additionalProperties"], definitions)


@pytest.mark.parametrize(
    ("path", "definition"),
    [
        (POD_PATH, "custom_metrics.v1beta2.MetricValueList"),
        (f"{POD_PATH}?metricLabelSelector=a=b,c+in+(d,e)", "custom_metrics.v1beta2.MetricValueList"),
        (POD_PATH.replace("v1beta2", "v1beta1"), "custom_metrics.v1beta1.MetricValueList"),
        (EXTERNAL_PATH, "external_metrics.v1beta1.ExternalMetricValueList"),
    ],
)
@pytest.mark.asyncio(loop_scope="module")
async def test_responses_match_the_schema(adapter: ServedAdapter, path: str, definition: str) -> None:
    answer = await adapter.request_as_master(path)
    definitions = (await adapter.request_as_master("/openapi/v2")).json["definitions"]
    schema = definitions[f"io.k8s.metrics.pkg.apis.{definition}"]
    schema["properties"].setdefault("metadata", {"type": "object"})
    fits(answer.json, schema, definitions)


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        ("", "application/json"),
        ("*/*", "application/json"),
        ("application/json", "application/json"),
        (f"application/json;q=0.5,{PROTOBUF}", "application/json"),
        ("text/html,application/json", "application/json"),
    ],
)
@pytest.mark.asyncio(loop_scope="module")
async def test_version_2_is_negotiated(adapter: ServedAdapter, accept: str, content_type: str) -> None:
    reply = await adapter.request_as_master("/openapi/v2", headers={"Accept": accept} if accept else {})
    assert (reply.status, reply.content_type, reply.headers["Vary"]) == (200, content_type, "Accept")


@pytest.mark.parametrize("path", ["/openapi/v2", "/openapi/v3", "/openapi/v3/apis"])
@pytest.mark.asyncio(loop_scope="module")
async def test_other_media_types_are_refused(adapter: ServedAdapter, path: str) -> None:
    reply = await adapter.request_as_master(path, headers={"Accept": "text/html"})
    assert (reply.status, reply.json["reason"]) == (406, "NotAcceptable")
    assert (await adapter.request_as_master(path, method="POST")).status == 405
    assert (await adapter.request(path)).status == 403


@pytest.mark.asyncio(loop_scope="module")
async def test_document_that_the_client_has_is_not_sent_again(adapter: ServedAdapter) -> None:
    for path in ("/openapi/v2", "/openapi/v3", "/openapi/v3/apis/external.metrics.k8s.io/v1beta1"):
        first = await adapter.request_as_master(path)
        again = await adapter.request_as_master(path, headers={"If-None-Match": first.headers["ETag"]})
        assert (again.status, again.body) == (304, b"")
        other = await adapter.request_as_master(path, headers={"If-None-Match": '"other"'})
        assert other.body == first.body


@pytest.mark.asyncio(loop_scope="module")
async def test_index_of_version_3_leads_to_documents_that_stay(adapter: ServedAdapter) -> None:
    paths = (await adapter.request_as_master("/openapi/v3")).json["paths"]
    assert set(paths) == {
        "apis",
        "apis/custom.metrics.k8s.io",
        "apis/custom.metrics.k8s.io/v1beta1",
        "apis/custom.metrics.k8s.io/v1beta2",
        "apis/external.metrics.k8s.io",
        "apis/external.metrics.k8s.io/v1beta1",
        "version",
    }
    for path, entry in paths.items():
        reply = await adapter.request_as_master(entry["serverRelativeURL"])
        assert (reply.status, reply.json["openapi"]) == (200, "3.0.0")
        assert reply.headers["Cache-Control"] == "public, immutable"
        assert all(one.startswith(f"/{path}") for one in reply.json["paths"])
        plain = await adapter.request_as_master(f"/openapi/v3/{path}")
        assert (plain.body, plain.headers["Cache-Control"]) == (reply.body, "no-cache, private")
    assert (await adapter.request_as_master("/openapi/v3/")).json["paths"] == paths


@pytest.mark.asyncio(loop_scope="module")
async def test_outdated_hash_leads_to_the_right_one(adapter: ServedAdapter) -> None:
    path = "/openapi/v3/apis/custom.metrics.k8s.io/v1beta2"
    page = DOCUMENTS.v3("apis/custom.metrics.k8s.io/v1beta2", given_hash="old", accept="", now=0.0)
    assert page is not None
    assert page.headers["Location"].startswith(f"{path}?hash=")
    assert (await adapter.request_as_master(f"{path}?hash=old")).json["openapi"] == "3.0.0"


@pytest.mark.asyncio(loop_scope="module")
async def test_disabled_api_has_no_document(adapter: ServedAdapter) -> None:
    for path in ("/openapi", "/openapi/v4", "/openapi/v2/x", "/openapi/v3/apis/metrics.k8s.io/v1beta1"):
        assert (await adapter.request_as_master(path)).status == 404
