"""Flags of leader election, with the names, defaults and limits of Kubernetes' controllers.

Upstream: component-base options.BindLeaderElectionFlags, leaderelection.NewLeaderElector.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from kube.api.config import own_namespace
from kube.controller.election import JITTER, ElectionSettings
from kube.process.flags import bool_option, option_group
from kube.values.durations import POSITIVE_DURATION, format_duration
from kube.values.names import rfc1123_label_errors, rfc1123_subdomain_errors

F = TypeVar("F", bound=Callable[..., Any])


def election_options(*, lease: str, default_namespace: str) -> Callable[[F], F]:
    """Return the flags; they are passed on as `leader_elect` and `election` (ElectionSettings).

    Args:
        lease: the default name of the Lease.
        default_namespace: of the Lease, outside of a pod.
    """

    def build(
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
            namespace=leader_elect_resource_namespace or own_namespace(default=default_namespace),
            name=leader_elect_resource_name,
            lease_duration=leader_elect_lease_duration,
            renew_deadline=leader_elect_renew_deadline,
            retry_period=leader_elect_retry_period,
        )
        _check_durations(settings)
        return settings

    return option_group(
        "election",
        build,
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
            default=lease,
            help="Name of the Lease; with --shards, each shard's number is added.",
        ),
        click.option(
            "--leader-elect-resource-namespace",
            default="",
            show_default=f"the pod's own, or {default_namespace}",
            help="Namespace of the Lease.",
        ),
    )


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
