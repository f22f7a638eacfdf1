"""The flags about several processes: which of them acts, what outlives it, and how they divide the HPAs.

Those of the leader election have kube-controller-manager's names, defaults and limits. Together they become one
Availability, checked as a whole: some of the values only make sense beside each other.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any, TypeVar

import click

from autoscaler.loop.options import Availability
from autoscaler.loop.saved_history import SavedHistoryLocation
from autoscaler.loop.sharding import Shard, pod_ordinal
from kube.config import own_namespace
from kube.durations import POSITIVE_DURATION, format_duration
from kube.election import JITTER, ElectionSettings
from kube.flags import bool_option
from kube.names import label_value_errors, rfc1123_label_errors, rfc1123_subdomain_errors

_F = TypeVar("_F", bound=Callable[..., Any])

_DEFAULT_NAMESPACE = "kube-system"
_DEFAULT_NAME = "milliscale-autoscaler"
_DEFAULT_STATE = "milliscale-autoscaler-state"


def availability_options(function: _F) -> _F:
    """Add the flags; their values are passed on together, as `availability`."""

    @functools.wraps(function)
    def wrapper(
        *,
        leader_elect: bool,
        lease_duration: float,
        renew_deadline: float,
        retry_period: float,
        resource_lock: str,  # noqa: ARG001  # there is one kind
        resource_name: str,
        resource_namespace: str,
        state_configmap: str,
        shards: int,
        shard_index: int | None,
        **others: Any,
    ) -> Any:
        shard = _shard(shards, shard_index)
        election = ElectionSettings(
            namespace=_namespace(resource_namespace) or own_namespace(default=_DEFAULT_NAMESPACE),
            name=shard.name(_name(resource_name, "--leader-elect-resource-name")),
            lease_duration=lease_duration,
            renew_deadline=renew_deadline,
            retry_period=retry_period,
        )
        _check_times(election)
        availability = Availability(
            election=election if leader_elect else None,
            saved_history=_location(state_configmap, election.namespace),
            shard=shard,
        )
        return function(availability=availability, **others)

    for option in reversed(_OPTIONS):
        option(wrapper)
    return wrapper  # type: ignore[return-value]  # click looks at the parameters that the options declare, not here


_OPTIONS = (
    bool_option(
        "--leader-elect",
        default=True,
        show_default=True,
        help="Act only while holding a Lease, so that of several processes one acts and the others stand by.",
    ),
    click.option(
        "--leader-elect-lease-duration",
        "lease_duration",
        type=POSITIVE_DURATION,
        default="15s",
        show_default=True,
        help="Time after which the Lease of a process that is silent may be taken.",
    ),
    click.option(
        "--leader-elect-renew-deadline",
        "renew_deadline",
        type=POSITIVE_DURATION,
        default="10s",
        show_default=True,
        help="Time without a renewal after which the holder stops acting; must be shorter than the lease's duration.",
    ),
    click.option(
        "--leader-elect-retry-period",
        "retry_period",
        type=POSITIVE_DURATION,
        default="2s",
        show_default=True,
        help="Time between tries to take or to renew the Lease.",
    ),
    click.option(
        "--leader-elect-resource-lock",
        "resource_lock",
        type=click.Choice(["leases"]),
        default="leases",
        show_default=True,
        help="The kind of the lock.",
    ),
    click.option(
        "--leader-elect-resource-name",
        "resource_name",
        default=_DEFAULT_NAME,
        show_default=True,
        help="Name of the Lease; with --shards, each shard's number is added.",
    ),
    click.option(
        "--leader-elect-resource-namespace",
        "resource_namespace",
        default="",
        help=f"Namespace of the Lease.  [default: the pod's own; outside of pods {_DEFAULT_NAMESPACE}]",
    ),
    click.option(
        "--state-configmap",
        "state_configmap",
        default=_DEFAULT_STATE,
        show_default=True,
        help="[NAMESPACE/]NAME of the ConfigMap in which recommendations and scale events outlive this process, in "
        'the Lease\'s namespace unless it says another; "" keeps them in memory only.',
    ),
    click.option(
        "--shards",
        type=click.IntRange(min=1),
        default=1,
        show_default=True,
        help="Divide the HPAs among that many processes, by a hash of namespace and name.",
    ),
    click.option(
        "--shard-index",
        type=click.IntRange(min=0),
        help="Which part is this process's, from 0.  [default: the number at the end of the pod's name, as "
        "StatefulSets give it, modulo --shards]",
    ),
)


def _shard(count: int, index: int | None) -> Shard:
    if index is None and count > 1:
        host = os.environ.get("HOSTNAME") or os.uname().nodename
        number = pod_ordinal(host)
        if number is None:
            raise click.UsageError(
                f"--shards={count}: which of them is this? The name {host!r} does not end in a number, as those of a "
                "StatefulSet's pods do; give --shard-index"
            )
        index = number % count
    index = index or 0
    if index >= count:
        raise click.UsageError(f"--shard-index={index} must be lower than --shards={count}")
    return Shard(index=index, count=count)


def _check_times(election: ElectionSettings) -> None:
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


def _location(text: str, default_namespace: str) -> SavedHistoryLocation | None:
    if not text:
        return None
    namespace, _, name = text.rpartition("/")
    errors = [*label_value_errors(name), *rfc1123_subdomain_errors(name)]
    if namespace:
        errors += rfc1123_label_errors(namespace)
    if errors:
        raise click.UsageError(f"--state-configmap={text}: {errors[0]}")
    return SavedHistoryLocation(namespace=namespace or default_namespace, name=name)


def _name(name: str, flag: str) -> str:
    if errors := rfc1123_subdomain_errors(name):
        raise click.UsageError(f"{flag}={name}: {errors[0]}")
    return name


def _namespace(namespace: str) -> str:
    if namespace and (errors := rfc1123_label_errors(namespace)):
        raise click.UsageError(f"--leader-elect-resource-namespace={namespace}: {errors[0]}")
    return namespace
