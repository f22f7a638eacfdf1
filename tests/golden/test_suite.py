"""The suite itself: it must detect wrong responses."""

from __future__ import annotations

import datetime
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from click.testing import CliRunner

from playground.prometheus import PrometheusServer, Series, openmetrics
from tests.golden.__main__ import main
from tests.golden.cases import RECORDED, Case, CaseFileError, read_cases
from tests.golden.environment import Reply
from tests.golden.expected import expected_responses
from tests.golden.prometheus_tap import InstantQuery, PrometheusTap, UnknownFaultError
from tests.golden.verdict import differences

CASES = read_cases(RECORDED)


def case_about(title: str) -> Case:
    return next(case for case in CASES if case.title == title)


def reply_of(case: Case, **changes: Any) -> Reply:
    """The expected response, as a server would send it; `changes` make it wrong."""
    expected = expected_responses(case, is_real=False)[0]
    reply = Reply(
        status=expected.statuses[0],
        content_type=expected.content_type,
        encoding="",
        body=json.dumps(expected.document).encode(),
        queries=[InstantQuery(query, "30s") for query in expected.queries or ()],
    )
    return replace(reply, **changes)


SINGLE = "single pod, v1beta2"


def document_of(title: str) -> Any:
    return expected_responses(case_about(title), is_real=False)[0].document


def judged(title: str, **changes: Any) -> str:
    case = case_about(title)
    return "\n".join(differences(case, expected_responses(case, is_real=False)[0], reply_of(case, **changes)))


def body(title: str, *, of_item: dict[str, Any] | None = None, **changes: Any) -> bytes:
    """The expected document with some of it changed: in itself, or in its first item."""
    document = {**document_of(title), **changes}
    if of_item:
        document["items"] = [{**document["items"][0], **of_item}, *document["items"][1:]]
    return json.dumps(document).encode()


def now() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def test_expected_response_passes() -> None:
    assert judged(SINGLE, body=body(SINGLE, of_item={"timestamp": now()})) == ""
    assert judged("unknown metric, single") == ""


@pytest.mark.parametrize(
    ("title", "changes", "message"),
    [
        (SINGLE, {"status": 500}, "status: expected 200, got 500"),
        (SINGLE, {"content_type": "text/plain"}, "Content-Type: expected 'application/json', got 'text/plain'"),
        (SINGLE, {"body": json.dumps(document_of(SINGLE), indent=2).encode()}, "the body is indented"),
        ("pretty=true", {}, "the body is not indented"),
        (SINGLE, {"body": b"{"}, "the body is no application/json"),
        (SINGLE, {"encoding": "gzip"}, "Content-Encoding: expected '', got 'gzip'"),
        (SINGLE, {"queries": []}, "PromQL: expected sum(rate("),
        (SINGLE, {"queries": [InstantQuery("up", "30s")]}, "got      up"),
        (SINGLE, {"queries": [InstantQuery("up", None)]}, "no deadline for up: timeout=None"),
        (SINGLE, {"queries": [InstantQuery("up", "3600s")]}, "no deadline for up: timeout='3600s'"),
        ("timeout=1ms", {"queries": [InstantQuery("up", "0.002")]}, "after the request's own for up: timeout='0.002'"),
        ("unknown metric, single", {"body": body("unknown metric, single", message="no")}, "got 'no'"),
        ("unknown metric, single", {"body": body("unknown metric, single", reason="")}, "reason: expected 'NotFound'"),
    ],
)
def test_different_response_fails(title: str, changes: dict[str, Any], message: str) -> None:
    assert message in judged(title, **changes)


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ({"value": "99"}, ""),
        ({"value": "98"}, "items[0].value: expected '99994m', got '98'"),
        ({"value": 99}, "items[0].value: expected '99994m', got 99"),
        ({"timestamp": "2020-01-01T00:00:00Z"}, "items[0].timestamp"),
        ({"timestamp": "now"}, "items[0].timestamp"),
        ({"windowSeconds": 60}, "items[0].windowSeconds: expected nothing, got 60"),
    ],
)
def test_counters_may_differ_by_a_hundredth_and_times_by_minutes(item: dict[str, Any], message: str) -> None:
    found = judged(SINGLE, body=body(SINGLE, of_item={"timestamp": now(), **item}))
    assert message in found
    assert bool(message) == bool(found)


def test_gauges_must_be_exact() -> None:
    title = "second metric, sum of both series"
    assert judged(title, body=body(title, of_item={"timestamp": now()})) == ""
    found = judged(title, body=body(title, of_item={"timestamp": now(), "value": "121"}))
    assert found == "items[0].value: expected '120', got '121'"


def test_an_address_of_prometheus_must_not_reach_clients() -> None:
    title = "prometheus: 500, single"
    assert judged(title, body=body(title, message="Prometheus is not available for rules[0]")) == ""
    found = judged(title, body=body(title, message="cannot connect to 127.0.0.1:9090 for rules[0]"))
    assert "it shows an address to clients" in found
    assert "expected it to have 'rules['" in judged(title, body=body(title, message="Prometheus is not available"))


