"""Cluster, Prometheus, workload, adapter and autoscaler on loopback, for the demo and the end-to-end tests.

Everything stops with the context, in reverse order. Nothing is written outside of its folder.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kube.api.client import KubeClient, KubeError
from kube.api.status import StatusError
from kube.values.durations import format_duration
from playground.binaries import find_async
from playground.cluster import start_cluster
from playground.errors import PlaygroundError
from playground.install import MANIFESTS, Manifests, Process, apply, read_objects, write_account_kubeconfig
from playground.load import Load
from playground.pod_discovery import PodDiscovery
from playground.ports import LOOPBACK, free_port
from playground.processes import ChildProcess
from playground.prometheus import PrometheusServer
from playground.scenario import APPLICATIONS, HPAS, NAMESPACE, RULES, SHOWCASE
from playground.tasks import background
from playground.workload import Workload

METRIC_PATHS: Final = (
    f"/apis/custom.metrics.k8s.io/v1beta2/namespaces/{NAMESPACE}/pods/*/packets_per_second",
    f"/apis/custom.metrics.k8s.io/v1beta2/namespaces/{NAMESPACE}/services/shop/requests_per_second",
    f"/apis/external.metrics.k8s.io/v1beta1/namespaces/{NAMESPACE}/queue_depth",
)
"""The metrics of the three HPAs."""

_ROOT: Final = Path(__file__).resolve().parent.parent
_SHOWCASE: Final = (
    *(MANIFESTS / "crds" / "metric-rules" / f"{name}.yaml" for name in ("metricrules", "clustermetricrules")),
    *(MANIFESTS / "components" / "metric-rules" / f"{name}.yaml" for name in ("rbac", "users")),
    SHOWCASE,
)
"""The CustomResourceDefinitions and the rights for the adapter's --metric-rules, and what uses them."""
_PAGES_RIGHTS: Final = MANIFESTS / "components" / "autoscaler-ui" / "rbac.yaml"
_HPA: Final = "HorizontalPodAutoscaler"
_START_TIMEOUT: Final = 60.0
_POLL: Final = 0.1


class ChildEndedError(PlaygroundError):
    """A process ended unexpectedly; the message has the end of its log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Intervals in seconds; much shorter than in a cluster, so that replicas change while one watches."""

    scrape_interval: float = 1.0
    relist_interval: float = 2.0
    sync_period: float = 2.0
    downscale_stabilization: float = 6.0
    pod_startup: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """The running bundle. `kubeconfig` and `client` are of a cluster admin."""

    kubectl: Path
    kubeconfig: Path
    client: KubeClient
    prometheus: PrometheusServer
    workload: Workload
    adapter: ChildProcess
    adapter_url: str
    adapter_ui_url: str
    autoscaler: ChildProcess
    autoscaler_url: str
    autoscaler_ui_url: str
    discovery: asyncio.Task[None]

    def check(self) -> None:
        """Raise ChildEndedError if a process has ended, and the error of the pod discovery if it has one."""
        for child in (self.prometheus.process, self.adapter, self.autoscaler):
            if child.exit_status is not None:
                what = f"{child.name} ended with exit status {child.exit_status}; the end of {child.log}:"
                raise ChildEndedError("\n".join([what, *child.last_lines()]))
        if self.discovery.done():
            self.discovery.result()


