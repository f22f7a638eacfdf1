"""The command `advise`."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import sys
from concurrent.futures import Future
from pathlib import Path
from typing import Final

import click
from click.core import ParameterSource

from adapter.commands.flags import PrometheusAccess, prometheus_flags
from autoscaler.commands.flags import config_options
from autoscaler.core.config import Config
from kube.process.flags import GoCommand, flag_section, kubeconfig_options
from kube.process.runtime import run
from replay.advise.judge import Advice, judge, unjudged
from replay.advise.report import json, ordered, print_report
from replay.cluster import connected, read_cluster_hpas
from replay.commands import errors_of_users, now_ms, prometheus_library, read_rules
from replay.flags import (
    MOMENT,
    Moment,
    cache_dir_option,
    config_file_option,
    end_option,
    pod_startup_option,
)
from replay.hpa_files import HPAFile
from replay.load import ReplayError, Startup
from replay.simulation import Settings
from replay.tune.candidates import TARGET
from replay.tune.command import share_of
from replay.tune.evaluation import TuneOptions
from replay.tune.goal import Goal
from replay.tune.workers import Pool

_POINTS: Final = 2_520
"""Of a metric: of a week, one every four minutes."""
_SYNC_MS: Final = 60_000
"""In the replays. More often than the values change, a controller mostly repeats itself; the annotation counts."""
_QUERY_SECONDS: Final = 30.0
_RESPONSE_BYTES: Final = 8 * 1024 * 1024
"""Of one of several queries at the same time; a metric's chunk has 50 kB."""


@click.command(cls=GoCommand)
@click.option("-n", "--namespace", metavar="NAME", default="", show_default=False, help="Namespace of the HPAs.")
@click.option("-A", "--all-namespaces", is_flag=True, help="Advise on the HPAs of all namespaces.")
@click.option(
    "--max-overload",
    type=share_of(0, 100),
    default="0.1%",
    help="Share of the load that may be above what reality carried; more, if the HPA has more today.",
)
@click.option(
    "--max-target", type=share_of(1, 100), default="90%", help="Highest target, as a share of what reality carried."
)
@click.option("--jobs", type=click.IntRange(1, 256), show_default="one per core", help="Number of processes.")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", help="Output format.")
@flag_section("Load flags")
@config_file_option
@click.option(
    "--from",
    "start",
    type=MOMENT,
    default="1w",
    help="Start of the load: a time, or how long before --to. At least four days are needed.",
)
@end_option
@cache_dir_option
@flag_section("Prometheus flags")
@prometheus_flags
@flag_section("Workload flags")
@pod_startup_option
@flag_section("Controller flags")
@config_options
@flag_section("Kubernetes client flags")
@kubeconfig_options
def advise(
    *,
    namespace: str,
    all_namespaces: bool,
    max_overload: float,
    max_target: float,
    jobs: int | None,
    output: str,
    config_file: Path | None,
    start: Moment,
    end: Moment,
    cache_dir: Path | None,
    prometheus: PrometheusAccess,
    pod_startup: float | None,
    config: Config,
    kubeconfig: Path | None,
    context: str | None,
) -> None:
    """Show which HPAs waste pods or need more, by their load of a week in Prometheus.

    Only reads. The HPA with the most pod-hours to save is first, then those at maxReplicas or with overload. What a pod
    can serve is not known, so the load per pod that reality has carried is taken for it: a lower bound. Exits with 0,
    also if some HPAs cannot be judged; with 1 for an error in Prometheus or the cluster, with 2 for invalid flags.

    \b
    Examples:
      python -m autoscaler advise -n shop --prometheus-url http://localhost:9090 --config rules.yaml
      python -m autoscaler advise -A --from 2w --prometheus-url http://localhost:9090 -o json
    """  # noqa: D301  # click's mark for a paragraph that is not wrapped
    if click.get_current_context().get_parameter_source("prometheus_url") is ParameterSource.DEFAULT:
        raise click.UsageError("give --prometheus-url")
    if bool(namespace) == all_namespaces:
        raise click.UsageError("give one of --namespace and --all-namespaces")
    with errors_of_users():
        with prometheus_library():
            from replay.prometheus.ranges import progress
            from replay.prometheus.source import PrometheusSettings, read_loads

        end_ms = end.resolve(now_ms())
        start_ms = start.resolve(end_ms)
        reading = PrometheusSettings(
            options=run(prometheus.authorized()),
            rules=read_rules(config_file),
            start_ms=start_ms,
            end_ms=end_ms,
            step_ms=max(-(-(end_ms - start_ms) // _POINTS) // 60_000, 1) * 60_000,
            cache=cache_dir,
            connect=functools.partial(connected, kubeconfig, context),
            query_seconds=_QUERY_SECONDS,
            response_bytes=_RESPONSE_BYTES,
        )
        found = read_cluster_hpas(namespace, kubeconfig=kubeconfig, context=context, scale_to_zero=config.scale_to_zero)
        if not found:
            click.echo(f"No resources found{f' in {namespace} namespace.' * bool(namespace)}", err=True)
        files = [each for each in found if isinstance(each, HPAFile)]
        invalid = [each for each in found if not isinstance(each, HPAFile)]
        advice = [Advice(namespace=where, name=name, api_version="", reason=why) for where, name, why in invalid]
        settings = Settings(config=config, step_ms=_SYNC_MS)
        options = TuneOptions(goal=Goal(max_overload=max_overload), fields=(TARGET,), max_target=max_target * 100)
        futures: list[Future[Advice]] = []
        with (
            progress(len(files), shown_on_terminal=sys.stderr.isatty(), text="HPAs") as advance,
            contextlib.closing(read_loads(files, reading)) as loads,
            Pool(jobs=min(jobs or os.cpu_count() or 1, max(len(files), 1))) as pool,
        ):
            for index, load in loads:
                hpa = files[index].hpa
                if isinstance(load, ReplayError):
                    advice.append(unjudged(hpa, load))
                    advance()
                else:
                    if pod_startup is not None:
                        load = dataclasses.replace(load, startup=Startup(round(pod_startup * 1000), "as given"))
                    futures.append(pool.submit(judge, files[index], load, settings, options))
                    futures[-1].add_done_callback(lambda _: advance())
            advice += [future.result() for future in futures]
        advice = ordered(advice)
        if output == "json":
            shown = json(advice, start_ms=start_ms, end_ms=end_ms, max_overload=max_overload, max_target=max_target)
            click.echo(shown, nl=False)
        elif advice:
            print_report(advice, sys.stdout, with_namespace=all_namespaces, max_target=max_target)
