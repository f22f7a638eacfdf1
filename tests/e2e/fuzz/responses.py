"""Random responses of the metrics APIs: ordinary values, odd quantities, and faults of every kind."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

CUSTOM, EXTERNAL, RESOURCE = "custom.metrics.k8s.io", "external.metrics.k8s.io", "metrics.k8s.io"
PAST, FUTURE = "2020-01-02T03:04:05Z", "2099-01-02T03:04:05Z"
"""No boundary of readiness lies between the start of a run and its end."""

VALUES = ["0", "1", "7", "10", "12500m", "33.3", "100", "250", "1k", "0.018", "1e3", "64Ki", "981k", "15000u", "20"]
ODD_VALUES = [
    *("-5", "-1500m", "-0.0000000001", "1n", "-1n", "1234567891n", "+3", "00012", "5.", ".5", "1E", ".", "E", "1e-7"),
    *("-8.3181Gi", "-8.3Mi", "-9223372036.123456789", "1.23456789123", "-1.23456789123"),
    *("1.7Gi", "-1.7Gi", "2M", "1.7Mi"),
]
HUGE_VALUES = [
    *("1e12", "-1e12", "123456789012", "1T", "2Ti", "1152921504606846m", "-1152921504606846m"),
    *("9223372036854775807", "9223372036854775807m", "-9223372036854775808", "9223372036854776", "9223372036854775"),
    *("123456789012345678901234567890", "-123456789012345678901234567890", "1e30", "-1e30", "8Ei", "-8Ei", "1000E"),
    *(
        "575283975794541.1234567",
        "-575283975794541.1234567",
        "-575283975794541123.4567",
        "92233720368547758.07",
        "-92233720368547758.09",
    ),
    *("4611686018427387904", "18446744073709551617m", "1e18", "1e16", "2E", "-10.5Gi"),
]
BAD_VALUES = ["NaN", "+Inf", "-Inf", "", "one", "1Q", "0x10", "1e", "1 ", "--1", "1.2.3"]
BODIES = [
    "boom",
    "",
    "service unavailable\n",
    "<html><body>502</body></html>",
    '{"error":"boom"}',
    "line\nline",
    'say "x"',
]
CODES = [400, 401, 403, 404, 405, 406, 409, 415, 418, 422, 429, 500, 502, 503, 504]


@dataclass(frozen=True, slots=True)
class Response:
    """One response. `items` are of a list that is filled in by the server; otherwise `body` is sent as it is."""

    items: tuple[dict[str, Any], ...] | None = None
    code: int = 200
    body: str = ""
    content_type: str = "application/json"
    headers: dict[str, str] = field(default_factory=dict)
    kind: str = "good"
    """The kind of fault, for the printed difference."""


def status_body(code: int, message: str | None, **more: Any) -> str:
    """A metav1.Status."""
    body = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": code, **more}
    return json.dumps(body if message is None else {**body, "message": message})


def fault(random: Random) -> Response:
    """A response that is an error."""
    code = random.choice(CODES)
    # Without a number of seconds the request is not retried.
    headers = random.choice([{}, {}, {}, {"Retry-After": "soon"}])
    if random.random() < 0.05:
        code, headers = random.choice([429, 500, 503]), {"Retry-After": "0"}
    if random.random() < 0.5:
        message = random.choice(["no metric of that name", 'it\'s "down"', "", None, "a\nb"])
        body = status_body(code, message, reason=random.choice(["NotFound", "InternalError", "", "Odd"]))
        if random.random() < 0.15:
            body = status_body(code, message, status=random.choice(["Success", ""]))
        return Response(code=code, body=body, headers=headers, kind=f"Status {code}")
    kinds = ["text/plain", "text/html; charset=utf-8", "application/json", "application/octet-stream", "text/plain"]
    return Response(
        code=code,
        body=random.choice([*BODIES, "x" * 3000]),
        content_type=random.choice(kinds),
        headers=headers,
        kind=f"no Status {code}",
    )


def undecodable(random: Random) -> Response:
    """A response with status 200 that is not the requested list."""
    bodies = [
        *("", "null", "[]", "{}", '"text"', "nonsense", '{"kind":"List"}', '{"items":{}}', '{"items":[null]}'),
        status_body(500, "a failure with code 200"),
    ]
    return Response(body=random.choice(bodies), kind="undecodable")


def value(random: Random) -> Any:
    """A quantity, as text mostly."""
    draw = random.random()
    if draw < 0.78:
        return random.choice(VALUES)
    if draw < 0.945:
        return random.choice(ODD_VALUES)
    if draw < 0.97:
        return random.choice([5, 0, -3, 1.5, 1234567890])
    if draw < 0.98:
        return str(random.randint(-(10**9), 10**9)) + random.choice(["m", "u", "n", "", "Ki"])
    return random.choice(BAD_VALUES) if draw < 0.994 else random.choice(HUGE_VALUES)


def timestamp(random: Random) -> dict[str, Any]:
    """The timestamp of a value."""
    draw = random.random()
    if draw < 0.96:
        return {"timestamp": random.choice([PAST, FUTURE])}
    return random.choice([{}, {"timestamp": None}])


def pods_response(random: Random, names: Sequence[str]) -> Response:
    """A custom metric of pods."""
    if random.random() < 0.22:
        return fault(random) if random.random() < 0.85 else undecodable(random)
    items = [
        {
            "describedObject": {"kind": "Pod", "namespace": "NAMESPACE", "name": name, "apiVersion": "/v1"},
            "metric": {"name": "m"},
            "value": value(random),
            **timestamp(random),
            **random.choice([{}, {"windowSeconds": 30}, {"windowSeconds": 0}, {"windowSeconds": None}]),
        }
        for name in _some(random, names)
    ]
    return Response(items=tuple(items))


def object_response(random: Random, name: str) -> Response:
    """A custom metric of one object."""
    if random.random() < 0.22:
        return fault(random) if random.random() < 0.85 else undecodable(random)
    item = {
        "describedObject": {"kind": "Service", "namespace": "NAMESPACE", "name": name, "apiVersion": "/v1"},
        "metric": {"name": "m"},
        **timestamp(random),
    }
    items = [{**item, "value": value(random)} for _ in range(random.choice([1, 1, 1, 1, 1, 1, 1, 0, 2]))]
    return Response(items=tuple(items))


def external_response(random: Random) -> Response:
    """An external metric."""
    if random.random() < 0.22:
        return fault(random) if random.random() < 0.85 else undecodable(random)
    items = [
        {"metricName": "m", "metricLabels": {"n": str(number)}, "value": value(random), **timestamp(random)}
        for number in range(random.choice([1, 1, 1, 1, 2, 2, 3, 0]))
    ]
    return Response(items=tuple(items))


def resource_response(random: Random, names: Sequence[str], containers: Sequence[str]) -> Response:
    """The usage of pods."""
    if random.random() < 0.15:
        return fault(random) if random.random() < 0.85 else undecodable(random)
    items = []
    for name in _some(random, names):
        listed = [each for each in containers if random.random() < 0.95]
        if random.random() < 0.06:
            listed.append(random.choice([*containers, "unknown"]))
        usages = [{"name": each, "usage": _usage(random)} for each in listed]
        window = random.choice([{"window": "30s"}, {"window": "1m0s"}, {"window": "0s"}, {}])
        items.append({"metadata": {"name": name}, "containers": usages, **timestamp(random), **window})
    return Response(items=tuple(items))


def _usage(random: Random) -> dict[str, Any]:
    usage = {}
    for resource, values in (
        ("cpu", ["0", "10m", "50m", "100m", "250m", "1", "123456789n"]),
        ("memory", ["1Mi", "98101Ki", "64M", "1Gi"]),
    ):
        if random.random() < 0.97:
            usage[resource] = value(random) if random.random() < 0.03 else random.choice(values)
    return usage


def _some(random: Random, names: Sequence[str]) -> list[str]:
    """Most of the pods; at times one too many, one twice, or none."""
    chosen = [name for name in names if random.random() < 0.92]
    if random.random() < 0.06:
        chosen.append("no-such-pod")
    if chosen and random.random() < 0.05:
        chosen.append(random.choice(chosen))
    return [] if random.random() < 0.03 else chosen
