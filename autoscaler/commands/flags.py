"""Groups of flags: the values of each group become one checked settings object.

Names, units, defaults and limits are those of kube-controller-manager; those of the audit file are kube-apiserver's.
Upstream: component-base options.BindLeaderElectionFlags, leaderelection.NewLeaderElector.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from autoscaler.core.config import Config
from autoscaler.loop.endpoint import DebugAccess
from autoscaler.loop.options import Availability, DecisionLogOptions
from autoscaler.loop.saved_history import SavedHistoryLocation
from autoscaler.loop.sharding import Shard, pod_ordinal
from autoscaler.records.audit import AuditSettings
from kube.api.config import own_namespace
from kube.controller.election import JITTER, ElectionSettings
from kube.process.flags import MILLISECONDS, POSITIVE_DURATION, Parsed, bool_option, option_group, parse_bool
from kube.serving.flags import review_flags, tls_flags, token_ttl_flag, trust_flags
from kube.serving.options import AuthOptions
from kube.values.durations import format_duration
from kube.values.names import label_value_errors, rfc1123_label_errors, rfc1123_subdomain_errors
from kube.web.options import UIAddress, external_url

_F = TypeVar("_F", bound=Callable[..., Any])

_FEATURE_GATES: Final = ("HPAScaleToZero",)
_MEGABYTE: Final = 2**20
_CONFIG: Final = Config()
_DECISION_LOG: Final = DecisionLogOptions()
_LEASE: Final = "milliscale-autoscaler"
_NAMESPACE: Final = "kube-system"
"""Of the Lease, outside of a pod."""


def finite(text: str) -> float:
    """Parse a number. Raises ValueError."""
    try:
        number = float(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a number such as 0.1") from None
    if not math.isfinite(number):
        raise ValueError(f"{text!r} is not a finite number")
    return number


def _tolerance(text: str) -> float:
    if (number := finite(text)) < 0:
        raise ValueError(f"{text} must not be negative")
    return number


def _scale_to_zero(text: str) -> bool:
    """Parse `Name=true,Other=false`; return the value of HPAScaleToZero."""
    gates = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, enabled = part.partition("=")
        if name not in _FEATURE_GATES:
            raise ValueError(f"unknown feature gate {name!r}; known: {', '.join(_FEATURE_GATES)}")
        if not enabled:
            raise ValueError(f"{name} has no value, and is neither true nor false: write {name}=true")
        gates[name] = parse_bool(enabled)
    return gates.get("HPAScaleToZero", _CONFIG.scale_to_zero)


# --- settings of decisions -------------------------------------------------------------------------------------------


config_options = option_group(
    "config",
    Config,
    click.option(
        "--horizontal-pod-autoscaler-downscale-stabilization",
        "downscale_stabilization_ms",
        type=MILLISECONDS,
        default="5m0s",
        help="Stabilization window for scaling down, for HPAs that set none.",
    ),
    click.option(
        "--horizontal-pod-autoscaler-tolerance",
        "tolerance",
        type=Parsed("float", _tolerance),
        default=_CONFIG.tolerance,
        help="Minimum change (from 1.0) in the ratio of a metric to its target for scaling.",
    ),
    click.option(
        "--horizontal-pod-autoscaler-cpu-initialization-period",
        "cpu_initialization_period_ms",
        type=MILLISECONDS,
        default="5m0s",
        help="Time after a pod's start in which CPU samples may be skipped.",
    ),
    click.option(
        "--horizontal-pod-autoscaler-initial-readiness-delay",
        "initial_readiness_delay_ms",
        type=MILLISECONDS,
        default="30s",
        help="Time after a pod's start in which readiness changes are treated as initial readiness.",
    ),
    click.option(
        "--feature-gates",
        "scale_to_zero",
        type=Parsed("gates", _scale_to_zero),
        default="",
        show_default=False,
        help="Comma-separated key=value pairs. Options are: HPAScaleToZero=true|false (default: true, as in Kubernetes "
        "1.37).",
    ),
)


# --- several processes ---------------------------------------------------------------------------------------------


def _election(
    *,
    leader_elect_lease_duration: float,
    leader_elect_renew_deadline: float,
    leader_elect_retry_period: float,
    leader_elect_resource_lock: str,  # noqa: ARG001  # Leases are the only kind
    leader_elect_resource_name: str,
    leader_elect_resource_namespace: str,
) -> ElectionSettings:
    if errors := rfc1123_subdomain_errors(leader_elect_resource_name):
        raise click.UsageError(f"--leader-elect-resource-name={leader_elect_resource_name}: {errors[0]}")
    if leader_elect_resource_namespace and (errors := rfc1123_label_errors(leader_elect_resource_namespace)):
        raise click.UsageError(f"--leader-elect-resource-namespace={leader_elect_resource_namespace}: {errors[0]}")
    settings = ElectionSettings(
        namespace=leader_elect_resource_namespace or own_namespace(default=_NAMESPACE),
        name=leader_elect_resource_name,
        lease_duration=leader_elect_lease_duration,
        renew_deadline=leader_elect_renew_deadline,
        retry_period=leader_elect_retry_period,
    )
    _check_durations(settings)
    return settings


def _check_durations(election: ElectionSettings) -> None:
    """Check the limits of leaderelection.NewLeaderElector.

    Raises:
        click.UsageError: a duration is too short.
    """
    lease, renew, retry = (
        f"--leader-elect-{name}={format_duration(seconds)}"
        for name, seconds in (
            ("lease-duration", election.lease_duration),
            ("renew-deadline", election.renew_deadline),
            ("retry-period", election.retry_period),
        )
    )
    if election.lease_duration < 1:
        raise click.UsageError(f"{lease} must be at least 1s: a Lease counts in seconds")
    if election.lease_duration <= election.renew_deadline:
        raise click.UsageError(f"{lease} must be longer than {renew}")
    if election.renew_deadline <= JITTER * election.retry_period:
        raise click.UsageError(f"{renew} must be longer than {JITTER} times {retry}")


def _availability(
    *, leader_elect: bool, election: ElectionSettings, state_configmap: str, shards: int, shard_index: int | None
) -> Availability:
    shard = _shard(shards, shard_index)
    return Availability(
        election=replace(election, name=shard.name(election.name)) if leader_elect else None,
        saved_history=_saved_history(state_configmap, election.namespace),
        shard=shard,
    )


def _shard(count: int, index: int | None) -> Shard:
    if index is None and count > 1:
        host = os.environ.get("HOSTNAME") or os.uname().nodename
        number = pod_ordinal(host)
        if number is None:
            raise click.UsageError(
                f"--shards={count} needs --shard-index: the host name {host!r} does not end in a number, as those of a "
                "StatefulSet's pods do"
            )
        index = number % count
    index = index or 0
    if index >= count:
        raise click.UsageError(f"--shard-index={index} must be lower than --shards={count}")
    return Shard(index=index, count=count)


def _saved_history(text: str, default_namespace: str) -> SavedHistoryLocation | None:
    if not text:
        return None
    namespace, _, name = text.rpartition("/")
    errors = [*label_value_errors(name), *rfc1123_subdomain_errors(name)]
    if namespace:
        errors += rfc1123_label_errors(namespace)
    if errors:
        raise click.UsageError(f"--state-configmap={text}: {errors[0]}")
    return SavedHistoryLocation(namespace=namespace or default_namespace, name=name)


_election_options = option_group(
    "election",
    _election,
    bool_option(
        "--leader-elect",
        default=True,
        help="Elect a leader before acting. Enable this when running several replicas for high availability.",
    ),
    click.option(
        "--leader-elect-lease-duration",
        type=POSITIVE_DURATION,
        default="15s",
        help="Time after which other candidates may take over a Lease that is not renewed.",
    ),
    click.option(
        "--leader-elect-renew-deadline",
        type=POSITIVE_DURATION,
        default="10s",
        help="Time after which a leader that cannot renew its Lease stops acting; less than the lease duration.",
    ),
    click.option(
        "--leader-elect-retry-period",
        type=POSITIVE_DURATION,
        default="2s",
        help="Time between attempts to acquire or renew the Lease.",
    ),
    click.option(
        "--leader-elect-resource-lock",
        type=click.Choice(["leases"]),
        default="leases",
        hidden=True,  # kube-controller-manager's flag, with its only valid value.
    ),
    click.option(
        "--leader-elect-resource-name",
        default=_LEASE,
        help="Name of the Lease; with --shards, each shard's number is added.",
    ),
    click.option(
        "--leader-elect-resource-namespace",
        default="",
        show_default=f"the pod's own, or {_NAMESPACE}",
        help="Namespace of the Lease.",
    ),
)
_sharding_options = option_group(
    "availability",
    _availability,
    click.option(
        "--state-configmap",
        default="milliscale-autoscaler-state",
        help="[NAMESPACE/]NAME of the ConfigMap in which recommendations and scale events are saved for the next "
        "leader. The default namespace is the Lease's. Empty: they are not saved.",
    ),
    click.option(
        "--shards",
        type=click.IntRange(min=1),
        default=1,
        help="Number of processes among which HPAs are divided, by a hash of namespace and name.",
    ),
    click.option(
        "--shard-index",
        type=click.IntRange(min=0),
        show_default="the ordinal in the name of a StatefulSet's pod, modulo --shards",
        help="Index of this process's shard, from 0.",
    ),
)


def availability_options(command: _F) -> _F:
    """Add the flags about several processes; passed on as `availability`."""
    return _election_options(_sharding_options(command))


# --- web pages -----------------------------------------------------------------------------------------------------

_ui_address = click.option(
    "--ui-address",
    type=Parsed("address", UIAddress.parse),
    show_default="no pages",
    help="HOST:PORT on which to serve web pages about HPAs and decisions. A loopback address, such as 127.0.0.1:8081 "
    "for kubectl port-forward: over HTTP, to everyone. Any other address: over TLS, to users who may get "
    "horizontalpodautoscalers, with the flags below.",
)


_adapter_ui_url = click.option(
    "--adapter-ui-url",
    type=Parsed("url", external_url),
    show_default="no links",
    help="URL at which users open the pages of the adapter (its --ui-address), to which the pages of metrics link.",
)


_prometheus_url = click.option(
    "--prometheus-url",
    type=Parsed("url", external_url),
    show_default="no history",
    help="URL of a Prometheus with kube-state-metrics, from which the pages of HPAs draw the last hour, 6 hours, day "
    "and week. It is queried without credentials, unless the URL has a user and a password.",
)


def ui_options(command: _F) -> _F:
    """Add the flags about web pages: `ui_address`, `adapter_ui_url`, `prometheus_url` and `ui_auth`."""
    auth = tls_flags(trust_flags(token_ttl_flag(review_flags(option_group("ui_auth", AuthOptions)(command)))))
    return _ui_address(_adapter_ui_url(_prometheus_url(auth)))


# --- records of decisions ------------------------------------------------------------------------------------------


def _decision_log(
    *,
    kept_decisions: int,
    debug_endpoints: str,
    audit_log: Path | None,
    audit_log_maxsize: int,
    audit_log_maxbackup: int,
) -> DecisionLogOptions:
    audit = None
    if audit_log is not None:
        audit = AuditSettings(path=audit_log, max_bytes=audit_log_maxsize * _MEGABYTE, max_backups=audit_log_maxbackup)
    return DecisionLogOptions(max_per_hpa=kept_decisions, debug_access=DebugAccess(debug_endpoints), audit=audit)


decision_log_options = option_group(
    "decision_log",
    _decision_log,
    click.option(
        "--kept-decisions",
        type=click.IntRange(0, 1000),
        default=_DECISION_LOG.max_per_hpa,
        help="Number of decisions to keep in memory per HPA, for `explain`; at most 32 MiB for all HPAs.",
    ),
    click.option(
        "--debug-endpoints",
        type=click.Choice([each.value for each in DebugAccess]),
        default=_DECISION_LOG.debug_access.value,
        help="Who may read /debug/decisions, /debug/shadow and /debug/config on --metrics-port. local: loopback "
        "connections, such as those of kubectl port-forward; all: everyone; off: nobody.",
    ),
    click.option(
        "--audit-log",
        type=click.Path(dir_okay=False, path_type=Path),
        help="File to which every decision is appended, one JSON object per line.",
    ),
    click.option(
        "--audit-log-maxsize",
        type=click.IntRange(min=1),
        default=100,
        help="Maximum size in megabytes of the audit file before it is rotated.",
    ),
    click.option(
        "--audit-log-maxbackup",
        type=click.IntRange(min=0),
        default=10,
        help="Maximum number of rotated audit files to retain; 0: no limit.",
    ),
)
