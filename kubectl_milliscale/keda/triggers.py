"""Make a metric of an HPA from a trigger of KEDA, and the spec of the MetricRule that it reads.

Upstream: pkg/scalers/prometheus_scaler.go, cron_scaler.go and cpu_memory_scaler.go of KEDA 2.20.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice, pairwise, repeat
from typing import Any

from cronsim import CronSim, CronSimError

from kube.process.flags import parse_bool
from kube.values.quantity import Quantity, QuantityError
from kubectl_milliscale.keda.manifests import Object, Trigger
from kubectl_milliscale.keda.servers import Server, authenticate

MOVED = ("prometheus", "cron", "cpu", "memory")
"""The types of triggers that can be moved."""

_SMALLEST_STEP = 0.001  # values are milli-values
_KNOWN = {
    "prometheus": frozenset(
        [
            *("serverAddress", "query", "threshold", "activationThreshold", "ignoreNullValues", "namespace"),
            *("customHeaders", "queryParameters", "unsafeSsl", "awsRegion", "timeout", "identityOwner"),
            *("authModes", "authMode", "cloud", "azureManagedPrometheusResourceURL"),
            *("metricName", "cortexOrgID"),  # of older versions
        ]
    ),
    "cron": frozenset({"timezone", "start", "end", "desiredReplicas"}),
    "cpu": frozenset({"type", "value", "containerName"}),
    "memory": frozenset({"type", "value", "containerName"}),
}

_CRON_FIELDS = 5
_DAY_OF_MONTH, _DAY_OF_WEEK = 2, 4
_ANY_TIME = datetime(2026, 1, 1)  # noqa: DTZ001 - without a time zone there are no clock changes
_MATCHES = 40


class TriggerError(ValueError):
    """A trigger cannot be moved; the message says why."""


@dataclass(slots=True)
class Metric:
    """What a trigger becomes."""

    spec: dict[str, Any]
    """The entry of the HPA's `metrics`; without the metric's name if there is a rule."""
    rule: dict[str, Any] | None = None
    """The spec of the MetricRule, without type and the metric's name; None for a metric of type Resource."""
    server: Server | None = None
    """That the rule needs; None for none."""
    problems: list[str] = field(default_factory=list)
    """What is to be done by hand."""
    notes: list[str] = field(default_factory=list)
    """What differs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Activation:
    """When a ScaledObject scales from zero, and to how many replicas."""

    to_zero: bool
    """It scales to zero."""
    least: int
    """The replicas that it has when a trigger is active; more than 1 with idleReplicaCount."""
    hold_seconds: int = 0
    """How long a metric of Prometheus must have been inactive before it is 0; 0: not at all."""


def moved_trigger(trigger: Trigger, activation: Activation, authentication: Object | None) -> Metric:
    """Return the metric of a trigger, of which this is the spec of the TriggerAuthentication.

    Raises:
        TriggerError: it cannot be moved.
    """
    if trigger.type not in MOVED:
        raise TriggerError("only prometheus, cron, cpu and memory can be moved")
    metadata = {key: _text(value) for key, value in trigger.metadata.items()}
    metadata = {key: value for key, value in metadata.items() if value}
    if trigger.type == "prometheus":
        metric = _prometheus(trigger, metadata, activation)
        metric.server = _server(metadata)
        authenticate(metric.server, trigger, metadata, authentication)
        url = metric.server.entry["url"]
        if "." not in url:
            metric.notes.append(f"{url} has no namespace in its host: KEDA looks for it in its own namespace")
    elif trigger.type == "cron":
        metric = _cron(trigger, metadata, activation)
    else:
        metric = _resource(trigger, metadata)
    ignored = sorted(metadata.keys() - _KNOWN[trigger.type])
    metric.notes += [f"metadata.{key} is no key of KEDA's trigger {trigger.type}, and is ignored" for key in ignored]
    return metric


def _prometheus(trigger: Trigger, metadata: Mapping[str, str], activation: Activation) -> Metric:
    query, threshold = _required(metadata, "query"), _number(_required(metadata, "threshold"), "threshold")
    metric = Metric(_external(trigger, threshold))
    if (cut := math.trunc(threshold * 1000)) != (rounded := round(float(f"{threshold:.3f}") * 1000)):
        metric.notes.append(f"threshold {threshold:g}: {cut}m, as KEDA up to 2.19 cuts it; later ones use {rounded}m")
    rule: dict[str, Any] = {"query": query}
    metric.rule = rule
    least_active = _number(metadata.get("activationThreshold", "0"), "activationThreshold")
    if activation.least > 1:
        if trigger.metric_type == "Value":
            raise TriggerError("idleReplicaCount goes only with metricType AverageValue")
        # At least as much as the least replicas have, and 0 while it is inactive.
        least = activation.least * threshold
        rule["query"] = f"clamp_min(\n{query}\n, {_decimal(least)})\n* ((\n{query}\n) > bool {_decimal(least_active)})"
    elif activation.to_zero and (least_active > 0 or activation.hold_seconds):
        # KEDA's trigger is active above its threshold, ours from its threshold.
        rule["activation"] = {"threshold": _decimal(max(least_active, 0.0) + _SMALLEST_STEP)}
        if activation.hold_seconds:
            rule["activation"]["for"] = f"{activation.hold_seconds}s"
    if _boolean(metadata.get("ignoreNullValues", "true"), "ignoreNullValues"):
        rule |= {"empty": "zero", "inf": "zero"}
    else:
        rule["nan"] = "missing"
    return metric


def _server(metadata: Mapping[str, str]) -> Server:
    entry: dict[str, Any] = {"url": _required(metadata, "serverAddress").rstrip("/")}
    headers = _pairs(metadata.get("customHeaders", ""), "customHeaders")
    if tenant := metadata.get("cortexOrgID"):
        headers.setdefault("X-Scope-OrgID", tenant)
    if headers:
        entry["headers"] = headers
    parameters = _pairs(metadata.get("queryParameters", ""), "queryParameters")
    if namespace := metadata.get("namespace"):
        parameters["namespace"] = namespace
    if parameters:
        entry["queryParameters"] = parameters
    if timeout := metadata.get("timeout"):
        entry["timeout"] = f"{timeout}ms" if timeout.isdigit() else timeout
    if _boolean(metadata.get("unsafeSsl", "false"), "unsafeSsl"):
        entry["insecureSkipVerify"] = True
    return Server(entry)


def _cron(trigger: Trigger, metadata: Mapping[str, str], activation: Activation) -> Metric:
    if trigger.metric_type == "Value":
        raise TriggerError("with metricType Value the replicas are multiplied at every reconciliation")
    replicas = _required(metadata, "desiredReplicas")
    if not replicas.isdigit() or int(replicas) == 0:
        raise TriggerError(f"desiredReplicas: {replicas!r} is no number of replicas")
    try:
        start, end = (debian_cron(_required(metadata, key)) for key in ("start", "end"))
    except ValueError as error:
        raise TriggerError(str(error)) from error
    window = {"start": start, "end": end, "value": max(int(replicas), activation.least)}
    schedule = {"timezone": _required(metadata, "timezone"), "windows": [window]}
    metric = Metric(_external(trigger, 1.0), {"schedule": schedule})
    if _repeats(start, end):
        metric.notes.append(
            "start or end matches several times: KEDA counts from its last match, a window from the first"
        )
    return metric


def debian_cron(text: str) -> str:
    """Return the expression for Debian's cron that means the same as one of robfig/cron, which KEDA uses.

    Raises:
        ValueError: there is none; the message says why.
    """
    fields = text.replace("?", "*").split()
    if len(fields) != _CRON_FIELDS:
        raise ValueError(f"{text!r} is no cron expression of five fields")
    days = fields[_DAY_OF_MONTH], fields[_DAY_OF_WEEK]
    # Either may match in KEDA; in Debian's cron both must, because the field starts with a star.
    if all(day != "*" for day in days) and any(day.startswith("*") for day in days):
        raise ValueError(f"in {text!r}, write the step of days as a list, such as 1,3,5")
    return " ".join(fields)


def _repeats(start: str, end: str) -> bool:
    """Return True if the start matches again before the end does, or the end again before the next start.

    KEDA's trigger is active from the last start until the last end, a window from the first start until the first end.
    """
    try:
        matches = heapq.merge(*(zip(CronSim(text, _ANY_TIME), repeat(text)) for text in (start, end)))
        return any(before == after for (_, before), (_, after) in pairwise(islice(matches, _MATCHES)))
    except CronSimError:
        return False  # the reader of schedules says what is wrong


def _resource(trigger: Trigger, metadata: Mapping[str, str]) -> Metric:
    value, kind = _required(metadata, "value"), trigger.metric_type or metadata.get("type", "")
    target: dict[str, Any] = {"type": kind}
    if kind == "Utilization":
        if not value.isdigit() or int(value) == 0:
            raise TriggerError(f"value: {value!r} is no percentage")
        target["averageUtilization"] = int(value)
    elif kind == "AverageValue":
        try:
            Quantity.parse(value)
        except QuantityError as error:
            raise TriggerError(f"value: {value!r}: {error}") from error
        target["averageValue"] = value
    else:
        raise TriggerError(f"metricType: expected Utilization or AverageValue, got {kind!r}")
    source = {"name": trigger.type, "target": target}
    if container := metadata.get("containerName"):
        source["container"] = container
        metric = Metric({"type": "ContainerResource", "containerResource": source})
    else:
        metric = Metric({"type": "Resource", "resource": source})
    if "type" in metadata:
        used = "metricType counts" if trigger.metric_type else "without metricType, KEDA 2.18 refuses the trigger"
        metric.notes.append(f"metadata.type was removed in KEDA 2.18: {used}")
    return metric


def _external(trigger: Trigger, threshold: float) -> dict[str, Any]:
    """Return a metric of type External. Upstream: GetMetricTargetMili of KEDA 2.19."""
    kind = trigger.metric_type or "AverageValue"
    if kind not in ("AverageValue", "Value"):
        raise TriggerError(f"metricType: expected AverageValue or Value, got {kind!r}")
    milli = math.trunc(threshold * 1000)
    if milli <= 0:
        raise TriggerError(f"threshold: must be at least 0.001, got {threshold:g}")
    key = kind[0].lower() + kind[1:]
    return {"type": "External", "external": {"target": {"type": kind, key: str(Quantity.from_milli(milli))}}}


def _required(metadata: Mapping[str, str], key: str) -> str:
    if key not in metadata:
        raise TriggerError(f"it has no metadata.{key}")
    return metadata[key]


def _number(text: str, key: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise TriggerError(f"{key}: {text!r} is no number")
    return number


def _boolean(text: str, key: str) -> bool:
    try:
        return parse_bool(text)
    except ValueError:
        raise TriggerError(f"{key}: expected true or false, got {text!r}") from None


def _pairs(text: str, key: str) -> dict[str, str]:
    """Read KEDA's form of a mapping: a=b,c=d."""
    pairs = [part.split("=") for part in text.split(",")] if text else []
    if any(len(pair) != 2 for pair in pairs):
        raise TriggerError(f"{key}: expected name=value,name=value, got {text!r}")
    return {name.strip(): value.strip() for name, value in pairs}


def _decimal(number: float) -> int | str:
    """Return a number as the API has it: a whole one as a number, others as a text."""
    text = f"{number:.3f}".rstrip("0").rstrip(".")
    return int(text) if text.isdigit() else text


def _text(value: object) -> str:
    """Return a value of metadata as text; KEDA trims it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value).strip()
