"""Protobuf, byte for byte as prometheus-adapter wrote it behind a kube-apiserver 1.36."""

import base64

import msgspec
import pytest

from adapter.content import protobuf
from adapter.content.protobuf import encode, encode_error, message
from adapter.content.values import (
    CustomMetricList,
    ExternalMetricList,
    ExternalMetricValue,
    MetricValue,
    ObjectReference,
)
from kube.api.status import forbidden, internal_error, not_found, too_many_requests
from kube.values.selectors import LabelSelector
from tests.adapter.serving import EXTERNAL_PATH, POD_PATH, ServedAdapter

PROTOBUF = "application/vnd.kubernetes.protobuf"
TWO_PODS = (
    "azhzAAowCh1jdXN0b20ubWV0cmljcy5rOHMuaW8vdjFiZXRhMhIPTWV0cmljVmFsdWVMaXN0Eq4BCgYKABIAGgASUQofCgNQb2QSBG5zLTEaB3BvZC0x"
    "LTEiACoDL3YxMgA6ABIZChdodHRwX3BhY2tldHNfcGVyX3NlY29uZBoICNONgNgGEAAqCQoHMTAwOTk1bRJRCh8KA1BvZBIEbnMtMRoHcG9kLTEtMiIA"
    "KgMvdjEyADoAEhkKF2h0dHBfcGFja2V0c19wZXJfc2Vjb25kGggI042A2AYQACoJCgcxMDE5OTVtGgAiAA=="
)
QUEUE = (
    "azhzAAo6Ch9leHRlcm5hbC5tZXRyaWNzLms4cy5pby92MWJldGExEhdFeHRlcm5hbE1ldHJpY1ZhbHVlTGlzdBJGCgYKABIAGgASPAoLcXVldWVfZGVw"
    "dGgSCwoFcXVldWUSAnExEg4KBHRpZXISBnNpbHZlchoICNSNgNgGEAAqBgoEMTAwMRoAIgA="
)
NOT_FOUND = (
    "azhzAAoMCgJ2MRIGU3RhdHVzElQKBgoAEgAaABIHRmFpbHVyZRo0dGhlIHNlcnZlciBjb3VsZCBub3QgZmluZCB0aGUgbWV0cmljIG5vc3VjaCBmb3Ig"
    "cG9kcyIITm90Rm91bmQwlAMaACIA"
)


def pod_value(name: str, milli: int, *, selector: str = "", window: int | None = None) -> MetricValue:
    # The recorded bytes have "/v1", which is that adapter's mistake and no matter of the encoding.
    return MetricValue(
        described_object=ObjectReference(api_version="/v1", kind="Pod", namespace="ns-1", name=name),
        metric="http_packets_per_second",
        selector=LabelSelector.parse(selector) if selector else None,
        timestamp=1_795_163_859.9,
        window_seconds=window,
        milli=milli,
    )


def test_custom_list() -> None:
    document = CustomMetricList("v1beta2", [pod_value("pod-1-1", 100_995), pod_value("pod-1-2", 101_995)])
    assert encode(document) == base64.b64decode(TWO_PODS)


def test_external_list() -> None:
    value = ExternalMetricValue(
        metric="queue_depth",
        labels={"tier": "silver", "queue": "q1"},
        timestamp=1_795_163_860.0,
        window_seconds=None,
        milli=1_001_000,
    )
    assert encode(ExternalMetricList([value])) == base64.b64decode(QUEUE)


def test_error() -> None:
    error = not_found("the server could not find the metric nosuch for pods")
    assert encode_error(error) == base64.b64decode(NOT_FOUND)


