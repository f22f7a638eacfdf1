"""Objects in Kubernetes' protobuf; test_kubectl has real ones."""

from playground.apiserver.protobuf import decode


def field(number: int, value: bytes | int) -> bytes:
    """Encode a field with a short value."""
    if isinstance(value, int):
        return bytes([number << 3, value])
    return bytes([number << 3 | 2, len(value)]) + value


def envelope(api_version: str, kind: str, raw: bytes) -> bytes:
    return b"k8s\x00" + field(1, field(1, api_version.encode()) + field(2, kind.encode())) + field(2, raw)


METADATA = field(1, field(1, b"web") + field(2, b"") + field(8, b"") + field(11, field(1, b"a") + field(2, b"b")))
REFERENCE = field(1, field(1, b"Deployment") + field(2, b"web") + field(3, b"apps/v1"))
QUANTITY = field(3, field(1, b"100Mi"))
METRIC = field(
    4, field(1, b"Resource") + field(4, field(1, b"memory") + field(2, field(1, b"AverageValue") + QUANTITY))
)
SPEC = REFERENCE + field(2, 2) + field(3, 7) + METRIC


def test_hpa() -> None:
    target = {"type": "AverageValue", "averageValue": "100Mi"}
    content = envelope("autoscaling/v2", "HorizontalPodAutoscaler", METADATA + field(2, SPEC) + field(3, field(3, 1)))
    assert decode(content) == {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "web", "labels": {"a": "b"}},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "minReplicas": 2,
            "maxReplicas": 7,
            "metrics": [{"type": "Resource", "resource": {"name": "memory", "target": target}}],
        },
    }


def test_what_is_not_known_is_not_left_out() -> None:
    behavior = field(2, SPEC + field(5, b"\n\x00"))
    assert decode(envelope("autoscaling/v2", "HorizontalPodAutoscaler", METADATA + behavior)) is None
    assert decode(envelope("apps/v1", "Deployment", METADATA)) is None
    assert decode(b"k8s\x00\xff") is None
    assert decode(b"") is None