def test_discovery_comes_in_any_order_but_complete() -> None:
    title = "discovery /apis/custom.metrics.k8s.io/v1beta2"
    resources = document_of(title)["resources"]
    assert judged(title, body=body(title, resources=resources[::-1])) == ""
    found = judged(title, body=body(title, resources=resources[1:]))
    assert f"resources: {resources[0]['name']} is missing" in found


@pytest.mark.parametrize(
    ("title", "status", "document"),
    [
        ("edge value of pod-1-7", 404, "the server could not find the metric edge_value for pods pod-1-7"),
        ("unknown resource *", 404, "the server could not find the metric http_packets_per_second for widgets"),
        ("bad metricLabelSelector", 400, "unable to parse requirement: found '=', expected: identifier"),
        ("several series of one pod in the answer, single", 200, ["13"]),
        ("metricLabelSelector verb!%3DPOST", 200, ["10"]),
        ("prometheus: 503json, *", 504, ""),
        ("prometheus: reset, external", 503, ""),
        ("prometheus: 422json, external", 500, ""),
    ],
)
def test_where_we_want_better(title: str, status: int, document: list[str] | str) -> None:
    expected = expected_responses(case_about(title), is_real=False)[0]
    assert expected.statuses == (status,)
    if isinstance(document, str):
        assert expected.document["message"] == document
    else:
        assert [item["value"] for item in expected.document["items"]] == document


def test_core_objects_are_of_version_v1_everywhere() -> None:
    expected = [response for case in CASES for response in expected_responses(case, is_real=True)]
    text = json.dumps([response.document for response in expected], default=str)
    assert '"/v1"' not in text
    assert '"-9223372036854775808m"' not in text
    assert '"__name__"' not in text


def test_the_api_server_or_the_adapter_ends_a_request_with_its_own_deadline() -> None:
    messages = [
        str(one.document["message"] or one.says) for one in expected_responses(case_about("timeout=1ms"), is_real=True)
    ]
    assert len(messages) == 2
    assert "did not complete within the allotted timeout" in messages[0]


async def test_case_that_cannot_be_run_fails(tmp_path: Path) -> None:
    path = tmp_path / "cases.jsonl"
    raw = json.loads(RECORDED.read_text().splitlines()[-2])
    raw["promql"][0]["fault"] = "earthquake"
    path.write_text(json.dumps(raw) + "\n\n")
    [case] = read_cases(path)
    async with PrometheusTap("http://127.0.0.1:9") as tap:
        with pytest.raises(UnknownFaultError, match="no fault is called 'earthquake'; there are 500, 503json"):
            await tap.fail(case.fault)


def test_a_file_with_anything_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "cases.jsonl"
    path.write_text('{"n": 1}\n')
    with pytest.raises(CaseFileError, match=r"cases.jsonl, line 1: KeyError: 'via'"):
        read_cases(path)
    result = CliRunner().invoke(main, [str(path)])
    assert result.exit_code == 1
    assert "line 1: KeyError: 'via'" in result.output


@pytest.fixture
async def prometheus(tmp_path: Path) -> AsyncIterator[PrometheusServer]:
    samples = openmetrics([Series("conn_open", {"pod": "a"}, [(1_700_000_000.0, 3.0)])])
    async with PrometheusServer(tmp_path / "prometheus", samples=samples) as server:
        yield server


@pytest.mark.e2e
async def test_tap_records_instant_queries_and_injects_faults(prometheus: PrometheusServer) -> None:
    async with PrometheusTap(prometheus.url) as tap, aiohttp.ClientSession() as client:
        query = {"query": "conn_open", "time": "1700000000", "timeout": "5s"}
        for response in (
            await client.get(f"{tap.url}/api/v1/query", params=query),
            await client.post(f"{tap.url}/api/v1/query", data=query),
        ):
            assert (await response.json())["data"]["result"][0]["value"] == [1_700_000_000, "3"]
        await client.get(f"{tap.url}/api/v1/series", params={"match[]": "conn_open"})
        assert tap.take() == [InstantQuery("conn_open", "5s")] * 2
        assert tap.take() == []

        await tap.fail("422json")
        assert (await client.get(f"{tap.url}/api/v1/query", params=query)).status == 422
        assert (await client.get(f"{tap.url}/api/v1/series", params={"match[]": "conn_open"})).status == 200
        await tap.fail("reset")
        with pytest.raises(aiohttp.ClientConnectionError):
            await client.get(f"{tap.url}/api/v1/query", params=query)
        await tap.fail("down")
        with pytest.raises(aiohttp.ClientConnectorError):
            await client.get(f"{tap.url}/api/v1/series", params={"match[]": "conn_open"})
        await tap.fail(None)
        assert (await client.get(f"{tap.url}/api/v1/query", params=query)).status == 200
