"""The environment of chaos tests: everything that runs in a cluster, with fault proxies between the parts.

The metrics are constant: `Environment.load` says how many replicas each application needs, so any other number is an
error. The applications begin with `REPLICAS`.

    adapter    -> prometheus_proxy -> Prometheus -> workload
    adapter    -> adapter_api      -> API server
    autoscaler -> autoscaler_api   -> API server -> adapter
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from kube.api.client import KubeClient
from playground.apiserver.pki import client_tls
from playground.certs import CertificateAuthority
from playground.cluster import Cluster, start_cluster
from playground.install import Account, Manifests, Object, apply, read_objects, write_account_kubeconfig
from playground.load import Backlog, Load, Traffic, Wave
from playground.pod_discovery import PodDiscovery
from playground.ports import LOOPBACK, free_port
from playground.prometheus import PrometheusServer
from playground.scenario import APPLICATIONS, NAMESPACE
from playground.tasks import background
from playground.workload import Workload
from tests.chaos.measured import MeasuredProcess
from tests.chaos.proxy import FaultProxy
from tests.eventually import eventually
from tests.manifests.rendering import definitions, render_with
from tests.objects import hpa
from tests.replay.builders import external_metric, object_metric, pods_metric

REPLICAS = 4
"""The number of replicas that the constant metrics need."""
HPA_NAMES = ("router", "shop", "worker")
"""The HPAs, and the Deployments that they scale."""

_COUNTERS = {"router": "packets_total", "shop": "requests_total"}
_GOAL = 50.0
"""Requests, queue entries or packets for each replica."""
_LOAD = 0.9
"""The load of a replica as a share of that, if the number of replicas is right."""
RULES = """\
rules:
- seriesQuery: 'packets_total{namespace!="",pod!=""}'
  resources: {overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}
  name: {matches: '^packets_total$', as: packets_per_second}
  metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)'
- seriesQuery: 'requests_total{namespace!="",service!=""}'
  resources: {overrides: {namespace: {resource: namespace}, service: {resource: service}}}
  name: {matches: '^requests_total$', as: requests_per_second}
  metricsQuery: 'max(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)'
"""
METRIC_RULE: Object = {
    "apiVersion": "milliscale.io/v1",
    "kind": "MetricRule",
    "metadata": {"name": "queue-depth", "namespace": NAMESPACE},
    "spec": {"type": "External", "metric": "queue_depth", "query": "max(queue_depth) by (queue)"},
}
"""The rule of the metric of `worker`; those of the others are in the file."""
ADMIN_HEADERS = {"X-Remote-User": "admin", "X-Remote-Group": "system:masters"}
"""Of requests to the adapter with the front proxy's certificate."""
AUTOSCALER_FLAGS = (
    "--horizontal-pod-autoscaler-sync-period=200ms",
    # A controller that takes a missing metric for a low one scales down at once.
    "--horizontal-pod-autoscaler-downscale-stabilization=0s",
    "--leader-elect-lease-duration=3s",
    "--leader-elect-renew-deadline=2s",
    "--leader-elect-retry-period=300ms",
)


_RULE_STATUSES = "milliscale_adapter_rule_object_conditions{"
_AVERAGE = f"{_GOAL:.0f}"
HPAS = [
    hpa(name, metric, target=name, namespace=NAMESPACE, maxReplicas=8)
    for name, metric in (
        ("router", pods_metric("packets_per_second", _AVERAGE)),
        ("shop", object_metric("requests_per_second", service="shop", averageValue=_AVERAGE)),
        ("worker", external_metric("queue_depth", averageValue=_AVERAGE)),
    )
]


class ConstantLoad(Load):
    """Metrics from which exactly one number of replicas follows, whatever the present number is.

    Attributes:
        needs: the replicas that `shop` and `worker` have needed so far; the last number is that of now. `router` needs
            as many as it has.
    """

    def __init__(self) -> None:
        wave = Wave(low=0, high=0, period=60)
        super().__init__(
            traffic={name: Traffic(wave=wave, counters={counter: 1}) for name, counter in _COUNTERS.items()},
            backlogs={"orders": Backlog(wave=wave, workers="worker", drain=0)},
        )
        self.needs = [REPLICAS]

    @property
    def needed(self) -> int:
        """The replicas that `shop` and `worker` need now."""
        return self.needs[-1]

    def counters(self, application: str, pod: str) -> dict[str, float]:
        """Return a pod's metric: of `router` its own load, of `shop` the load of all pods."""
        return {_COUNTERS[application]: _GOAL * _LOAD if application == "router" else self.depth("")}

    def depth(self, queue: str) -> float:
        """Return the load of all pods together."""
        return _GOAL * (self.needed - 1 + _LOAD)


