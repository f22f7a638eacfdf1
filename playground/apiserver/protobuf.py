"""Protobuf, in one direction and for few kinds: kubectl sends what it makes itself in it since 1.32.

That is `kubectl create deployment`, `autoscale`, `auth can-i` and the like, and it has no other way when it is
refused; it does read the answer as JSON. The lists of the metrics APIs are there, too, for whoever compares what an
adapter answered. So the fields that are used there are listed here with their numbers, taken from the generated.proto
files of k8s.io/api, k8s.io/apimachinery and k8s.io/metrics. An unlisted field that has a value is an error: nothing is
dropped in silence.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from kube.status import bad_request
from playground.apiserver.objects import Object

PROTOBUF: Final = "application/vnd.kubernetes.protobuf"

_MAGIC: Final = b"k8s\x00"
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5

# One line for each message: NUMBER NAME TYPE. Types: str, int, bool, bytes, quantity, int-or-str, map (of texts),
# bytes-map, ignored, or a message. `[]` is a list; `?` an optional number, which is told from 0.
_MESSAGES: Final = """
ObjectMeta: 1 name str, 2 generateName str, 3 namespace str, 5 uid str, 6 resourceVersion str, 11 labels map, \
12 annotations map, 13 ownerReferences OwnerReference[], 14 finalizers str[]
OwnerReference: 1 kind str, 3 name str, 4 uid str, 5 apiVersion str, 6 controller bool, 7 blockOwnerDeletion bool
LabelSelector: 1 matchLabels map, 2 matchExpressions LabelSelectorRequirement[]
LabelSelectorRequirement: 1 key str, 2 operator str, 3 values str[]

v1 Namespace: 1 metadata ObjectMeta, 2 spec ignored, 3 status ignored
v1 ServiceAccount: 1 metadata ObjectMeta, 4 automountServiceAccountToken bool?
v1 ConfigMap: 1 metadata ObjectMeta, 2 data map, 3 binaryData bytes-map, 4 immutable bool?
v1 Secret: 1 metadata ObjectMeta, 2 data bytes-map, 3 type str, 4 stringData map, 5 immutable bool?
v1 Service: 1 metadata ObjectMeta, 2 spec ServiceSpec, 3 status ignored
ServiceSpec: 1 ports ServicePort[], 2 selector map, 3 clusterIP str, 4 type str, 7 sessionAffinity str, \
10 externalName str, 18 clusterIPs str[]
ServicePort: 1 name str, 2 protocol str, 3 port int, 4 targetPort int-or-str, 5 nodePort int, 6 appProtocol str

apps/v1 Deployment: 1 metadata ObjectMeta, 2 spec DeploymentSpec, 3 status ignored
DeploymentSpec: 1 replicas int?, 2 selector LabelSelector, 3 template PodTemplateSpec, 4 strategy DeploymentStrategy
DeploymentStrategy: 1 type str
PodTemplateSpec: 1 metadata ObjectMeta, 2 spec PodSpec
PodSpec: 2 containers Container[], 3 restartPolicy str, 8 serviceAccountName str
Container: 1 name str, 2 image str, 3 command str[], 4 args str[], 6 ports ContainerPort[], 7 env EnvVar[]
ContainerPort: 1 name str, 3 containerPort int, 4 protocol str
EnvVar: 1 name str, 2 value str

autoscaling/v1 HorizontalPodAutoscaler: 1 metadata ObjectMeta, 2 spec HorizontalPodAutoscalerSpecV1, 3 status ignored
HorizontalPodAutoscalerSpecV1: 1 scaleTargetRef CrossVersionObjectReference, 2 minReplicas int?, 3 maxReplicas int, \
4 targetCPUUtilizationPercentage int?
autoscaling/v2 HorizontalPodAutoscaler: 1 metadata ObjectMeta, 2 spec HorizontalPodAutoscalerSpec, 3 status ignored
HorizontalPodAutoscalerSpec: 1 scaleTargetRef CrossVersionObjectReference, 2 minReplicas int?, 3 maxReplicas int, \
4 metrics MetricSpec[]
CrossVersionObjectReference: 1 kind str, 2 name str, 3 apiVersion str
MetricSpec: 1 type str, 4 resource ResourceMetricSource
ResourceMetricSource: 1 name str, 2 target MetricTarget
MetricTarget: 1 type str, 2 value quantity, 3 averageValue quantity, 4 averageUtilization int?