@pytest.mark.parametrize(
    ("written", "piece"),
    [
        (encode(CustomMetricList("v1beta1", [pod_value("p", 1, window=60)])), b"\x20\x3c\x2a\x04\x0a\x021m"),
        (encode(CustomMetricList("v1beta2", [pod_value("p", 1, window=60)])), b"\x20\x3c\x2a\x04\x0a\x021m"),
        (
            encode_error(internal_error("x")),
            b"\x0a\x00\x12\x00\x1a\x00\x22\x07\x0a\x00\x12\x01x\x1a\x00\x28\x00\x32\x00",
        ),
        (encode_error(too_many_requests("x", retry_after=7)), b"\x0a\x00\x12\x00\x1a\x00\x28\x07\x32\x00"),
        (
            encode_error(forbidden("x", details={"name": "n", "group": "g", "kind": "k"})),
            b"\x0a\x01n\x12\x01g\x1a\x01k\x28\x00\x32\x00",
        ),
    ],
    ids=["window of v1beta1", "window of v1beta2", "cause", "retry after", "details"],
)
def test_parts(written: bytes, piece: bytes) -> None:
    assert piece in written


def test_selector_of_v1beta1_follows_the_value() -> None:
    written = encode(CustomMetricList("v1beta1", [pod_value("p", 1, selector="a=b,c in (d,e)")]))
    labels = b"\x0a\x06\x0a\x01a\x12\x01b"
    expression = b"\x12\x0d\x0a\x01c\x12\x02In\x1a\x01d\x1a\x01e"
    assert b"\x2a\x04\x0a\x021m\x32" + bytes([len(labels + expression)]) + labels + expression in written


@pytest.mark.parametrize("accept", [PROTOBUF, f"{PROTOBUF}, */*", f"{PROTOBUF},application/json"])
@pytest.mark.asyncio(loop_scope="module")
async def test_clients_that_prefer_it_get_it(adapter: ServedAdapter, accept: str) -> None:
    for path, status in ((POD_PATH, 200), (EXTERNAL_PATH, 200), (POD_PATH[:-1] + "?timeout=x", 400)):
        reply = await adapter.request_as_master(path, headers={"Accept": accept})
        assert (reply.status, reply.content_type) == (status, PROTOBUF)
        assert reply.body.startswith(b"k8s\x00")


@pytest.mark.asyncio(loop_scope="module")
async def test_documents_without_a_protobuf_form_are_json(adapter: ServedAdapter) -> None:
    reply = await adapter.request_as_master("/apis/custom.metrics.k8s.io/v1beta2", headers={"Accept": PROTOBUF})
    assert (reply.content_type, reply.json["kind"]) == ("application/json", "APIResourceList")


def varint(number: int) -> bytes:
    low, rest = number & 0x7F, number >> 7
    return bytes((low | 0x80,)) + varint(rest) if rest else bytes((low,))


@pytest.mark.parametrize("size", [0, 1, 99, 100, 127, 128, 255, 16_383, 16_384, 70_000])
@pytest.mark.parametrize("field", [1, 5, 15, 16, 200])
def test_a_field_of_any_length(field: int, size: int) -> None:
    content = b"x" * size
    assert message(field, content) == varint(field << 3 | 2) + varint(size) + content


def test_encoded_parts_of_one_item_are_not_written_into_another() -> None:
    names = ("a", "b" * 100, "c" * 400, "a", "\u00e9")
    items = [
        pod_value(f"{name}{metric}", milli, selector=selector, window=window)
        for name in names
        for metric, selector, milli, window in (("", "", 5, None), ("x", "a=b", -(10**17), 60), ("", "", 10**9, None))
    ]
    items += [msgspec.structs.replace(items[0], metric=metric, timestamp=float(at)) for metric in "xy" for at in (1, 2)]

    def written(value: MetricValue) -> bytes:
        return protobuf._custom_item(msgspec.structs.replace(value, encoded=b""))

    each = [written(value) for value in items]
    assert len(set(each)) == len(items) - 3, "the name `a` is there twice"
    protobuf._short_reference.cache_clear()
    assert [written(value) for value in reversed(items)] == each[::-1]
    legacy = protobuf.encode(CustomMetricList("v1beta1", items))
    lists = [protobuf.encode(CustomMetricList("v1beta2", items)) for _ in range(2)]
    assert b"".join(each) in lists[0]
    assert lists[0] == lists[1], "encoded items are reused"
    assert protobuf.encode(CustomMetricList("v1beta1", items)) == legacy, "and those of v1beta2 only"