@asynccontextmanager
async def run_bundle(
    folder: Path, *, load: Load, timing: Timing | None = None, showcase: bool = False
) -> AsyncIterator[Bundle]:
    """Start everything in `folder`; the HPAs are created last, once their metrics have values.

    Args:
        folder: for all files.
        load: of the applications.
        timing: the intervals.
        showcase: create the objects of `SHOWCASE`, too, and let the adapter serve MetricRules.

    Raises:
        PlaygroundError: the message says what failed, or what to do.
    """
    timing = timing or Timing()
    async with AsyncExitStack() as stack:
        kubectl = await find_async("kubectl")
        prometheus = await stack.enter_async_context(
            PrometheusServer(folder / "prometheus", scrape_interval=timing.scrape_interval)
        )
        cluster = await stack.enter_async_context(start_cluster(folder / "cluster", ready_seconds=timing.pod_startup))
        client = await stack.enter_async_context(await KubeClient.connect(cluster.kubeconfig))
        workload = await stack.enter_async_context(Workload(load))
        follower = PodDiscovery(client, namespace=NAMESPACE, workload=workload, prometheus=prometheus)
        discovery = await stack.enter_async_context(background(follower.run()))
        await apply(client, await read_objects(APPLICATIONS))

        manifests = await Manifests.render(kubectl)
        await apply(client, [*manifests.rights, *await read_objects(_PAGES_RIGHTS)])
        more = [entry for path in _SHOWCASE if showcase for entry in await read_objects(path)]
        await apply(client, [entry for entry in more if entry["kind"] not in ("MetricRule", _HPA)])
        adapter_port, adapter_ui_port = free_port(), free_port()
        autoscaler_port, autoscaler_ui_port = free_port(), free_port()
        flags: dict[Process, list[str]] = {
            "adapter": _adapter_flags(
                folder, timing, port=adapter_port, ui_port=adapter_ui_port, prometheus_url=prometheus.url
            ),
            "autoscaler": _autoscaler_flags(
                folder,
                timing,
                port=autoscaler_port,
                ui_port=autoscaler_ui_port,
                adapter_ui_port=adapter_ui_port,
                namespace=manifests.account("autoscaler").namespace,
            ),
        }
        if showcase:
            flags["adapter"] += ["--metric-rules", "--tenant-label=namespace"]
        processes = {}
        for process, arguments in flags.items():
            account, kubeconfig = manifests.account(process), _kubeconfig(folder, process)
            await write_account_kubeconfig(client, kubeconfig, admin=cluster.kubeconfig, account=account)
            command = [sys.executable, "-m", process, *arguments]
            child = await ChildProcess.start(process, command, log=folder / f"{process}.log", directory=_ROOT)
            processes[process] = await stack.enter_async_context(child)
        bundle = Bundle(
            kubectl=kubectl,
            kubeconfig=cluster.kubeconfig,
            client=client,
            prometheus=prometheus,
            workload=workload,
            adapter=processes["adapter"],
            adapter_url=f"https://{LOOPBACK}:{adapter_port}",
            adapter_ui_url=f"http://{LOOPBACK}:{adapter_ui_port}/",
            autoscaler=processes["autoscaler"],
            autoscaler_url=f"http://{LOOPBACK}:{autoscaler_port}",
            autoscaler_ui_url=f"http://{LOOPBACK}:{autoscaler_ui_port}/",
            discovery=discovery,
        )
        # Registered once it listens: the API server checks a server that failed only seconds later.
        await _until_listening(bundle, "adapter", adapter_port)
        await apply(client, manifests.registration(port=adapter_port))
        await apply(client, [entry for entry in more if entry["kind"] == "MetricRule"])
        await _until_measured(bundle)
        await _until_listening(bundle, "autoscaler", autoscaler_ui_port)
        await _until_listening(bundle, "adapter", adapter_ui_port)
        await apply(client, [*await read_objects(HPAS), *(entry for entry in more if entry["kind"] == _HPA)])
        yield bundle


def _kubeconfig(folder: Path, process: Process) -> Path:
    return folder / f"{process}.kubeconfig"


def _adapter_flags(folder: Path, timing: Timing, *, port: int, ui_port: int, prometheus_url: str) -> list[str]:
    kubeconfig = _kubeconfig(folder, "adapter")
    return [
        "serve",
        f"--prometheus-url={prometheus_url}",
        f"--config={RULES}",
        f"--metrics-relist-interval={format_duration(timing.relist_interval)}",
        "--metrics-max-age=1m",  # a late scrape on a busy machine must not remove a metric
        f"--metrics-freshness={format_duration(timing.scrape_interval)}",
        f"--bind-address={LOOPBACK}",
        f"--secure-port={port}",
        f"--ui-address={LOOPBACK}:{ui_port}",
        f"--cert-dir={folder / 'adapter-certificates'}",
        f"--lister-kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
    ]


def _autoscaler_flags(
    folder: Path, timing: Timing, *, port: int, ui_port: int, adapter_ui_port: int, namespace: str
) -> list[str]:
    return [
        "run",
        f"--kubeconfig={_kubeconfig(folder, 'autoscaler')}",
        f"--leader-elect-resource-namespace={namespace}",
        f"--horizontal-pod-autoscaler-sync-period={format_duration(timing.sync_period)}",
        f"--horizontal-pod-autoscaler-downscale-stabilization={format_duration(timing.downscale_stabilization)}",
        f"--bind-address={LOOPBACK}",
        f"--metrics-port={port}",
        f"--ui-address={LOOPBACK}:{ui_port}",
        f"--adapter-ui-url=http://{LOOPBACK}:{adapter_ui_port}",
        "--kept-decisions=1000",  # half an hour at the demo's sync period
    ]


async def _until_listening(bundle: Bundle, process: Process, port: int) -> None:
    async with _start_deadline(f"the {process} does not listen on port {port}"):
        while True:
            bundle.check()
            try:
                _, writer = await asyncio.open_connection(LOOPBACK, port)
            except OSError:
                await asyncio.sleep(_POLL)
            else:
                writer.close()
                return


async def _until_measured(bundle: Bundle) -> None:
    """Wait until the metrics of the HPAs have values, through the aggregation layer."""
    waiting_for = dict.fromkeys(METRIC_PATHS, "not requested yet")
    queries = {METRIC_PATHS[0]: {"labelSelector": "app=router"}}
    async with _start_deadline("the metrics are not there", waiting_for):
        while waiting_for:
            bundle.check()
            for path in list(waiting_for):
                try:
                    response = await bundle.client.get(path, queries.get(path))
                except (StatusError, KubeError) as error:
                    waiting_for[path] = str(error)
                else:
                    if response.get("items"):
                        del waiting_for[path]
            await asyncio.sleep(_POLL)


@asynccontextmanager
async def _start_deadline(what: str, details: dict[str, str] | None = None) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(_START_TIMEOUT):
            yield
    except TimeoutError as error:
        lines = [f"{what} after {_START_TIMEOUT:.0f} s", *(f"{key}: {text}" for key, text in (details or {}).items())]
        raise PlaygroundError("\n".join(lines)) from error