authentication.k8s.io/v1 SelfSubjectReview: 1 metadata ObjectMeta, 2 status ignored
authentication.k8s.io/v1 TokenRequest: 1 metadata ObjectMeta, 2 spec TokenRequestSpec, 3 status ignored
TokenRequestSpec: 1 audiences str[], 4 expirationSeconds int?
authorization.k8s.io/v1 SelfSubjectAccessReview: 1 metadata ObjectMeta, 2 spec SelfSubjectAccessReviewSpec, \
3 status ignored
SelfSubjectAccessReviewSpec: 1 resourceAttributes ResourceAttributes, 2 nonResourceAttributes NonResourceAttributes
ResourceAttributes: 1 namespace str, 2 verb str, 3 group str, 4 version str, 5 resource str, 6 subresource str, \
7 name str
NonResourceAttributes: 1 path str, 2 verb str
authorization.k8s.io/v1 SelfSubjectRulesReview: 1 metadata ObjectMeta, 2 spec SelfSubjectRulesReviewSpec, \
3 status ignored
SelfSubjectRulesReviewSpec: 1 namespace str

rbac.authorization.k8s.io/v1 ClusterRole: 1 metadata ObjectMeta, 2 rules PolicyRule[]
rbac.authorization.k8s.io/v1 Role: 1 metadata ObjectMeta, 2 rules PolicyRule[]
rbac.authorization.k8s.io/v1 ClusterRoleBinding: 1 metadata ObjectMeta, 2 subjects Subject[], 3 roleRef RoleRef
rbac.authorization.k8s.io/v1 RoleBinding: 1 metadata ObjectMeta, 2 subjects Subject[], 3 roleRef RoleRef
PolicyRule: 1 verbs str[], 2 apiGroups str[], 3 resources str[], 4 resourceNames str[], 5 nonResourceURLs str[]
Subject: 1 kind str, 2 apiGroup str, 3 name str, 4 namespace str
RoleRef: 1 apiGroup str, 2 kind str, 3 name str

