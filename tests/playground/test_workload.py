"""Every pod of the demo has a port of its own that tells its share of the load; an exporter tells the queues."""

import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass

import aiohttp
import pytest

from playground.load import Backlog, Load, Traffic, Wave
from playground.workload import Workload, WorkloadPod

STEADY = Wave(low=100, high=100, period=60)


@dataclass
class Clock:
    """A clock that stands still until it is set."""

    seconds: float = 1000.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def workload(clock: Clock) -> AsyncIterator[Workload]:
    load = Load(
        traffic={"shop": Traffic(wave=STEADY, counters={"requests_total": 1, "packets_total": 8})},
        backlogs={"orders": Backlog(wave=STEADY, workers="worker", drain=30)},
    )
    async with Workload(load, clock=clock) as workload:
        yield workload


async def scrape(address: str) -> dict[str, float]:
    async with aiohttp.ClientSession() as session, session.get(f"http://{address}/metrics") as response:
        assert response.status == 200
        assert response.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        lines = [line for line in (await response.text()).splitlines() if not line.startswith("#")]
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}


async def test_ready_pods_share_the_load(workload: Workload, clock: Clock) -> None:
    pods = [WorkloadPod("a", "shop", ready=True), WorkloadPod("b", "shop", ready=True)]
    await workload.set_pods([*pods, WorkloadPod("c", "shop", ready=False)])
    clock.seconds += 10
    assert await scrape(workload.addresses["a"]) == {"requests_total": 500, "packets_total": 4000}
    assert await scrape(workload.addresses["b"]) == {"requests_total": 500, "packets_total": 4000}
    assert await scrape(workload.addresses["c"]) == {"requests_total": 0, "packets_total": 0}


async def test_pod_keeps_its_port_while_it_exists(workload: Workload) -> None:
    await workload.set_pods([WorkloadPod("a", "shop", ready=False)])
    address = workload.addresses["a"]
    await workload.set_pods([WorkloadPod("a", "shop", ready=True), WorkloadPod("b", "shop", ready=True)])
    assert workload.addresses["a"] == address
    await workload.set_pods([WorkloadPod("b", "shop", ready=True)])
    assert set(workload.addresses) == {"b"}
    with pytest.raises(aiohttp.ClientConnectionError):
        await scrape(address)


async def test_exporter_has_the_queue_depth(workload: Workload, clock: Clock) -> None:
    await workload.set_pods([WorkloadPod("w", "worker", ready=True)])
    clock.seconds += 10
    assert (await scrape(workload.exporter_address))['queue_depth{queue="orders"}'] == 700
    assert workload.addresses == {}, "workers count nothing themselves"


async def test_exporter_has_the_replicas_as_kube_state_metrics(workload: Workload) -> None:
    await workload.set_pods([WorkloadPod("a", "shop", ready=True), WorkloadPod("b", "shop", ready=False)])
    exported = await scrape(workload.exporter_address)
    assert exported['kube_deployment_status_replicas{deployment="shop"}'] == 2
    assert exported['kube_deployment_status_replicas_ready{deployment="shop"}'] == 1


async def test_listeners_are_closed_at_the_end() -> None:
    load = Load(traffic={"shop": Traffic(wave=STEADY, counters={"requests_total": 1})}, backlogs={})
    async with Workload(load) as workload:
        await workload.set_pods([WorkloadPod("a", "shop", ready=True)])
        addresses = [workload.exporter_address, *workload.addresses.values()]
    for address in addresses:
        host, port = address.split(":")
        with socket.socket() as probe:
            assert probe.connect_ex((host, int(port))) != 0
