"""Requests with the recorded heads of a real kube-apiserver get the right kind of response."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from bench.recorded_heads import RecordedRequest, hpa_head, recorded_requests
from tests.adapter.front_proxy import Connection, front_proxy
from tests.adapter.serving import CannedUsage, ServedAdapter, served_adapter
from tests.eventually import eventually

PROTOBUF = "application/vnd.kubernetes.protobuf"
JSON = "application/json"
CREDENTIAL = "authentication.kubernetes.io/credential-id"

REQUESTS = recorded_requests()
# The kind and the media type of the response to each of them.
KINDS = [
    *(("APIResourceList", JSON), ("APIResourceList", JSON)),
    *(("swagger", JSON), ("paths", JSON)),
    ("APIGroupDiscoveryList", f"{JSON};g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"),
    *(("APIResourceList", JSON),) * 4,
    ("MetricValueList", JSON),
    ("ExternalMetricValueList", JSON),
    *(("MetricValueList", PROTOBUF),) * 3,
    ("ExternalMetricValueList", PROTOBUF),
    ("PodMetricsList", PROTOBUF),
]
CASES = list(zip(REQUESTS, KINDS, strict=True))


async def sent(connection: Connection, request: RecordedRequest) -> tuple[int, str, bytes]:
    code, head, body = await connection.send(request.head())
    content_type = next(line.partition(": ")[2] for line in head.split("\n") if line.startswith("Content-Type: "))
    return code, content_type, gzip.decompress(body) if "Content-Encoding: gzip" in head else body


def kind_of(content_type: str, body: bytes) -> str:
    if content_type == PROTOBUF:
        assert body.startswith(b"k8s\0")
        return next(kind for kind, _ in KINDS[9:] if bytes((0x12, len(kind))) + kind.encode() in body)
    document = json.loads(body)
    return str(document.get("kind") or next(key for key in ("swagger", "paths") if key in document))


async def test_recorded_requests_can_share_one_connection(tmp_path: Path) -> None:
    """The API server's connections are shared by all users and all kinds of requests."""
    async with served_adapter(tmp_path, usage=CannedUsage()) as adapter, front_proxy(adapter) as connection:
        adapter.api.allowed = lambda _: True
        for _ in range(3):
            for request, (kind, expected) in CASES:
                code, content_type, body = await sent(connection, request)
                assert (code, content_type, kind_of(content_type, body)) == (200, expected, kind)


async def test_every_header_about_the_user_is_part_of_the_review(tmp_path: Path) -> None:
    """The credential's identity travels in an extra whose key is percent-encoded; only the value's case is kept."""
    async with served_adapter(tmp_path, usage=CannedUsage()) as adapter:
        adapter.api.allowed = lambda _: True
        await publish_uid_header(adapter)
        async with front_proxy(adapter) as connection:
            for request in REQUESTS:
                if request.client in ("kubectl", "sa-token", "kcm"):
                    await sent(connection, request)
    users = {(spec["user"], spec.get("uid"), *spec["extra"][CREDENTIAL]) for spec in specs(adapter)}
    assert users == {
        (
            "system:serviceaccount:cm:reader",
            "04d82084-46a0-41c7-bfa0-1636cfdd0f8a",
            "JTI=a26a2ba0-abcf-4ba7-854c-432d7cadf530",
        ),
        (
            "system:kube-controller-manager",
            None,
            "X509SHA256=25063594c60d8e2b18702efc4c55b812d4a42919ed31d6978611f3282f172dd0",
        ),
    }, "kubectl's user is in system:masters, whom nobody reviews"
    assert all(list(spec["extra"]) == [CREDENTIAL] for spec in specs(adapter))


async def test_requests_that_differ_in_other_headers_are_reviewed_once(tmp_path: Path) -> None:
    async with served_adapter(tmp_path) as adapter, front_proxy(adapter) as connection:
        adapter.api.allowed = lambda _: True
        before, after = hpa_head().of(REQUESTS[-2].target)
        for number in range(20):
            audit_id = f"00000000-0000-4000-8000-{number:012x}".encode()
            after_now = after.replace(b"X-Forwarded-For: 127.0.0.1", f"X-Forwarded-For: 10.0.0.{number}".encode())
            assert (await connection.send(before + audit_id + after_now))[0] == 200
    assert len(specs(adapter)) == 1


def test_a_benchmarks_head_is_the_recorded_one_but_for_the_target_and_the_audit_id() -> None:
    recorded = next(request for request in REQUESTS if request.client == "kcm")
    before, after = hpa_head().of(recorded.target)
    audit_id = dict(recorded.headers)["Audit-Id"].encode()
    assert before + audit_id + after == recorded.head()


def specs(adapter: ServedAdapter) -> list[dict[str, Any]]:
    return [review["spec"] for review in adapter.api.reviews if review["kind"] == "SubjectAccessReview"]


async def publish_uid_header(adapter: ServedAdapter) -> None:
    """As Kubernetes since 1.32 says where a user's UID stands."""
    adapter.api.publish(adapter.authorities.config_map() | {"requestheader-uid-headers": '["X-Remote-Uid"]'})

    async def knows_uids() -> bool:
        proxy = adapter.trust.current.front_proxy
        return proxy is not None and bool(proxy.uid_headers)

    assert await eventually(knows_uids, within=10.0, every=0.001)