custom.metrics.k8s.io/v1beta1 MetricValueList: 1 metadata ListMeta, 2 items MetricValueV1[]
MetricValueV1: 1 describedObject ObjectReference, 2 metricName str, 3 timestamp Time, 4 window int?, 5 value quantity, \
6 selector LabelSelector
custom.metrics.k8s.io/v1beta2 MetricValueList: 1 metadata ListMeta, 2 items MetricValue[]
MetricValue: 1 describedObject ObjectReference, 2 metric MetricIdentifier, 3 timestamp Time, 4 windowSeconds int?, \
5 value quantity
MetricIdentifier: 1 name str, 2 selector LabelSelector
ObjectReference: 1 kind str, 2 namespace str, 3 name str, 4 uid str, 5 apiVersion str, 6 resourceVersion str, \
7 fieldPath str
external.metrics.k8s.io/v1beta1 ExternalMetricValueList: 1 metadata ListMeta, 2 items ExternalMetricValue[]
ExternalMetricValue: 1 metricName str, 2 metricLabels map, 3 timestamp Time, 4 window int?, 5 value quantity
Time: 1 seconds int, 2 nanos int
ListMeta: 1 selfLink str, 2 resourceVersion str, 3 continue str, 4 remainingItemCount int?
v1 Status: 1 metadata ListMeta, 2 status str, 3 message str, 4 reason str, 5 details StatusDetails, 6 code int
StatusDetails: 1 name str, 2 group str, 3 kind str, 4 causes StatusCause[], 5 retryAfterSeconds int, 6 uid str
StatusCause: 1 reason str, 2 message str, 3 field str
"""


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    type: str
    repeated: bool
    optional: bool


def _parse_field(text: str) -> tuple[int, _Field]:
    number, name, type_ = text.split()
    bare = type_.removesuffix("[]").removesuffix("?")
    return int(number), _Field(name, bare, repeated=type_.endswith("[]"), optional=type_.endswith("?"))


_FIELDS: Final = {
    name: dict(_parse_field(field) for field in fields.split(","))
    for name, _, fields in (line.partition(":") for line in _MESSAGES.splitlines() if line)
}


def decode_protobuf(content: bytes) -> Object:
    """The object in a body of this media type.

    Raises:
        StatusError: 400, it cannot be read, or has something in it that is not listed here.
    """
    if not content.startswith(_MAGIC):
        raise bad_request("the body of the request is not protobuf as Kubernetes writes it")
    try:
        envelope = dict(_wire_fields(content[len(_MAGIC) :]))
        what = {number: value.decode() for number, value in _wire_fields(envelope[1])}
        api_version, kind = what[1], what[2]
        return {"apiVersion": api_version, "kind": kind, **_decode(envelope[2], f"{api_version} {kind}")}
    except (KeyError, ValueError, IndexError, AttributeError, TypeError) as error:
        raise bad_request(f"the body of the request cannot be read here: {error}; send JSON") from error


def _decode(content: bytes, message: str) -> Object:
    fields = _FIELDS.get(message)
    if fields is None:
        raise ValueError(f"{message} is not known in protobuf")
    result: Object = {}
    for number, raw in _wire_fields(content):
        field = fields.get(number)
        if field is None:
            if raw:
                raise ValueError(f"field {number} of {message} is not known")
            continue
        if field.type == "ignored":
            continue
        value = _value(raw, field.type)
        if field.repeated:
            result.setdefault(field.name, []).append(value)
        elif isinstance(value, dict) and field.type in ("map", "bytes-map"):
            result.setdefault(field.name, {}).update(value)
        elif value or field.optional:  # Go writes what is not optional even where it is empty
            result[field.name] = value
    return result


def _value(raw: Any, type_: str) -> Any:
    match type_:
        case "str":
            return raw.decode()
        case "int":
            return raw - (1 << 64) if raw >> 63 else raw
        case "bool":
            return bool(raw)
        case "quantity":
            return dict(_wire_fields(raw)).get(1, b"").decode()
        case "int-or-str":
            parts = dict(_wire_fields(raw))
            return parts.get(3, b"").decode() if parts.get(1) else parts.get(2, 0)
        case "map" | "bytes-map":
            entry = dict(_wire_fields(raw))
            value = entry.get(2, b"")
            return {entry.get(1, b"").decode(): value.decode() if type_ == "map" else base64.b64encode(value).decode()}
    return _decode(raw, type_)


def _wire_fields(content: bytes) -> Iterator[tuple[int, Any]]:
    """The fields of an encoded message, in order: numbers as integers, everything else as bytes."""
    position = 0
    while position < len(content):
        tag, position = _varint(content, position)
        number, wire_type = tag >> 3, tag & 7
        if wire_type == _VARINT:
            value, position = _varint(content, position)
            yield number, value
            continue
        if wire_type == _BYTES:
            length, position = _varint(content, position)
        elif wire_type in (_FIXED64, _FIXED32):
            length = 8 if wire_type == _FIXED64 else 4
        else:
            raise ValueError(f"wire type {wire_type}")
        if position + length > len(content):
            raise ValueError("it ends too early")
        yield number, content[position : position + length]
        position += length


def _varint(content: bytes, position: int) -> tuple[int, int]:
    """A number and the position after it."""
    value = shift = 0
    while shift < 70:
        byte = content[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    raise ValueError("a number is too long")
