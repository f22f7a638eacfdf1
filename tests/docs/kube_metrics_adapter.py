"""What kube-metrics-adapter 0.2.9 does with an HPA's annotations for Prometheus, and with a ScalingSchedule.

Upstream: pkg/annotations/parser.go, pkg/collector/collector.go, pkg/collector/prometheus_collector.go.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from zoneinfo import ZoneInfo

import aiohttp

_PREFIX = "metric-config."


@dataclass(frozen=True, slots=True)
class Stored:
    """A value in the store, in milli-units, with its labels; of a described object or external (None)."""

    metric: str
    labels: Mapping[str, str]
    described: str | None
    milli: int


async def stored_values(
    hpa: Mapping[str, Any], prometheus_url: str, *, aliases: Mapping[str, str], replicas: int
) -> list[Stored]:
    """Return the values that an HPA's metrics have; metrics without a value are left out.

    Args:
        hpa: of autoscaling/v2.
        prometheus_url: --prometheus-server.
        aliases: --additional-prometheus-server.
        replicas: status.replicas of the target.
    """
    configs = _parse(hpa["metadata"].get("annotations", {}))
    values = []
    for metric in hpa["spec"]["metrics"]:
        kind = metric["type"]
        if kind not in ("Object", "External"):
            continue
        source = metric[kind.lower()]
        name = source["metric"]["name"]
        labels = source["metric"].get("selector", {}).get("matchLabels", {})
        found = configs.get((kind, name))
        config = {**labels, **(found.settings if found else {})}
        if kind == "Object":
            if found is None or found.collector != "prometheus" or "query" not in config:
                continue
            query, server = config["query"], prometheus_url
        else:
            if labels.get("type", name) not in ("prometheus", "prometheus-query") or "selector" not in source["metric"]:
                continue
            query = config["query"] if "query" in config else config.get(config.get("query-name", ""))
            if query is None:
                continue
            server = config.get("prometheus-server") or prometheus_url
            if "prometheus-server" not in config and "prometheus-server-alias" in config:
                server = aliases[config["prometheus-server-alias"]]
        value = await _value(server, query)
        if value is None:
            continue
        if kind == "Object" and found is not None and found.per_replica:
            value /= replicas
        described = source["describedObject"]["name"] if kind == "Object" else None
        values.append(Stored(name, labels, described, int(value * 1000)))
    return values


@dataclass(slots=True)
class _Config:
    collector: str
    settings: dict[str, str]
    per_replica: bool = False


def _parse(annotations: Mapping[str, str]) -> dict[tuple[str, str], _Config]:
    configs: dict[tuple[str, str], _Config] = {}
    for key, value in annotations.items():
        parts = key.split("/")
        words = parts[0].split(".")
        if not key.startswith(_PREFIX) or len(parts) != 2 or len(words) != 4:
            continue
        kind = {"pods": "Pods", "object": "Object"}.get(words[1], "External")
        config = configs.setdefault((kind, words[2]), _Config(words[3], {}))
        if config.collector != words[3]:
            continue
        if parts[1] == "per-replica":
            config.per_replica = True
        elif parts[1] not in ("interval", "min-pod-ready-age"):
            config.settings[parts[1]] = value
    return configs


async def _value(prometheus_url: str, query: str) -> float | None:
    """Return the first value of a query's result; None if there is none, or if it is not a number."""
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"{prometheus_url.rstrip('/')}/api/v1/query", params={"query": query}) as response,
    ):
        data = (await response.json())["data"]
    if data["resultType"] == "scalar":
        value = float(data["result"][1])
    elif data["result"]:
        value = float(data["result"][0]["value"][1])
    else:
        return None
    return None if math.isnan(value) else value


def scheduled_value(schedule: Mapping[str, Any], now: datetime.datetime, *, steps: int = 10) -> int:
    """Return the value of a ScalingSchedule at a time.

    Upstream: pkg/collector/scaling_schedule_collector.go, pkg/controller/scheduledscaling/scheduled_scaling.go.
    """
    spec = schedule["spec"]
    ramp = datetime.timedelta(minutes=spec.get("scalingWindowDurationMinutes", 10))
    return max((_entry_value(entry, now, ramp, steps) for entry in spec["schedules"]), default=0)


def _entry_value(entry: Mapping[str, Any], now: datetime.datetime, ramp: datetime.timedelta, steps: int) -> int:
    if entry["type"] == "OneTime":
        start = datetime.datetime.fromisoformat(entry["date"])
    else:
        local = now.astimezone(ZoneInfo(entry["period"]["timezone"]))
        if f"{local:%a}" not in entry["period"]["days"]:
            return 0
        time = datetime.time.fromisoformat(entry["period"]["startTime"])
        start = datetime.datetime.combine(local.date(), time, local.tzinfo).astimezone(datetime.UTC)
    end = start + datetime.timedelta(minutes=entry["durationMinutes"])
    if start <= now < end:
        return int(entry["value"])
    if start - ramp <= now < start:
        part = (now - (start - ramp)) / ramp
    elif end <= now < end + ramp:
        part = (end + ramp - now) / ramp
    else:
        return 0
    return int(math.floor(part * steps) * (entry["value"] / steps))