@dataclass(frozen=True, kw_only=True)
class Environment:
    """The running environment; `client` and `kubeconfig` are of a cluster admin, without a proxy."""

    folder: Path
    """For files of scenarios."""
    cluster: Cluster
    """The API server."""
    client: KubeClient
    """A cluster admin's."""
    prometheus: PrometheusServer
    """The real one."""
    workload: Workload
    """What Prometheus scrapes."""
    load: ConstantLoad
    """What the workload reports."""
    prometheus_proxy: FaultProxy
    """Between adapter and Prometheus."""
    adapter_api: FaultProxy
    """Between adapter and API server."""
    autoscaler_api: FaultProxy
    """Between autoscalers and API server; its `writes` are all that they write."""
    adapter: MeasuredProcess
    """The process."""
    autoscalers: list[MeasuredProcess]
    """The processes; scenarios may replace them and add replicas."""
    rules: Path
    """The adapter's rules file."""
    autoscaler_namespace: str

    @property
    def processes(self) -> list[MeasuredProcess]:
        """The adapter and the autoscalers."""
        return [self.adapter, *self.autoscalers]

    async def start_autoscaler(
        self, name: str, *flags: str, environment: Mapping[str, str] | None = None
    ) -> MeasuredProcess:
        """Start another replica; stop it, or append it to `autoscalers`, which are stopped at the end."""
        port = free_port()
        return await MeasuredProcess.start(
            name,
            [
                "run",
                f"--kubeconfig={_kubeconfig(self.folder, 'autoscaler')}",
                f"--leader-elect-resource-namespace={self.autoscaler_namespace}",
                f"--bind-address={LOOPBACK}",
                f"--metrics-port={port}",
                *AUTOSCALER_FLAGS,
                *flags,
            ],
            module="autoscaler",
            url=f"http://{LOOPBACK}:{port}",
            folder=self.folder,
            environment=environment,
        )

    async def renew_token(self) -> str:
        """Write a new token to the autoscalers' kubeconfig, and return the old one."""
        path = _kubeconfig(self.folder, "autoscaler")
        user = yaml.safe_load(await asyncio.to_thread(path.read_text))["users"][0]
        account = Account(self.autoscaler_namespace, user["name"])
        await write_account_kubeconfig(self.client, path, admin=path, account=account)
        return str(user["user"]["token"])

    async def replicas(self) -> dict[str, int]:
        """Return the replicas in the specs of the Deployments, by name."""
        listed = await self.client.get(f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments")
        return {entry["metadata"]["name"]: entry["spec"]["replicas"] for entry in listed["items"]}

    async def conditions(self, type_: str) -> dict[str, str]:
        """Return the status of a condition of each HPA, by name."""
        listed = await self.client.get(f"/apis/autoscaling/v2/namespaces/{NAMESPACE}/horizontalpodautoscalers")
        return {entry["metadata"]["name"]: _condition(entry, type_) for entry in listed["items"]}

    async def writes_rule_statuses(self) -> bool:
        """Return whether the adapter holds the Lease of those that write the statuses of rules."""
        metrics = await self.adapter.metrics()
        return any(count for name, count in metrics.items() if name.startswith(_RULE_STATUSES))

    async def reconciliations(self, *, good: bool = False) -> float:
        """Return how many reconciliations the running autoscalers have done; with `good`, without an error."""
        total = 0.0
        for process in self.autoscalers:
            for name, value in (await process.metrics()).items():
                counted = name.startswith("horizontal_pod_autoscaler_controller_reconciliations_total")
                total += value if counted and (not good or 'error="none"' in name) else 0
        return total

    async def wait_for_reconciliations(self, number: int = 2, *, good: bool = False) -> None:
        """Wait until each HPA has been reconciled so many times more."""
        goal = await self.reconciliations(good=good) + number * len(HPA_NAMES)

        async def done() -> bool:
            return await self.reconciliations(good=good) >= goal

        await eventually(done)

    async def wait_recovered(self) -> None:
        """Wait until all processes are ready, and each HPA is reconciled without an error, and scaled as needed."""

        async def ready() -> bool:
            return all([await process.is_ready() for process in self.processes])

        async def active() -> bool:
            return set((await self.conditions("ScalingActive")).values()) == {"True"}

        async def scaled() -> bool:
            replicas = await self.replicas()
            return replicas["shop"] == replicas["worker"] == self.load.needed

        await eventually(ready)
        await self.wait_for_reconciliations(good=True)
        await eventually(active)
        await eventually(scaled)


@asynccontextmanager
async def run_environment(folder: Path) -> AsyncIterator[Environment]:
    """Start everything in `folder`, and wait until each HPA has its replicas.

    Raises:
        PlaygroundError: the message says what failed, or what to do.
    """
    async with AsyncExitStack() as stack:
        prometheus = await stack.enter_async_context(PrometheusServer(folder / "prometheus"))
        cluster = await stack.enter_async_context(start_cluster(folder / "cluster", ready_seconds=0.1))
        client = await stack.enter_async_context(await KubeClient.connect(cluster.kubeconfig))
        load = ConstantLoad()
        workload = await stack.enter_async_context(Workload(load))
        discovery = PodDiscovery(client, namespace=NAMESPACE, workload=workload, prometheus=prometheus)
        await stack.enter_async_context(background(discovery.run()))
        objects = await asyncio.to_thread(render_with, _new(folder / "overlay"), "metric-rules")
        manifests = Manifests(list(objects.values()))
        if cluster.is_real:  # the playground's API server has the kind
            await apply(client, [*definitions("metric-rules").values()])
        await apply(client, [*_with_replicas(await read_objects(APPLICATIONS)), *manifests.rights, METRIC_RULE])
        pki = cluster.pki
        prometheus_proxy = await stack.enter_async_context(FaultProxy(prometheus.url, serving=pki.serving))
        proxies = {}
        for process in ("adapter", "autoscaler"):
            proxy = FaultProxy(cluster.url, serving=pki.serving, upstream_ca=pki.serving_ca_file)
            proxies[process] = await stack.enter_async_context(proxy)
            admin = pki.kubeconfig(proxy.url, f"{process}-proxy")  # only the cluster's address is used
            account = manifests.account("adapter" if process == "adapter" else "autoscaler")
            await write_account_kubeconfig(client, _kubeconfig(folder, process), admin=admin, account=account)
        rules = folder / "rules.yaml"
        await asyncio.to_thread(rules.write_text, RULES)
        port = free_port()
        write_serving_certificate(folder, pki.serving_ca)
        prometheus_ca(folder).write_bytes(pki.serving_ca.cert_pem)
        adapter = await start_adapter(folder, cluster, port=port, prometheus_url=prometheus_proxy.url, rules=rules)
        stack.push_async_callback(adapter.child.stop)
        environment = Environment(
            folder=folder,
            cluster=cluster,
            client=client,
            prometheus=prometheus,
            workload=workload,
            load=load,
            prometheus_proxy=prometheus_proxy,
            adapter_api=proxies["adapter"],
            autoscaler_api=proxies["autoscaler"],
            adapter=adapter,
            autoscalers=[],
            rules=rules,
            autoscaler_namespace=manifests.account("autoscaler").namespace,
        )
        stack.push_async_callback(_stop_autoscalers, environment)
        await eventually(adapter.is_ready)
        await apply(client, manifests.registration(port=port))
        environment.autoscalers.append(await environment.start_autoscaler("autoscaler"))
        await apply(client, HPAS)
        await environment.wait_recovered()
        yield environment


async def _stop_autoscalers(environment: Environment) -> None:
    for process in environment.autoscalers:
        await process.child.stop()


def _new(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _kubeconfig(folder: Path, process: str) -> Path:
    return folder / f"{process}.kubeconfig"


async def start_adapter(
    folder: Path,
    cluster: Cluster,
    *,
    port: int,
    prometheus_url: str,
    rules: Path,
    name: str = "adapter",
    environment: Mapping[str, str] | None = None,
) -> MeasuredProcess:
    """Start an adapter; stop it at the end."""
    return await MeasuredProcess.start(
        name,
        _adapter_flags(folder, port=port, prometheus_url=prometheus_url, rules=rules),
        module="adapter",
        url=f"https://{LOOPBACK}:{port}",
        folder=folder,
        environment=environment,
        headers=ADMIN_HEADERS,
        tls=client_tls(cluster.pki.front_proxy),
    )


def prometheus_ca(folder: Path) -> Path:
    """Return the file of the CA by which the adapter verifies Prometheus."""
    return folder / "prometheus-ca.crt"


def write_serving_certificate(folder: Path, ca: CertificateAuthority) -> None:
    """Write a new serving certificate for the adapter."""
    pair = ca.issue("adapter", hosts=[LOOPBACK, "localhost"], server=True)
    (folder / "adapter.key").write_bytes(pair.key_pem)
    (folder / "adapter.crt").write_bytes(pair.cert_pem)


def _adapter_flags(folder: Path, *, port: int, prometheus_url: str, rules: Path) -> Sequence[str]:
    kubeconfig = _kubeconfig(folder, "adapter")
    return [
        "serve",
        f"--prometheus-url={prometheus_url}",
        f"--config={rules}",
        "--metrics-relist-interval=1s",
        "--metrics-max-age=1m",  # a late scrape on a busy machine must not remove a metric
        "--metrics-freshness=300ms",
        f"--bind-address={LOOPBACK}",
        f"--secure-port={port}",
        f"--prometheus-ca-file={prometheus_ca(folder)}",
        f"--tls-cert-file={folder / 'adapter.crt'}",
        f"--tls-private-key-file={folder / 'adapter.key'}",
        "--metric-rules",
        "--tenant-label=namespace",
        f"--lister-kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
    ]


def _with_replicas(objects: Sequence[Object]) -> Iterator[Object]:
    for entry in objects:
        if entry["kind"] == "Deployment":
            yield {**entry, "spec": {**entry["spec"], "replicas": REPLICAS}}
        else:
            yield entry


def _condition(hpa: Mapping[str, Any], type_: str) -> str:
    conditions = hpa.get("status", {}).get("conditions") or ()
    return next((str(each["status"]) for each in conditions if each["type"] == type_), "")
