"""Bodies that kubectl 1.33 sent, recorded, and what was in them."""

import pytest

from kube.status import StatusError
from playground.apiserver.protobuf import decode_protobuf

CAN_I = (
    "6b3873000a320a17617574686f72697a6174696f6e2e6b38732e696f2f7631121753656c665375626a656374416363657373526576696577123f"
    "0a100a0012001a0022002a0032003800420012210a1f0a0764656661756c7412036765741a0022002a04706f647332003a036c6f671a0808001200"
    "1a0020001a002200"
)
CREATE_DEPLOYMENT = (
    "6b3873000a150a07617070732f7631120a4465706c6f796d656e7412af010a1f0a03666f6f12001a0022002a003200380042005a0a0a0361707012"
    "03666f6f127e0801120c0a0a0a036170701203666f6f1a640a1c0a0012001a0022002a003200380042005a0a0a036170701203666f6f124412260a"
    "01781201782a00320a0a001000185022002a0042006a007200800100880100900100a201001a00320042004a0052005800600068008201008a0100"
    "9a0100c2010022020a00280038001a0c0800100018002000280038001a002200"
)
CREATE_SERVICE = (
    "6b3873000a0d0a02763112075365727669636512640a1b0a017312001a0022002a003200380042005a080a0361707012017312410a1c0a0638302d"
    "776562120354435018502209080110001a03776562280012080a036170701201731a002209436c757374657249503a00420052005a00600068001a"
    "020a001a002200"
)
AUTOSCALE = (
    "6b3873000a290a0e6175746f7363616c696e672f76321217486f72697a6f6e74616c506f644175746f7363616c657212610a130a03666f6f12001a"
    "0022002a0032003800420012440a1a0a0a4465706c6f796d656e741203666f6f1a07617070732f76311001180422220a085265736f757263652216"
    "0a03637075120f0a0b5574696c697a6174696f6e20321a04180020001a002200"
)


def test_auth_can_i() -> None:
    assert decode_protobuf(bytes.fromhex(CAN_I)) == {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {"namespace": "default", "verb": "get", "resource": "pods", "name": "log"}},
    }


def test_create_deployment() -> None:
    labels = {"app": "foo"}
    container = {"name": "x", "image": "x", "ports": [{"containerPort": 80}]}
    assert decode_protobuf(bytes.fromhex(CREATE_DEPLOYMENT)) == {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "foo", "labels": labels},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }


def test_create_service() -> None:
    port = {"name": "80-web", "protocol": "TCP", "port": 80, "targetPort": "web"}
    service = decode_protobuf(bytes.fromhex(CREATE_SERVICE))
    assert service["spec"] == {"type": "ClusterIP", "selector": {"app": "s"}, "ports": [port]}


def test_autoscale() -> None:
    target = {"type": "Utilization", "averageUtilization": 50}
    hpa = decode_protobuf(bytes.fromhex(AUTOSCALE))
    assert hpa["spec"] == {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "foo"},
        "minReplicas": 1,
        "maxReplicas": 4,
        "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": target}}],
    }


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"k8s\x00",
        bytes.fromhex(CAN_I)[:60],
        bytes.fromhex(CAN_I).replace(b"SelfSubjectAccessReview", b"SelfSubjectAccessRevieX"),
        b"k8s\x00" + b"\xff" * 20,
    ],
    ids=["nothing", "json", "no envelope", "cut off", "unknown kind", "endless number"],
)
def test_what_cannot_be_read_is_refused(body: bytes) -> None:
    with pytest.raises(StatusError) as refusal:
        decode_protobuf(body)
    assert refusal.value.code == 400


def test_a_field_that_is_not_known_is_not_dropped() -> None:
    body = bytes.fromhex(CAN_I)
    envelope_end = body.index(b"\x12\x3f")
    spec = bytes.fromhex("a2060178")  # field 100, "x"
    changed = body[:envelope_end] + b"\x12" + bytes([len(spec)]) + spec
    with pytest.raises(StatusError, match=r"field 100 of authorization.k8s.io/v1 SelfSubjectAccessReview is not known"):
        decode_protobuf(changed)
